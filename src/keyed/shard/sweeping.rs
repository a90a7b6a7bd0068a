//! Sweeping: forgetting full keys, and retiring live entries that are not needed any more.
//!
//! A packed level must not be read later than `window` after the last sweep (see [`Rates::window`]). Everything in this
//! file therefore leaves `swept` and `window` such that every packed level can be read from now on.

use super::{CustomEntry, DeferredDrops, EntryState, Levels, NEXT_LOOK, Rates, SMALL, Shard, ShardContext, live, span};
use crate::core::Core;
use crate::keyed::live::Idle;
use crate::keyed::live_entries::hash_of;
use crate::keyed::packed_levels::PackedTable;
use crate::keyed::rate::Level;
use std::num::NonZeroU64;
use std::sync::Arc;

impl<K> Shard<K> {
    /// [Sweeps](Self::sweep) at `now`.
    pub(in crate::keyed) fn sweep_at(
        &mut self,
        now: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) {
        self.catch_up(context, deferred);
        self.synced = self.synced.max(now);
        self.sweep(context, deferred);
    }

    /// Forgets the keys that are full and retires the live entries that are not needed any more.
    pub(in crate::keyed) fn sweep(&mut self, context: &ShardContext<'_, K>, deferred: &mut DeferredDrops<K>) {
        let had = self.len();
        context.key_limit.begin_sweep(context.number);
        let retired = self.retire_idle_entries(deferred);
        // Packed levels cannot be read after the window, but levels that were read at its end can be advanced.
        let readable = self.synced.min(self.swept.saturating_add(self.window));
        let (synced, rates) = (self.synced, &self.rates);
        let mut sweep = Sweep { rates, readable, synced, next: u64::MAX, gone: &mut deferred.keys };
        sweep.packed_levels(&mut self.packed_levels);
        if let Some(rare_fields) = &mut self.rare_fields {
            sweep.packed_pairs(&mut rare_fields.packed_pairs, context.key_limit.most().is_some());
        }
        let mut next = sweep.next;
        let mut window = span(rates);
        let is_full = |custom: &mut CustomEntry<K>| {
            let rates = &custom.rates;
            if let Some(levels) = custom.entry_state.levels_by(rates, readable) {
                let levels = rates.advance(&levels, synced);
                if rates.is_full(&levels) && !custom.pinned {
                    return true;
                }
                next = if custom.pinned { next } else { next.min(rates.full_at(&levels)) };
                custom.entry_state = EntryState::of(rates, &levels);
            }
            window = window.min(span(rates));
            false
        };
        if let Some(rare_fields) = &mut self.rare_fields {
            rare_fields.custom_entries.extract(is_full, |custom| deferred.keys.push(custom.key));
        }
        (self.swept, self.window) = (synced, window);
        for (key, hash, levels) in retired {
            let levels = self.rates.advance(&levels, synced);
            if self.rates.is_full(&levels) {
                deferred.keys.push(key);
            } else {
                next = next.min(self.rates.full_at(&levels));
                self.insert_levels(key, hash, &levels);
            }
        }
        if let Some(rare_fields) = self.rare_fields.as_mut().filter(|rare_fields| rare_fields.has_handles) {
            rare_fields.has_handles = self.live_entries.len() + rare_fields.custom_live > 0;
            next = if rare_fields.has_handles { next.min(synced.saturating_add(NEXT_LOOK)) } else { next };
        }
        let calls = 4 * self.slots().max(SMALL);
        self.calls_left = u32::try_from(calls).unwrap_or(u32::MAX);
        context.key_limit.end_sweep(context.number, had - self.len(), next);
    }

    /// Turns the live entries that are not needed any more into levels. Those under the common quotas are returned, with
    /// the hashes of their keys: the window may be over, so the caller stores them once packed levels can be read
    /// again.
    fn retire_idle_entries(&mut self, deferred: &mut DeferredDrops<K>) -> Vec<(K, u64, Levels)> {
        let (mut synced, mut totals) = (self.synced, (self.granted, self.refunded));
        // A live entry may have reached a later time.
        let mut look = |live: &Arc<Core>, rates: &Rates| {
            let Idle { levels, granted, refunded } = live::look_at_idle(live, rates, synced)?;
            totals = (totals.0.wrapping_add(granted), totals.1.wrapping_add(refunded));
            synced = synced.max(levels.at);
            Some(levels)
        };
        let retired = self.live_entries.extract(|live| look(live, &self.rates));
        let mut given_up = 0;
        let rare_fields = self.rare_fields.iter_mut().filter(|rare_fields| rare_fields.custom_live > 0);
        for custom in rare_fields.flat_map(|rare_fields| rare_fields.custom_entries.iter_mut()) {
            let Some(levels) = custom.entry_state.live().and_then(|live| look(live, &custom.rates)) else { continue };
            let live = std::mem::replace(&mut custom.entry_state, EntryState::Wide(Box::new(levels)));
            deferred.live_entries.extend(live.into_live());
            given_up += 1;
        }
        if let Some(rare_fields) = &mut self.rare_fields {
            rare_fields.custom_live -= given_up;
        }
        (self.synced, (self.granted, self.refunded)) = (synced, totals);
        let keep = |((key, live), levels): ((K, Arc<Core>), Levels)| {
            let hash = hash_of(&live);
            deferred.live_entries.push(live);
            (key, hash, levels)
        };
        retired.into_iter().map(keep).collect()
    }

