//! Storing a key in the shard, in the form that fits its state.

use super::{CustomEntry, Deferred, EntryRequest, EntryState, Level, Rate, Shard, ShardContext, Stop, span};
use crate::core::Core;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A new key that is counted already, and only needs to be stored.
pub(super) struct Newcomer<K> {
    pub(super) key: K,
    hash: u64,
    rate: Arc<Rate>,
    level: Level,
    /// The packed level to store; `None` for a custom entry.
    packed: Option<NonZeroU64>,
}

impl<K: Clone + Eq> Shard<K> {
    /// Returns the live entry of the key, and creates it if there is none.
    pub(in crate::keyed) fn live(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut Deferred<K>,
    ) -> Result<Arc<Core>, Stop> {
        let now = self.advance_to(request.now, context, deferred);
        let quota_version = self.quota_version();
        if let Some(live) = self.find_live(request) {
            return Ok(live);
        }
        let new = |rate: &Rate, level| context.template.live(rate, level, quota_version, request.hash);
        if let Some(CustomEntry { key, hash, rate, entry_state, pinned }) = self.take_custom(request) {
            let live = entry_state.level(&rate, now).map_or_else(Arc::clone, |level| new(&rate, level));
            self.push_live(CustomEntry { key, hash, rate, entry_state: EntryState::Live(Arc::clone(&live)), pinned });
            return Ok(live);
        }
        if let Some((key, packed)) = self.packed_levels.remove(request.hash, request.key) {
            let rate = Arc::clone(&self.rate);
            let live = new(&rate, Self::read(&rate, packed, now));
            let entry_state = EntryState::Live(Arc::clone(&live));
            self.push_live(CustomEntry { key, hash: request.hash, rate, entry_state, pinned: false });
            return Ok(live);
        }
        let rate = self.rate_for(request)?;
        self.narrow_window(&rate, context, deferred);
        let key = request.take_place(context.key_limit, deferred)?;
        let live = new(&rate, Level { units: rate.full(), at: now });
        let entry_state = EntryState::Live(Arc::clone(&live));
        self.push_live(CustomEntry { key, hash: request.hash, rate, entry_state, pinned: false });
        Ok(live)
    }

    fn take_custom(&mut self, request: &EntryRequest<'_, K>) -> Option<CustomEntry<K>> {
        let rare_fields = self.rare_fields.as_mut()?;
        let place = rare_fields.custom_entries.place(request.hash, |custom| custom.key == *request.key)?;
        rare_fields.take(place)
    }

    /// The quota of a new key.
    pub(super) fn rate_for(&self, request: &EntryRequest<'_, K>) -> Result<Arc<Rate>, Stop> {
        if self.by_key { request.offered.clone().ok_or(Stop::AskQuota) } else { Ok(Arc::clone(&self.rate)) }
    }

    /// Does everything that may fail before a new key is stored, user code first, and counts the key.
    pub(super) fn prepare(
        &mut self,
        request: &EntryRequest<'_, K>,
        rate: Arc<Rate>,
        level: Level,
        context: &ShardContext<'_, K>,
        deferred: &mut Deferred<K>,
    ) -> Result<Newcomer<K>, Stop> {
        let packed = rate.packed(level).filter(|_| !self.by_key);
        if packed.is_some() && self.packed_levels.len() == self.packed_levels.capacity() {
            self.sweep(context, deferred);
            self.packed_levels.make_space(context.hash_of);
        } else if packed.is_none() {
            let custom_entries = &self.rare_fields().custom_entries;
            if custom_entries.len() == custom_entries.capacity() {
                self.sweep(context, deferred);
            }
        }
        // After the sweeps: a sweep computes the window from the keys that are stored, and the new key is not one of
        // them yet.
        self.narrow_window(&rate, context, deferred);
        let key = request.take_place(context.key_limit, deferred)?;
        // A sweep may have advanced the shard to a later time, and packed levels can be read from then on only.
        let level = Level { units: rate.advance(level, self.synced), at: self.synced };
        let packed = packed.and_then(|_| rate.packed(level));
        Ok(Newcomer { key, hash: request.hash, rate, level, packed })
    }

    pub(super) fn keep(&mut self, newcomer: Newcomer<K>, context: &ShardContext<'_, K>) {
        let Newcomer { key, hash, rate, level, packed } = newcomer;
        context.key_limit.idle_no_later_than(context.number, || rate.reached(level, rate.burst()));
        if let Some(packed) = packed {
            self.packed_levels.insert(hash, key, packed);
        } else {
            let entry_state = EntryState::of(&rate, level);
            self.push_custom(CustomEntry { key, hash, rate, entry_state, pinned: false });
        }
    }

    /// Turns a packed level that does not fit any more into a custom entry with `level`.
    pub(super) fn make_custom(&mut self, request: &EntryRequest<'_, K>, level: Level) {
        if let Some((key, _)) = self.packed_levels.remove(request.hash, request.key) {
            let rate = Arc::clone(&self.rate);
            let entry_state = EntryState::of(&rate, level);
            self.push_custom(CustomEntry { key, hash: request.hash, rate, entry_state, pinned: false });
        }
    }
}

impl<K> Shard<K> {
    /// Prepares the shard for packed levels of `rate`: shortens the window, and first sweeps if the shorter window is
    /// over already.
    pub(super) fn narrow_window(&mut self, rate: &Rate, context: &ShardContext<'_, K>, deferred: &mut Deferred<K>) {
        if span(rate) < self.window {
            if self.synced - self.swept > span(rate) {
                self.sweep(context, deferred);
            }
            self.window = self.window.min(span(rate));
        }
    }

    /// Stores a custom entry. The caller has called [`narrow_window`](Self::narrow_window) for its rate.
    pub(super) fn push_custom(&mut self, custom: CustomEntry<K>) {
        self.rare_fields().insert(custom);
    }

    /// Stores an entry with a live core: in the table of live entries if it has the common quota, else as a custom
    /// entry.
    pub(super) fn push_live(&mut self, custom: CustomEntry<K>) {
        match custom {
            CustomEntry { key, rate, entry_state: EntryState::Live(live), pinned: false, .. }
                if self.is_common(&rate) =>
            {
                self.live_entries.insert(key, live);
            }
            custom => self.push_custom(custom),
        }
    }

    /// Whether `rate` is the common quota.
    pub(super) fn is_common(&self, rate: &Arc<Rate>) -> bool {
        !self.by_key && Arc::ptr_eq(rate, &self.rate)
    }
}
