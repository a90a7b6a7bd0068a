//! Changing quotas: of all keys, and of one.

use super::{Change, CustomEntry, Deferred, EntryRequest, EntryState, Level, Rate, Shard, ShardContext, Stop, span};
use crate::core::Core;
use crate::keyed::live::{self, Idle};
use std::num::NonZeroU64;
use std::sync::Arc;

/// A seat that has to be told of its new quota.
type Untold = (Arc<Core>, Arc<Rate>);

impl<K: Clone + Eq> Shard<K> {
    /// Gives `key` the quota `own`, or with `None` the common one again. What it holds stays. A seat that has to be told is
    /// returned, with its quota.
    pub(in crate::keyed) fn set_quota_for(
        &mut self,
        ask: &EntryRequest<'_, K>,
        own: Option<Arc<Rate>>,
        context: &ShardContext<'_, K>,
        deferred: &mut Deferred<K>,
    ) -> Result<Option<Untold>, Stop> {
        self.come_to(ask.now, context, deferred);
        let pinned = own.is_some();
        let rate = own.map_or_else(|| self.rate_for(ask), Ok)?;
        self.rare_fields().quota_version += 1;
        self.expect(&rate, context, deferred);
        // What the sweep has come to that this may have made: a seat may have seen a later time.
        let now = self.synced;
        // After the sweep that this may have made, which does not know of the change.
        context.key_limit.idle_now(context.number);
        if let Some((key, live)) = self.live_entries.remove(ask.hash, ask.key) {
            let entry_state = EntryState::Live(Arc::clone(&live));
            self.push_live(CustomEntry { key, hash: ask.hash, rate: Arc::clone(&rate), entry_state, pinned });
            return Ok(Some((live, rate)));
        }
        if let Some(custom) = self.rare_fields().custom_entries.find_mut(ask.hash, |custom| custom.key == *ask.key) {
            custom.pinned = pinned;
            return Ok(custom.go_on_as(Arc::clone(&rate), now).map(|live| (live, rate)));
        }
        if let Some((key, packed)) = self.packed_levels.remove(ask.hash, ask.key) {
            let (old, entry_state) = (Arc::clone(&self.rate), EntryState::PackedLevel(packed));
            let mut custom = CustomEntry { key, hash: ask.hash, rate: old, entry_state, pinned };
            custom.go_on_as(rate, now);
            self.push_custom(custom);
            return Ok(None);
        }
        if !pinned {
            return Ok(None);
        }
        let old = self.rate_for(ask)?;
        let key = ask.take_place(context.key_limit, deferred)?;
        let entry_state = EntryState::of(&old, Level { units: old.full(), at: now });
        let mut custom = CustomEntry { key, hash: ask.hash, rate: old, entry_state, pinned };
        custom.go_on_as(rate, now);
        self.push_custom(custom);
        Ok(None)
    }
}

impl<K> Shard<K> {
    /// Notes that everybody without a quota of their own has this one from `now` on. The seats that have to be told are
    /// returned; all other keys are left as they are, to [catch up](Self::catch_up) later.
    pub(in crate::keyed) fn set_quota(
        &mut self,
        rate: Arc<Rate>,
        version: u32,
        now: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut Deferred<K>,
    ) -> Vec<Arc<Core>> {
        if version <= self.rare_fields().version {
            return Vec::new();
        }
        // Calls that read the time later than the change, and came to the lock before it, have moved the room on.
        self.synced = self.synced.max(now);
        self.forget_full_seats(context, deferred);
        let change = Change { rate, at: self.synced };
        // The quick calls see this, and leave the rest to `come_to`.
        self.calls_left = 0;
        let rare_fields = self.rare_fields();
        rare_fields.pending.push(change);
        (rare_fields.version, rare_fields.quota_version) = (version, rare_fields.quota_version + 1);
        let own = self.live_entry().filter(|custom| !custom.pinned).filter_map(|custom| custom.entry_state.live());
        self.live_entries.iter().map(|(_, live)| live).chain(own).cloned().collect()
    }

    /// Forgets keys that owe nothing and have a seat that nobody needs: by the next quota they are full too, as those without a
    /// seat are.
    fn forget_full_seats(&mut self, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
        let had = self.len();
        let Some(rare_fields) = &mut self.rare_fields else { return };
        let last = rare_fields.pending.last().map(|change| &*change.rate);
        let (mut synced, mut totals) = (self.synced, (self.granted, self.refunded));
        let mut is_full = |live: &Arc<Core>, rate: &Rate| {
            let idle = live::look_at_idle(live, rate, synced).filter(|idle| idle.level.units >= rate.full());
            idle.map(|Idle { level, granted, refunded }| {
                totals = (totals.0.wrapping_add(granted), totals.1.wrapping_add(refunded));
                synced = synced.max(level.at);
            })
        };
        let common = last.unwrap_or(&self.rate);
        for ((key, live), ()) in self.live_entries.extract(|live| is_full(live, common)) {
            deferred.keys.push(key);
            deferred.live_entries.push(live);
        }
        if rare_fields.live_entry > 0 {
            let mut gone = 0;
            let leaves = |custom: &mut CustomEntry<K>| {
                let own = if custom.pinned { None } else { custom.entry_state.live() };
                own.is_some_and(|live| is_full(live, last.unwrap_or(&custom.rate)).is_some())
            };
            rare_fields.custom_entries.extract(leaves, |custom| {
                gone += 1;
                deferred.keys.push(custom.key);
                deferred.live_entries.extend(custom.entry_state.into_live());
            });
            rare_fields.live_entry -= gone;
        }
        (self.synced, (self.granted, self.refunded)) = (synced, totals);
        context.key_limit.give_back(had - self.len());
    }