    /// Frees the memory of a past burst of keys.
    pub(super) fn shrink(&mut self, context: &ShardContext<'_, K>) {
        self.packed_levels.shrink(SMALL, context.hash_of);
        self.live_entries.shrink(SMALL);
        if let Some(rare_fields) = &mut self.rare_fields {
            rare_fields.packed_pairs.shrink(SMALL, context.hash_of);
            rare_fields.custom_entries.shrink(SMALL, |custom| custom.hash);
        }
    }

    /// Retires the live entry at this address if it is not needed any more. Returns true if it is not in the shard any
    /// more. Runs no user code except that of [`catch_up`](Self::catch_up).
    pub(in crate::keyed) fn retire(
        &mut self,
        hash: u64,
        live: *const Core,
        now: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> bool {
        self.catch_up(context, deferred);
        self.synced = self.synced.max(now);
        let Some(custom) = self.take_live(hash, live) else { return true };
        let look = |live: &Arc<Core>| live::look_at_idle(live, &custom.rates, self.synced);
        let Some(Idle { levels, granted, refunded }) = custom.entry_state.live().and_then(look) else {
            self.push_live(custom);
            return false;
        };
        self.synced = self.synced.max(levels.at);
        if self.synced - self.swept > self.window {
            // There was no call for so long that no packed level can be read: the sweep retires this live entry with
            // all others.
            self.push_live(custom);
            self.sweep(context, deferred);
            return true;
        }
        self.granted = self.granted.wrapping_add(granted);
        self.refunded = self.refunded.wrapping_add(refunded);
        let CustomEntry { key, hash, rates, entry_state, pinned } = custom;
        deferred.live_entries.extend(entry_state.into_live());
        if !pinned && rates.is_full(&levels) {
            deferred.keys.push(key);
            context.key_limit.give_back(1);
            return true;
        }
        context.key_limit.idle_no_later_than(context.number, || Some(rates.full_at(&levels)));
        if !pinned && self.is_common(&rates) {
            self.insert_levels(key, hash, &levels);
        } else {
            let entry_state = EntryState::of(&rates, &levels);
            self.push_custom(CustomEntry { key, hash, rates, entry_state, pinned });
        }
        true
    }

    /// Removes the entry of exactly this live core, compared by address.
    fn take_live(&mut self, hash: u64, live: *const Core) -> Option<CustomEntry<K>> {
        if let Some(index) = self.live_entries.index_of(hash, live) {
            let (key, live) = self.live_entries.take(index)?;
            return Some(CustomEntry {
                key,
                hash,
                rates: Arc::clone(&self.rates),
                entry_state: EntryState::Live(live),
                pinned: false,
            });
        }
        let is_it = |custom: &CustomEntry<K>| custom.entry_state.live().is_some_and(|it| Arc::as_ptr(it) == live);
        let rare_fields = self.rare_fields.as_mut()?;
        let index = rare_fields.custom_entries.index_of(hash, is_it)?;
        rare_fields.take(index)
    }
}

/// A sweep over the tables of packed levels.
struct Sweep<'a, K> {
    rates: &'a Rates,
    /// The last instant at which packed levels can be read.
    readable: u64,
    synced: u64,
    /// The earliest instant at which a key that stays is full.
    next: u64,
    /// The keys that left.
    gone: &'a mut Vec<K>,
}

impl<K> Sweep<'_, K> {
    fn packed_levels<A>(&mut self, table: &mut PackedTable<K, 1, A>) {
        let rate = self.rates.first();
        let mut fullest: Option<Level> = None;
        let is_full = |packed: &mut [NonZeroU64; 1]| {
            let level = Level { units: rate.clip(rate.of_packed(packed[0], self.readable) as i128), at: self.readable };
            let units = rate.advance(level, self.synced);
            let is_full = rate.is_full(units);
            if !is_full && fullest.is_none_or(|fullest| units > fullest.units) {
                fullest = Some(Level { units, at: self.synced });
            }
            is_full
        };
        table.extract(is_full, |key| self.gone.push(key));
        if let Some(level) = fullest {
            let at = rate.reached(level, rate.burst()).unwrap_or(u64::MAX);
            self.next = self.next.min(at.max(self.synced.saturating_add(1)));
        }
    }

    /// `has_bound`: whether `next` is needed.
    fn packed_pairs<A>(&mut self, table: &mut PackedTable<K, 2, A>, has_bound: bool) {
        let rates = self.rates;
        let is_full = |packed: &mut [NonZeroU64; 2]| {
            let levels = rates.advance(&rates.unpack(packed, self.readable), self.synced);
            if rates.is_full(&levels) {
                return true;
            }
            // A level that stays full while the other is not full would leave its window.
            rates.refresh_full(packed, &levels);
            if has_bound {
                self.next = self.next.min(rates.full_at(&levels));
            }
            false
        };
        table.extract(is_full, |key| self.gone.push(key));
    }
}
