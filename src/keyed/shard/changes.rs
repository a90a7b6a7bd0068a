//! Changing quotas: the common quota, and that of one key.

use super::{Change, CustomEntry, Deferred, EntryRequest, EntryState, Level, Rate, Shard, ShardContext, Stop, span};
use crate::core::Core;
use crate::keyed::live::{self, Idle};
use std::num::NonZeroU64;
use std::sync::Arc;

/// A live entry that has to be given its new quota.
type StaleQuota = (Arc<Core>, Arc<Rate>);

impl<K: Clone + Eq> Shard<K> {
    /// Gives `key` the quota `own`, or with `None` the common one again. The tokens of the key stay. If the key has a
    /// live entry, returns it with its new quota, for the caller to apply after unlocking.
    pub(in crate::keyed) fn set_quota_for(
        &mut self,
        request: &EntryRequest<'_, K>,
        own: Option<Arc<Rate>>,
        context: &ShardContext<'_, K>,
        deferred: &mut Deferred<K>,
    ) -> Result<Option<StaleQuota>, Stop> {
        self.advance_to(request.now, context, deferred);
        let pinned = own.is_some();
        let rate = own.map_or_else(|| self.rate_for(request), Ok)?;
        self.rare_fields().quota_version += 1;
        self.narrow_window(&rate, context, deferred);
        // Read after the sweep that `narrow_window` may have made: a live entry may have reached a later time.
        let now = self.synced;
        // Called after that sweep too, because the sweep does not know of the change.
        context.key_limit.idle_now(context.number);
        if let Some((key, live)) = self.live_entries.remove(request.hash, request.key) {
            let entry_state = EntryState::Live(Arc::clone(&live));
            self.push_live(CustomEntry { key, hash: request.hash, rate: Arc::clone(&rate), entry_state, pinned });
            return Ok(Some((live, rate)));
        }
        if let Some(custom) =
            self.rare_fields().custom_entries.find_mut(request.hash, |custom| custom.key == *request.key)
        {
            custom.pinned = pinned;
            return Ok(custom.switch_to(Arc::clone(&rate), now).map(|live| (live, rate)));
        }
        if let Some((key, packed)) = self.packed_levels.remove(request.hash, request.key) {
            let (old, entry_state) = (Arc::clone(&self.rate), EntryState::PackedLevel(packed));
            let mut custom = CustomEntry { key, hash: request.hash, rate: old, entry_state, pinned };
            custom.switch_to(rate, now);
            self.push_custom(custom);
            return Ok(None);
        }
        if !pinned {
            return Ok(None);
        }
        let old = self.rate_for(request)?;
        let key = request.take_place(context.key_limit, deferred)?;
        let entry_state = EntryState::of(&old, Level { units: old.full(), at: now });
        let mut custom = CustomEntry { key, hash: request.hash, rate: old, entry_state, pinned };
        custom.switch_to(rate, now);
        self.push_custom(custom);
        Ok(None)
    }
}