    /// Brings all keys to the quotas that were set for all, each from the instant at which it was set: to be called before the
    /// room comes to a later time. Seats have been told already. If the `Hash` of a key panics, nothing has changed.
    #[inline]
    pub(in crate::keyed) fn catch_up(&mut self, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
        if self.rare_fields.as_ref().is_some_and(|rare_fields| !rare_fields.pending.is_empty()) {
            self.adopt_pending(context, deferred);
        }
    }

    /// The same if more than one quota is waiting for it.
    pub(in crate::keyed) fn catch_up_if_behind(&mut self, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
        if self.rare_fields.as_ref().is_some_and(|rare_fields| rare_fields.pending.len() > 1) {
            self.adopt_pending(context, deferred);
        }
    }

    #[cold]
    fn adopt_pending(&mut self, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
        let Some(changes) = self.rare_fields.as_ref().map(|rare_fields| rare_fields.pending.clone()) else { return };
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return };
        let (had, old, rate) = (self.len(), Arc::clone(&self.rate), &last.rate);
        // Beyond the window words cannot be read, but the levels at its end can be led on.
        let readable = first.at.min(self.swept.saturating_add(self.window));
        // User code first: the hashes of those whose level does not fit into a word any more.
        let mut unfit = Vec::new();
        let become_of = |(key, packed): &(K, NonZeroU64)| {
            let level = Level { units: old.clip(old.of_packed(*packed, readable) as i128), at: readable };
            let Some(level) = lead(&old, level, &changes) else { return Became::Full };
            rate.packed(level).map_or_else(
                || {
                    unfit.push(((context.hash_of)(key), level));
                    Became::Unfit
                },
                Became::PackedLevel,
            )
        };
        let became: Vec<Became> = self.packed_levels.iter().map(become_of).collect();
        for ((_, packed), became) in self.packed_levels.iter_mut().zip(&became) {
            *packed = if let Became::PackedLevel(next) = became { *next } else { *packed };
        }
        let (mut of_packed, mut leaving) = (became.iter(), Vec::new());
        let leaves = |_| matches!(of_packed.next(), Some(Became::Full | Became::Unfit));
        self.packed_levels.extract(leaves, |key, _| leaving.push(key));
        if let Some(rare_fields) = &mut self.rare_fields {
            let is_full = |custom: &mut CustomEntry<K>| custom.catch_up(readable, &changes);
            rare_fields.custom_entries.extract(is_full, |custom| deferred.keys.push(custom.key));
            rare_fields.pending = Vec::new();
        }
        let mut unfit = unfit.into_iter();
        let is_leaving = |became: &&Became| !matches!(became, Became::PackedLevel(_));
        for (key, became) in leaving.into_iter().zip(became.iter().filter(is_leaving)) {
            match if matches!(became, Became::Unfit) { unfit.next() } else { None } {
                Some((hash, level)) => {
                    let entry_state = EntryState::of(rate, level);
                    self.push_custom(CustomEntry { key, hash, rate: Arc::clone(rate), entry_state, pinned: false });
                }
                None => deferred.keys.push(key),
            }
        }
        self.swept = last.at;
        self.window = self.custom_entries().map(|custom| span(&custom.rate)).fold(span(rate), u64::min);
        (self.rate, self.by_key) = (Arc::clone(rate), false);
        context.key_limit.give_back(had - self.len());
    }
}

/// What becomes of a word when its room catches up.
enum Became {
    PackedLevel(NonZeroU64),
    /// It does not fit into a word any more.
    Unfit,
    /// It is forgotten.
    Full,
}

/// What a `level` of `rate` has become at the last of `changes`. `None` if it was full at one of them: then it is as good as
/// a newcomer's, and full by the new quota too.
fn lead(rate: &Rate, mut level: Level, changes: &[Change]) -> Option<Level> {
    let mut rate = rate;
    for change in changes {
        let units = rate.advance(level, change.at);
        if units >= rate.full() {
            return None;
        }
        level = Level { units: change.rate.adopt(rate, units), at: change.at };
        rate = &change.rate;
    }
    Some(level)
}

impl<K> CustomEntry<K> {
    /// Brings it to the last of `changes`; true if it can be forgotten. Its word can be read until `readable`.
    fn catch_up(&mut self, readable: u64, changes: &[Change]) -> bool {
        let Some(last) = changes.last() else { return false };
        let level = self.entry_state.level_by(&self.rate, readable);
        let level = match level {
            // Of another quota, and so not changed; but its word may have to be written anew to be read from now on.
            Some(level) if self.pinned => Level { units: self.rate.advance(level, last.at), at: last.at },
            Some(level) => match lead(&self.rate, level, changes) {
                Some(level) => level,
                None => return true,
            },
            None => {
                self.rate = if self.pinned { Arc::clone(&self.rate) } else { Arc::clone(&last.rate) };
                return false;
            }
        };
        if !self.pinned {
            self.rate = Arc::clone(&last.rate);
        }
        self.entry_state = EntryState::of(&self.rate, level);
        false
    }

    /// Goes on by another quota, from what it holds at `now`. A seat that has to be told is returned.
    fn go_on_as(&mut self, rate: Arc<Rate>, now: u64) -> Option<Arc<Core>> {
        let old = std::mem::replace(&mut self.rate, rate);
        let units = match &self.entry_state {
            EntryState::Live(live) => return Some(Arc::clone(live)),
            EntryState::PackedLevel(packed) => old.clip(old.of_packed(*packed, now) as i128),
            EntryState::Wide(level) => old.advance(**level, now),
        };
        self.entry_state = EntryState::of(&self.rate, Level { units: self.rate.adopt(&old, units), at: now });
        None
    }
}
