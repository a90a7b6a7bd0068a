//! Changing quotas: the common quotas, and those of one key.

use super::{Change, RareFields};
use super::{CustomEntry, DeferredDrops, EntryRequest, EntryState, Levels, Rates, Shard, ShardContext, Stop, span};
use crate::core::Core;
use crate::keyed::live::{self, Idle};
use crate::keyed::packed_levels::PackedTable;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A live entry that has to be given its new quotas.
type StaleQuotas = (Arc<Core>, Arc<Rates>);

/// Which quotas a key gets.
#[derive(Clone, Debug)]
pub(in crate::keyed) enum Assigned {
    /// Quotas of its own, which it keeps until it is reset.
    Own(Arc<Rates>),
    /// Those that a new key would have.
    AsNew,
    /// Those that a new key would have, unless it has quotas of its own or is not stored.
    AsNewUnlessOwn,
}

impl<K: Clone + Eq> Shard<K> {
    /// Gives `key` the `assigned` quotas. The tokens of the key stay. If the key has a live entry, returns it with its
    /// new quotas, for the caller to apply after unlocking.
    pub(in crate::keyed) fn set_quotas_for(
        &mut self,
        request: &EntryRequest<'_, K>,
        assigned: &Assigned,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Result<Option<StaleQuotas>, Stop> {
        self.advance_to(request.now, context, deferred);
        let (rates, pinned) = match assigned {
            Assigned::Own(own) => (Arc::clone(own), true),
            Assigned::AsNew => (self.rates_for(request)?, false),
            Assigned::AsNewUnlessOwn => match self.renewed(request)? {
                Some(rates) => (rates, false),
                None => return Ok(None),
            },
        };
        self.rare_fields().quota_version += 1;
        self.narrow_window(&rates, context, deferred);
        // Read after the sweep that `narrow_window` may have made: a live entry may have reached a later time.
        let now = self.synced;
        // Called after that sweep too, because the sweep does not know of the change.
        context.key_limit.idle_now(context.number);
        if let Some((key, live)) = self.live_entries.remove(request.hash, request.key) {
            let entry_state = EntryState::Live(Arc::clone(&live));
            self.push_live(CustomEntry { key, hash: request.hash, rates: Arc::clone(&rates), entry_state, pinned });
            return Ok(Some((live, rates)));
        }
        if let Some(custom) =
            self.rare_fields().custom_entries.find_mut(request.hash, |custom| custom.key == *request.key)
        {
            custom.pinned = pinned;
            return Ok(custom.switch_to(Arc::clone(&rates), now).map(|live| (live, rates)));
        }
        if let Some((key, levels)) = self.remove_packed(request, now) {
            let entry_state = EntryState::of(&rates, &rates.adopt(&self.rates, &levels));
            self.push_custom(CustomEntry { key, hash: request.hash, rates, entry_state, pinned });
            return Ok(None);
        }
        if !pinned {
            return Ok(None);
        }
        let old = self.rates_for(request)?;
        let key = request.take_place(context.key_limit, deferred)?;
        let entry_state = EntryState::of(&rates, &rates.adopt(&old, &old.full(now)));
        self.push_custom(CustomEntry { key, hash: request.hash, rates, entry_state, pinned });
        Ok(None)
    }

    /// The keys that have their quotas from `quota_by`.
    pub(in crate::keyed) fn keys_by_quota_by(&self) -> Vec<K> {
        let keys = self.custom_entries().filter(|custom| self.by_key && !custom.pinned);
        keys.map(|custom| custom.key.clone()).collect()
    }

    /// The quotas that `quota_by` now has for a stored key without quotas of its own, if they are not those that the key
    /// has.
    fn renewed(&self, request: &EntryRequest<'_, K>) -> Result<Option<Arc<Rates>>, Stop> {
        // While the quotas come from `quota_by`, every key is a custom entry.
        let rare_fields = self.rare_fields.as_ref().filter(|_| self.by_key);
        let custom = rare_fields
            .and_then(|rare_fields| rare_fields.custom_entries.find(request.hash, |custom| custom.key == *request.key));
        let Some(custom) = custom.filter(|custom| !custom.pinned) else { return Ok(None) };
        let rates = self.rates_for(request)?;
        Ok(Some(rates).filter(|rates| rates.quotas != custom.rates.quotas))
    }
}

impl<K> Shard<K> {
    /// Records that the common quotas are `rates` from `now` on. Returns the live entries that have to be given it; all
    /// other keys stay as they are, to [catch up](Self::catch_up) later.
    pub(in crate::keyed) fn set_quotas(
        &mut self,
        rates: Arc<Rates>,
        version: u32,
        now: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Vec<Arc<Core>> {
        if version <= self.rare_fields().version {
            return Vec::new();
        }
        // Calls that read a later time than the change, and locked the shard before it, have already advanced the
        // shard.
        self.synced = self.synced.max(now);
        self.forget_full_live_entries(context, deferred);
        let change = Change { rates, at: self.synced };
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
    fn forget_full_live_entries(&mut self, context: &ShardContext<'_, K>, deferred: &mut DeferredDrops<K>) {
        let had = self.len();
        let Some(rare_fields) = &mut self.rare_fields else { return };
        let last = rare_fields.pending.last().map(|change| &*change.rates);
        let (mut synced, mut totals) = (self.synced, (self.granted, self.refunded));
        let mut is_full = |live: &Arc<Core>, rates: &Rates| {
            let idle = live::look_at_idle(live, rates, synced).filter(|idle| rates.is_full_or_above(&idle.levels));
            idle.map(|Idle { levels, granted, refunded }| {
                totals = (totals.0.wrapping_add(granted), totals.1.wrapping_add(refunded));
                synced = synced.max(levels.at);
            })
        };
        let common = last.unwrap_or(&self.rates);
        for ((key, live), ()) in self.live_entries.extract(|live| is_full(live, common)) {
            deferred.keys.push(key);
            deferred.live_entries.push(live);
        }
        if rare_fields.custom_live > 0 {
            let mut gone = 0;
            let is_removed = |custom: &mut CustomEntry<K>| {
                let own = if custom.pinned { None } else { custom.entry_state.live() };
                own.is_some_and(|live| is_full(live, last.unwrap_or(&custom.rates)).is_some())
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

    /// Applies all pending changes to all keys, each from the instant at which it was set. Must be called before
    /// the shard advances to a later time. Live entries have been given the quotas already. If the `Hash` of a key
    /// panics, nothing has changed.
    #[inline]
    pub(in crate::keyed) fn catch_up(&mut self, context: &ShardContext<'_, K>, deferred: &mut DeferredDrops<K>) {
        if self.rare_fields.as_ref().is_some_and(|rare_fields| !rare_fields.pending.is_empty()) {
            self.adopt_pending(context, deferred);
        }
    }

    /// [Catches up](Self::catch_up) if more than one change is pending.
    pub(in crate::keyed) fn catch_up_if_behind(
        &mut self,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) {
        if self.rare_fields.as_ref().is_some_and(|rare_fields| rare_fields.pending.len() > 1) {
            self.adopt_pending(context, deferred);
        }
    }

    #[cold]
    fn adopt_pending(&mut self, context: &ShardContext<'_, K>, deferred: &mut DeferredDrops<K>) {
        let Some(changes) = self.rare_fields.as_ref().map(|rare_fields| rare_fields.pending.clone()) else { return };
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return };
        let (had, old, rates) = (self.len(), Arc::clone(&self.rates), &last.rates);
        // Packed levels cannot be read after the window, but levels that were read at its end can be advanced.
        let readable = first.at.min(self.swept.saturating_add(self.window));
        let history = History { old: &old, readable, changes: &changes };
        // User code first: hash the keys that leave their table.
        let of_levels = TableChange::of(&self.packed_levels, &history, context.hash_of);
        let rare_fields = self.rare_fields.as_deref();
        let of_pairs =
            rare_fields.map(|RareFields { packed_pairs, .. }| TableChange::of(packed_pairs, &history, context.hash_of));
        let mut moved = of_levels.apply(&mut self.packed_levels, &mut deferred.keys);
        if let Some((rare_fields, of_pairs)) = self.rare_fields.as_deref_mut().zip(of_pairs) {
            moved.extend(of_pairs.apply(&mut rare_fields.packed_pairs, &mut deferred.keys));
            let is_full = |custom: &mut CustomEntry<K>| custom.catch_up(readable, &changes);
            rare_fields.custom_entries.extract(is_full, |custom| deferred.keys.push(custom.key));
            rare_fields.pending = Vec::new();
        }
        self.swept = last.at;
        self.window = self.custom_entries().map(|custom| span(&custom.rates)).fold(span(rates), u64::min);
        (self.rates, self.by_key) = (Arc::clone(rates), false);
        // The number of quotas may have changed, and then all keys move to the other table.
        match rates.len() {
            1 => self.packed_levels.make_space_in_empty(moved.len()),
            2 => self.rare_fields().packed_pairs.make_space_in_empty(moved.len()),
            _ => {}
        }
        for (key, hash, levels) in moved {
            self.insert_levels(key, hash, &levels);
        }
        context.key_limit.give_back(had - self.len());
    }
}

/// The changes of the common quotas that a table has to catch up with.
struct History<'a> {
    old: &'a Rates,
    /// The last instant at which packed levels of the old quotas can be read.
    readable: u64,
    /// Oldest first.
    changes: &'a [Change],
}

/// What becomes of packed levels once their shard has caught up.
enum LevelChange<const N: usize> {
    Packed([NonZeroU64; N]),
    /// They do not fit into their table any more.
    Moved,
    /// The key is forgotten.
    Full,
}

/// What becomes of the packed levels of a table.
struct TableChange<const N: usize> {
    /// In the order of the entries.
    levels: Vec<LevelChange<N>>,
    /// The hash and the levels of each key that moves, in the same order.
    moved: Vec<(u64, Levels)>,
}

impl<const N: usize> TableChange<N> {
    fn of<K, A>(table: &PackedTable<K, N, A>, history: &History<'_>, hash_of: &dyn Fn(&K) -> u64) -> Self {
        let History { old, readable, changes } = *history;
        let mut moved = Vec::new();
        let rates = changes.last().map_or(old, |last| &last.rates);
        let change_of = |(key, packed): &(K, [NonZeroU64; N])| {
            let Some(levels) = advance_through(old, old.unpack(packed, readable), changes) else {
                return LevelChange::Full;
            };
            rates.pack(&levels).map_or_else(
                || {
                    moved.push((hash_of(key), levels));
                    LevelChange::Moved
                },
                LevelChange::Packed,
            )
        };
        let levels = table.iter().map(change_of).collect();
        Self { levels, moved }
    }

    /// Changes the table. Returns the keys that leave it and still owe tokens; those that do not are added to `gone`.
    fn apply<K, A>(self, table: &mut PackedTable<K, N, A>, gone: &mut Vec<K>) -> Vec<(K, u64, Levels)> {
        for ((_, packed), change) in table.iter_mut().zip(&self.levels) {
            *packed = if let LevelChange::Packed(next) = change { *next } else { *packed };
        }
        let (mut remaining, mut leaving) = (self.levels.iter(), Vec::new());
        let is_removed =
            |_: &mut [NonZeroU64; N]| matches!(remaining.next(), Some(LevelChange::Full | LevelChange::Moved));
        table.extract(is_removed, |key| leaving.push(key));
        let is_leaving = |change: &&LevelChange<N>| !matches!(change, LevelChange::Packed(_));
        let (mut levels_of_moved, mut moved) = (self.moved.into_iter(), Vec::new());
        for (key, change) in leaving.into_iter().zip(self.levels.iter().filter(is_leaving)) {
            match if matches!(change, LevelChange::Moved) { levels_of_moved.next() } else { None } {
                Some((hash, levels)) => moved.push((key, hash, levels)),
                None => gone.push(key),
            }
        }
        moved
    }
}

/// Advances `levels` of `rates` through all `changes`, to the instant of the last one. Returns `None` if they were full
/// at one of them: then they are equivalent to the levels of a new key, and full under the new quotas too.
fn advance_through(rates: &Rates, mut levels: Levels, changes: &[Change]) -> Option<Levels> {
    let mut rates = rates;
    for change in changes {
        let now = rates.advance(&levels, change.at);
        if rates.is_full_or_above(&now) {
            return None;
        }
        levels = change.rates.adopt(rates, &now);
        rates = &change.rates;
    }
    Some(levels)
}

impl<K> CustomEntry<K> {
    /// Advances the entry to the last of `changes`; returns true if it can be forgotten. `readable` is the last instant
    /// at which its packed levels can be read.
    fn catch_up(&mut self, readable: u64, changes: &[Change]) -> bool {
        let Some(last) = changes.last() else { return false };
        let levels = match self.entry_state.levels_by(&self.rates, readable) {
            // The entry keeps its own quotas. Its packed levels may have to be written anew to stay readable.
            Some(levels) if self.pinned => self.rates.advance(&levels, last.at),
            Some(levels) => match advance_through(&self.rates, levels, changes) {
                Some(levels) => levels,
                None => return true,
            },
            None => {
                self.rates = if self.pinned { Arc::clone(&self.rates) } else { Arc::clone(&last.rates) };
                return false;
            }
        };
        if !self.pinned {
            self.rates = Arc::clone(&last.rates);
        }
        self.entry_state = EntryState::of(&self.rates, &levels);
        false
    }

    /// Switches to other quotas, from the levels at `now`. Returns the live core, if there is one, which has to be
    /// given the quotas.
    fn switch_to(&mut self, rates: Arc<Rates>, now: u64) -> Option<Arc<Core>> {
        let old = std::mem::replace(&mut self.rates, rates);
        let levels = match self.entry_state.levels(&old, now) {
            Ok(levels) => levels,
            Err(live) => return Some(Arc::clone(live)),
        };
        self.entry_state = EntryState::of(&self.rates, &self.rates.adopt(&old, &levels));
        None
    }
}
