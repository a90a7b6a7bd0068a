//! Changing the levels of a key: taking tokens from them first of all.

use super::{
    CustomEntry, DeferredDrops, EntryRequest, EntryState, Left, Levels, Quick, Rates, Shard, ShardContext, Stop,
};
use crate::core::Core;
use crate::core::state::MAX_COST;
use std::num::NonZeroU64;
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// The fast path: takes `cost` tokens from packed levels, under the common quotas or the key's own, and returns
    /// what remains; or returns the key's live entry. `also` takes tokens of the parent, if there is one, and can
    /// refuse. Returns `None`, with nothing changed, in every less common case, which [`at_levels`](Self::at_levels)
    /// handles.
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
        if self.is_fast_path_closed || self.calls_left <= 1 || now - self.swept > self.window || cost == 0 {
            return None;
        }
        let mut custom = None;
        if let Some(live) = self.live_entries.find(hash, key) {
            return Some(Quick::Live(Arc::clone(live)));
        }
        if let Some(rare_fields) = &mut self.rare_fields {
            custom = rare_fields.custom_entries.find_mut(hash, |custom| custom.key == *key);
        }
        let (rates, packed) = match custom {
            Some(CustomEntry { entry_state: EntryState::Live(live), .. }) => {
                return Some(Quick::Live(Arc::clone(live)));
            }
            Some(CustomEntry { entry_state: EntryState::Wide(_), .. }) => return None,
            Some(CustomEntry { entry_state: EntryState::PackedPair(_), .. }) => {
                return self.take_from_pair(key, hash, cost, now, also);
            }
            Some(CustomEntry { entry_state: EntryState::PackedLevel(packed), rates, .. }) => (&**rates, packed),
            None if self.rates.stores_no_levels => {
                let left = Left::whole(MAX_COST.checked_sub(cost)?);
                if !also() {
                    return None;
                }
                self.count_quick(cost, now);
                return Some(Quick::Taken(left));
            }
            None => match self.packed_levels.find_mut(hash, key) {
                Some(packed) => (&*self.rates, packed),
                None => return self.take_from_pair(key, hash, cost, now, also),
            },
        };
        let (next, left) = rates.first().take_from_packed(packed[0], cost, now)?;
        if !also() {
            return None;
        }
        packed[0] = next;
        self.count_quick(cost, now);
        Some(Quick::Taken(left))
    }

    /// The same for a key with two quotas.
    #[inline(never)]
    fn take_from_pair(
        &mut self,
        key: &K,
        hash: u64,
        cost: u64,
        now: u64,
        also: impl FnOnce() -> bool,
    ) -> Option<Quick> {
        let rare_fields = self.rare_fields.as_deref_mut()?;
        let (rates, packed): (_, &mut [NonZeroU64; 2]) = match rare_fields.packed_pairs.find_mut(hash, key) {
            Some(packed) => (&self.rates, packed),
            None => match rare_fields.custom_entries.find_mut(hash, |custom| custom.key == *key)? {
                CustomEntry { rates, entry_state: EntryState::PackedPair(packed), .. } => (&*rates, packed),
                _ => return None,
            },
        };
        let (next, left): (_, Left) = rates.take_from_pair(packed, cost, now)?;
        if !also() {
            return None;
        }
        *packed = next;
        self.count_quick(cost, now);
        Some(Quick::Taken(left))
    }

    /// Counts a grant of the fast path.
    #[inline]
    fn count_quick(&mut self, cost: u64, now: u64) {
        self.synced = now;
        self.calls_left -= 1;
        self.count_granted(cost);
    }

    /// Calls `act` on the levels of a key that has no live entry, and stores the levels that `act` leaves. Full levels
    /// are not stored.
    pub(in crate::keyed) fn at_levels<R>(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
        act: impl FnOnce(&Rates, &mut Levels) -> R,
    ) -> Result<R, Stop> {
        self.at_levels_if(request, context, deferred, act, Ok)
    }

    /// Like [`at_levels`](Self::at_levels), but stores the levels only if `confirm` agrees. `confirm` is called last,
    /// when nothing is left that could fail; its `Err` leaves everything as it was.
    pub(in crate::keyed) fn at_levels_if<R>(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
        act: impl FnOnce(&Rates, &mut Levels) -> R,
        confirm: impl FnOnce(R) -> Result<R, R>,
    ) -> Result<R, Stop> {
        let now = self.advance_to(request.now, context, deferred);
        if let Some(live) = self.live_entries.find(request.hash, request.key) {
            return Err(Stop::Live(Arc::clone(live)));
        }
        let gate = self.gate(context);
        if let Some((rates, mut kept)) = self.find_levels(request) {
            let before = kept.levels(rates, now).map_err(|live| Stop::Live(Arc::clone(live)))?;
            let mut levels = before.paused_until(gate);
            let result = match confirm(act(rates, &mut levels)) {
                Ok(result) => result,
                Err(refusal) => return Ok(refusal),
            };
            levels.gate = before.gate;
            if levels.is_raised_from(&before) {
                context.key_limit.idle_no_later_than(context.number, || Some(rates.full_at(&levels)));
            }
            if !kept.store(rates, &levels) {
                self.make_custom(request, &levels);
            }
            return Ok(result);
        }
        let rates = self.rates_for(request)?;
        let mut levels = rates.full(now).paused_until(gate);
        let result = act(&rates, &mut levels);
        levels.gate = 0;
        if rates.is_full(&levels) {
            return Ok(result);
        }
        if rates.stores_no_levels {
            return Ok(confirm(result).unwrap_or_else(|refusal| refusal));
        }
        let newcomer = self.prepare(request, rates, levels, context, deferred)?;
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

    /// Where the levels of a key without an entry in the live table are stored, and its quotas.
    fn find_levels(&mut self, request: &EntryRequest<'_, K>) -> Option<(&Rates, Kept<'_>)> {
        let (hash, key) = (request.hash, request.key);
        let Some(rare_fields) = &mut self.rare_fields else {
            return Some((&self.rates, Kept::PackedLevel(self.packed_levels.find_mut(hash, key)?)));
        };
        match rare_fields.custom_entries.find_mut(hash, |custom| custom.key == *key) {
            Some(CustomEntry { rates, entry_state, .. }) => Some((rates, Kept::CustomEntry(entry_state))),
            None => match self.packed_levels.find_mut(hash, key) {
                Some(packed) => Some((&self.rates, Kept::PackedLevel(packed))),
                None => Some((&self.rates, Kept::PackedPair(rare_fields.packed_pairs.find_mut(hash, key)?))),
            },
        }
    }
}

