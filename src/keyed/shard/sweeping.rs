//! Sweeping: forgetting full keys, and retiring live entries that are not needed any more.
//!
//! A packed level must not be read later than `window` after the last sweep (see [`Rate::window`]). Everything in this
//! file therefore leaves `swept` and `window` such that every packed level can be read from now on.

use super::{CustomEntry, Deferred, EntryState, Level, Rate, SMALL, Shard, ShardContext, live, span};
use crate::core::Core;
use crate::keyed::live::Idle;
use crate::keyed::live_entries::hash_of;
use std::num::NonZeroU64;
use std::sync::Arc;

impl<K> Shard<K> {
    /// [Sweeps](Self::sweep) at `now`.
    pub(in crate::keyed) fn sweep_at(&mut self, now: u64, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
        self.catch_up(context, deferred);
        self.synced = self.synced.max(now);
        self.sweep(context, deferred);
    }

    /// Forgets the keys that are full and retires the live entries that are not needed any more.
    pub(in crate::keyed) fn sweep(&mut self, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
        let had = self.len();
        context.key_limit.begin_sweep(context.number);
        // Packed levels cannot be read after the window, but a level that was read at its end can be advanced.
        let readable = self.synced.min(self.swept.saturating_add(self.window));
        let retired = self.retire_idle_entries(deferred);
        let (synced, rate) = (self.synced, &self.rate);
        let read = |rate: &Rate, packed: NonZeroU64| {
            let level = Level { units: rate.clip(rate.of_packed(packed, readable) as i128), at: readable };
            rate.advance(level, synced)
        };
        let mut fullest = None;
        let is_full = |packed| {
            let units = read(rate, packed);
            let is_full = rate.is_full(units);
            fullest = if is_full { fullest } else { fullest.max(Some(units)) };
            is_full
        };
        self.packed_levels.extract(is_full, |key, _| deferred.keys.push(key));
        // The instant at which the level is full. For a level that is full but for a fraction of a token on top: the
        // next instant.
        let full_at = |rate: &Rate, units| {
            let at = rate.reached(Level { units, at: synced }, rate.burst()).unwrap_or(u64::MAX);
            at.max(synced.saturating_add(1))
        };
        let mut next = fullest.map_or(u64::MAX, |units| full_at(rate, units));
        let mut window = span(rate);
        let is_full = |custom: &mut CustomEntry<K>| {
            let rate = &custom.rate;
            let units = match &custom.entry_state {
                EntryState::Live(_) => None,
                EntryState::PackedLevel(packed) => Some(read(rate, *packed)),
                EntryState::Wide(level) => Some(rate.advance(**level, synced)),
            };
            if let Some(units) = units {
                if rate.is_full(units) && !custom.pinned {
                    return true;
                }
                next = if custom.pinned { next } else { next.min(full_at(rate, units)) };
                custom.entry_state = EntryState::of(rate, Level { units, at: synced });
            }
            window = window.min(span(rate));
            false
        };
        if let Some(rare_fields) = &mut self.rare_fields {
            rare_fields.custom_entries.extract(is_full, |custom| deferred.keys.push(custom.key));
        }
        (self.swept, self.window) = (synced, window);
        for (key, hash, level) in retired {
            let level = Level { units: self.rate.advance(level, synced), at: synced };
            if self.rate.is_full(level.units) {
                deferred.keys.push(key);
            } else {
                next = next.min(full_at(&self.rate, level.units));
                self.insert_level(key, hash, level);
            }
        }
        let calls = 4 * self.slots().max(SMALL);
        self.calls_left = u32::try_from(calls).unwrap_or(u32::MAX);
        context.key_limit.end_sweep(context.number, had - self.len(), next);
    }

