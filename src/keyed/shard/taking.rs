//! Reading and changing the level of a key.

use super::{
    CustomEntry, Deferred, EntryRequest, EntryState, Level, Quick, RareFields, Rate, Shard, ShardContext, Stop,
};
use crate::core::Core;
use crate::keyed::entries::Listed;
use std::num::NonZeroU64;
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// The fast path: takes `cost` tokens from a packed level, under the common quota or the key's own, and returns
    /// what remains; or returns the key's live entry. `also` takes what has to be taken elsewhere too, and can refuse.
    /// Returns `None`, with nothing changed, if anything is unusual: then [`at_level`](Self::at_level) decides.
    #[inline]
    pub(in crate::keyed) fn take_quickly(
        &mut self,
        key: &K,
        hash: u64,
        cost: u64,
        now: u64,
        also: impl FnOnce() -> bool,
    ) -> Option<Quick> {
        let now = self.synced.max(now);
        if self.closed || self.calls_left <= 1 || now - self.swept > self.window || cost == 0 {
            return None;
        }
        let mut custom = None;
        if let Some(live) = self.live_entries.find(hash, key) {
            return Some(Quick::Live(Arc::clone(live)));
        }
        if let Some(rare_fields) = &mut self.rare_fields {
            custom = rare_fields.custom_entries.find_mut(hash, |custom| custom.key == *key);
        }
        let (rate, packed) = match custom {
            Some(CustomEntry { entry_state: EntryState::Live(live), .. }) => {
                return Some(Quick::Live(Arc::clone(live)));
            }
            Some(CustomEntry { entry_state: EntryState::Wide(_), .. }) => return None,
            Some(CustomEntry { entry_state: EntryState::PackedLevel(packed), rate, .. }) => (&**rate, packed),
            None => (&*self.rate, self.packed_levels.find_mut(hash, key)?),
        };
        let (next, left) = rate.take_from_packed(*packed, cost, now)?;
        if !also() {
            return None;
        }
        *packed = next;
        self.synced = now;
        self.calls_left -= 1;
        self.count_granted(cost);
        Some(Quick::Taken(left))
    }

    /// Calls `act` on the level of a key that has no live entry, and stores the level that `act` leaves. A full level
    /// is not stored.
    pub(in crate::keyed) fn at_level<R>(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut Deferred<K>,
        act: impl FnOnce(&Rate, &mut Level) -> R,
    ) -> Result<R, Stop> {
        self.at_level_if(request, context, deferred, act, Ok)
    }

    /// Like [`at_level`](Self::at_level), but stores the level only if `confirm` agrees. `confirm` is called last, when
    /// nothing is left that could fail; its `Err` leaves everything as it was.
    pub(in crate::keyed) fn at_level_if<R>(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut Deferred<K>,
        act: impl FnOnce(&Rate, &mut Level) -> R,
        confirm: impl FnOnce(R) -> Result<R, R>,
    ) -> Result<R, Stop> {
        let now = self.advance_to(request.now, context, deferred);
        if let Some(live) = self.live_entries.find(request.hash, request.key) {
            return Err(Stop::Live(Arc::clone(live)));
        }
        if let Some((rate, kept)) = self.find_level(request) {
            let before = match &kept {
                Kept::PackedLevel(packed) => Self::read(rate, **packed, now),
                Kept::CustomEntry(entry_state) => {
                    entry_state.level(rate, now).map_err(|live| Stop::Live(Arc::clone(live)))?
                }
            };
            let mut level = before;
            let result = match confirm(act(rate, &mut level)) {
                Ok(result) => result,
                Err(refusal) => return Ok(refusal),
            };
            if level.units > before.units {
                context.key_limit.idle_no_later_than(context.number, || rate.reached(level, rate.burst()));
            }
            match (kept, rate.packed(level)) {
                (Kept::CustomEntry(entry_state), _) => *entry_state = EntryState::of(rate, level),
                (Kept::PackedLevel(packed), Some(next)) => *packed = next,
                (Kept::PackedLevel(_), None) => self.make_custom(request, level),
            }
            return Ok(result);
        }
        let rate = self.rate_for(request)?;
        let mut level = Level { units: rate.full(), at: now };
        let result = act(&rate, &mut level);
        if rate.is_full(level.units) {
            return Ok(result);
        }
        let newcomer = self.prepare(request, rate, level, context, deferred)?;
        match confirm(result) {
            Ok(result) => {
                self.keep(newcomer, context);
                Ok(result)
            }
            Err(refusal) => {
                context.key_limit.give_back(1);
                deferred.keys.push(newcomer.key);
                Ok(refusal)
            }
        }
    }

    /// All keys of the shard, with their states.
    pub(in crate::keyed) fn list(
        &mut self,
        now: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut Deferred<K>,
    ) -> Vec<(K, Listed)> {
        let now = self.advance_to(now, context, deferred);
        let packed_levels = self.packed_levels.iter().map(|(key, packed)| {
            (key.clone(), Listed::Level(Arc::clone(&self.rate), Self::read(&self.rate, *packed, now)))
        });
        let live_entries = self.live_entries.iter().map(|(key, live)| (key.clone(), Listed::Live(Arc::clone(live))));
        let custom_entries = self.custom_entries().map(|CustomEntry { key, rate, entry_state, .. }| match entry_state
            .level(rate, now)
        {
            Ok(level) => (key.clone(), Listed::Level(Arc::clone(rate), level)),
            Err(live) => (key.clone(), Listed::Live(Arc::clone(live))),
        });
        packed_levels.chain(live_entries).chain(custom_entries).collect()
    }

    /// The live entry of the key, if it has one.
    pub(in crate::keyed) fn find_live(&self, request: &EntryRequest<'_, K>) -> Option<Arc<Core>> {
        let own = |rare_fields: &RareFields<K>| {
            rare_fields
                .custom_entries
                .find(request.hash, |custom| custom.key == *request.key)?
                .entry_state
                .live()
                .cloned()
        };
        self.live_entries.find(request.hash, request.key).cloned().or_else(|| self.rare_fields.as_deref().and_then(own))
    }

    /// Where the level of a key without an entry in the live table is stored, and its quota.
    fn find_level(&mut self, request: &EntryRequest<'_, K>) -> Option<(&Rate, Kept<'_>)> {
        let custom_entries = self.rare_fields.as_mut().map(|rare_fields| &mut rare_fields.custom_entries);
        match custom_entries
            .and_then(|custom_entries| custom_entries.find_mut(request.hash, |custom| custom.key == *request.key))
        {
            Some(CustomEntry { rate, entry_state, .. }) => Some((rate, Kept::CustomEntry(entry_state))),
            None => Some((&self.rate, Kept::PackedLevel(self.packed_levels.find_mut(request.hash, request.key)?))),
        }
    }
}

/// Where a level is stored.
enum Kept<'a> {
    PackedLevel(&'a mut NonZeroU64),
    CustomEntry(&'a mut EntryState),
}