impl<K> Shard<K> {
    /// Records that the common quota is `rate` from `now` on. Returns the live entries that have to be given it; all
    /// other keys stay as they are, to [catch up](Self::catch_up) later.
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
        // Calls that read a later time than the change, and locked the shard before it, have already advanced the
        // shard.
        self.synced = self.synced.max(now);
        self.forget_full_live_entries(context, deferred);
        let change = Change { rate, at: self.synced };
        // The fast path sees this, and leaves the rest to `advance_to`.
        self.calls_left = 0;
        let rare_fields = self.rare_fields();
        rare_fields.pending.push(change);
        (rare_fields.version, rare_fields.quota_version) = (version, rare_fields.quota_version + 1);
        let own =
            self.custom_live_entries().filter(|custom| !custom.pinned).filter_map(|custom| custom.entry_state.live());
        self.live_entries.iter().map(|(_, live)| live).chain(own).cloned().collect()
    }

    /// Forgets keys with a live entry that is full and not needed any more. Such a key is full under the next quota
    /// too, like a full key without a live entry.
    fn forget_full_live_entries(&mut self, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
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
        if rare_fields.custom_live > 0 {
            let mut gone = 0;
            let is_removed = |custom: &mut CustomEntry<K>| {
                let own = if custom.pinned { None } else { custom.entry_state.live() };
                own.is_some_and(|live| is_full(live, last.unwrap_or(&custom.rate)).is_some())
            };
            rare_fields.custom_entries.extract(is_removed, |custom| {
                gone += 1;
                deferred.keys.push(custom.key);
                deferred.live_entries.extend(custom.entry_state.into_live());
            });
            rare_fields.custom_live -= gone;
        }
        (self.synced, (self.granted, self.refunded)) = (synced, totals);
        context.key_limit.give_back(had - self.len());
    }

    /// Applies all pending common quotas to all keys, each from the instant at which it was set. Must be called before
    /// the shard advances to a later time. Live entries have been given the quotas already. If the `Hash` of a key
    /// panics, nothing has changed.
    #[inline]
    pub(in crate::keyed) fn catch_up(&mut self, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
        if self.rare_fields.as_ref().is_some_and(|rare_fields| !rare_fields.pending.is_empty()) {
            self.adopt_pending(context, deferred);
        }
    }

    /// [Catches up](Self::catch_up) if more than one quota is pending.
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
        // Packed levels cannot be read after the window, but a level that was read at its end can be advanced.
        let readable = first.at.min(self.swept.saturating_add(self.window));
        // User code first: hash the keys with a level that does not fit a packed level any more.
        let mut unfit = Vec::new();
        let outcome_of = |(key, packed): &(K, NonZeroU64)| {
            let level = Level { units: old.clip(old.of_packed(*packed, readable) as i128), at: readable };
            let Some(level) = advance_through(&old, level, &changes) else { return Outcome::Full };
            rate.packed(level).map_or_else(
                || {
                    unfit.push(((context.hash_of)(key), level));
                    Outcome::Unfit
                },
                Outcome::PackedLevel,
            )
        };
        let outcomes: Vec<Outcome> = self.packed_levels.iter().map(outcome_of).collect();
        for ((_, packed), outcome) in self.packed_levels.iter_mut().zip(&outcomes) {
            *packed = if let Outcome::PackedLevel(next) = outcome { *next } else { *packed };
        }
        let (mut remaining, mut leaving) = (outcomes.iter(), Vec::new());
        let is_removed = |_| matches!(remaining.next(), Some(Outcome::Full | Outcome::Unfit));
        self.packed_levels.extract(is_removed, |key, _| leaving.push(key));
        if let Some(rare_fields) = &mut self.rare_fields {
            let is_full = |custom: &mut CustomEntry<K>| custom.catch_up(readable, &changes);
            rare_fields.custom_entries.extract(is_full, |custom| deferred.keys.push(custom.key));
            rare_fields.pending = Vec::new();
        }
        let mut unfit = unfit.into_iter();
        let is_leaving = |outcome: &&Outcome| !matches!(outcome, Outcome::PackedLevel(_));
        for (key, outcome) in leaving.into_iter().zip(outcomes.iter().filter(is_leaving)) {
            match if matches!(outcome, Outcome::Unfit) { unfit.next() } else { None } {
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

/// The state of a packed level after its shard has caught up.
enum Outcome {
    PackedLevel(NonZeroU64),
    /// It does not fit a packed level any more.
    Unfit,
    /// It is forgotten.
    Full,
}

/// Advances a `level` of `rate` through all `changes`, to the instant of the last one. Returns `None` if it was full at
/// one of them: then it is equivalent to the level of a new key, and full under the new quota too.
fn advance_through(rate: &Rate, mut level: Level, changes: &[Change]) -> Option<Level> {
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
    /// Advances the entry to the last of `changes`; returns true if it can be forgotten. `readable` is the last instant
    /// at which its packed level can be read.
    fn catch_up(&mut self, readable: u64, changes: &[Change]) -> bool {
        let Some(last) = changes.last() else { return false };
        let level = self.entry_state.level_by(&self.rate, readable);
        let level = match level {
            // The entry keeps its own quota. Its packed level may have to be written anew to stay readable.
            Some(level) if self.pinned => Level { units: self.rate.advance(level, last.at), at: last.at },
            Some(level) => match advance_through(&self.rate, level, changes) {
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

    /// Switches to another quota, from the level at `now`. Returns the live core, if there is one, which has to be
    /// given the quota.
    fn switch_to(&mut self, rate: Arc<Rate>, now: u64) -> Option<Arc<Core>> {
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