    /// Turns the live entries that are not needed any more into levels. Those under the common quota are returned, with
    /// the hashes of their keys: the window may be over, so the caller stores them once packed levels can be read
    /// again.
    fn retire_idle_entries(&mut self, deferred: &mut Deferred<K>) -> Vec<(K, u64, Level)> {
        let (mut synced, mut totals) = (self.synced, (self.granted, self.refunded));
        // A live entry may have reached a later time.
        let mut look = |live: &Arc<Core>, rate: &Rate| {
            let Idle { level, granted, refunded } = live::look_at_idle(live, rate, synced)?;
            totals = (totals.0.wrapping_add(granted), totals.1.wrapping_add(refunded));
            synced = synced.max(level.at);
            Some(level)
        };
        let retired = self.live_entries.extract(|live| look(live, &self.rate));
        let mut given_up = 0;
        let rare_fields = self.rare_fields.iter_mut().filter(|rare_fields| rare_fields.custom_live > 0);
        for custom in rare_fields.flat_map(|rare_fields| rare_fields.custom_entries.iter_mut()) {
            let Some(level) = custom.entry_state.live().and_then(|live| look(live, &custom.rate)) else { continue };
            let live = std::mem::replace(&mut custom.entry_state, EntryState::Wide(Box::new(level)));
            deferred.live_entries.extend(live.into_live());
            given_up += 1;
        }
        if let Some(rare_fields) = &mut self.rare_fields {
            rare_fields.custom_live -= given_up;
        }
        (self.synced, (self.granted, self.refunded)) = (synced, totals);
        let keep = |((key, live), level): ((K, Arc<Core>), Level)| {
            let hash = hash_of(&live);
            deferred.live_entries.push(live);
            (key, hash, level)
        };
        retired.into_iter().map(keep).collect()
    }

    /// Stores a level of the common quota that is not full: as a packed level if there is space, else as a custom
    /// entry. Runs no user code.
    fn insert_level(&mut self, key: K, hash: u64, level: Level) {
        match self.rate.packed(level) {
            Some(packed) if self.packed_levels.len() < self.packed_levels.capacity() => {
                self.packed_levels.insert(hash, key, packed)
            }
            _ => {
                let (rate, entry_state) = (Arc::clone(&self.rate), EntryState::of(&self.rate, level));
                self.push_custom(CustomEntry { key, hash, rate, entry_state, pinned: false });
            }
        }
    }

    /// Frees the memory of a past burst of keys.
    pub(super) fn shrink(&mut self, context: &ShardContext<'_, K>) {
        self.packed_levels.shrink(SMALL, context.hash_of);
        self.live_entries.shrink(SMALL);
        if let Some(rare_fields) = &mut self.rare_fields {
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
        deferred: &mut Deferred<K>,
    ) -> bool {
        self.catch_up(context, deferred);
        self.synced = self.synced.max(now);
        let Some(custom) = self.take_live(hash, live) else { return true };
        let look = |live: &Arc<Core>| live::look_at_idle(live, &custom.rate, self.synced);
        let Some(Idle { level, granted, refunded }) = custom.entry_state.live().and_then(look) else {
            self.push_live(custom);
            return false;
        };
        self.synced = self.synced.max(level.at);
        if self.synced - self.swept > self.window {
            // There was no call for so long that no packed level can be read: the sweep retires this live entry with
            // all others.
            self.push_live(custom);
            self.sweep(context, deferred);
            return true;
        }
        self.granted = self.granted.wrapping_add(granted);
        self.refunded = self.refunded.wrapping_add(refunded);
        let CustomEntry { key, hash, rate, entry_state, pinned } = custom;
        deferred.live_entries.extend(entry_state.into_live());
        if !pinned && rate.is_full(level.units) {
            deferred.keys.push(key);
            context.key_limit.give_back(1);
            return true;
        }
        context.key_limit.idle_no_later_than(context.number, || rate.reached(level, rate.burst()));
        if !pinned && self.is_common(&rate) {
            self.insert_level(key, hash, level);
        } else {
            let entry_state = EntryState::of(&rate, level);
            self.push_custom(CustomEntry { key, hash, rate, entry_state, pinned });
        }
        true
    }

    /// Removes the entry of exactly this live core, compared by address.
    fn take_live(&mut self, hash: u64, live: *const Core) -> Option<CustomEntry<K>> {
        if let Some(place) = self.live_entries.place(hash, live) {
            let (key, live) = self.live_entries.take(place)?;
            return Some(CustomEntry {
                key,
                hash,
                rate: Arc::clone(&self.rate),
                entry_state: EntryState::Live(live),
                pinned: false,
            });
        }
        let is_it = |custom: &CustomEntry<K>| custom.entry_state.live().is_some_and(|it| Arc::as_ptr(it) == live);
        let rare_fields = self.rare_fields.as_mut()?;
        let place = rare_fields.custom_entries.place(hash, is_it)?;
        rare_fields.take(place)
    }
}