/// Where levels are stored.
enum Kept<'a> {
    PackedLevel(&'a mut [NonZeroU64; 1]),
    PackedPair(&'a mut [NonZeroU64; 2]),
    CustomEntry(&'a mut EntryState),
}

impl Kept<'_> {
    /// The levels at `now`, to which the shard has advanced; or the live core, which knows its own levels.
    fn levels(&self, rates: &Rates, now: u64) -> Result<Levels, &Arc<Core>> {
        match self {
            Self::PackedLevel(packed) => Ok(rates.unpack(packed, now)),
            Self::PackedPair(packed) => Ok(rates.unpack(packed, now)),
            Self::CustomEntry(entry_state) => entry_state.levels(rates, now),
        }
    }

    /// Stores `levels`. Returns false, with nothing changed, if they do not fit.
    fn store(&mut self, rates: &Rates, levels: &Levels) -> bool {
        match self {
            Self::PackedLevel(packed) => replace(*packed, rates.pack(levels)),
            Self::PackedPair(packed) => replace(*packed, rates.pack(levels)),
            Self::CustomEntry(entry_state) => {
                **entry_state = EntryState::of(rates, levels);
                true
            }
        }
    }
}

fn replace<T>(packed: &mut T, next: Option<T>) -> bool {
    next.map(|next| *packed = next).is_some()
}
