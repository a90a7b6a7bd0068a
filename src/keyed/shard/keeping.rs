//! Storing a key in the shard, in the form that fits its state.

use super::{CustomEntry, DeferredDrops, EntryRequest, EntryState, Levels, Rates, Shard, ShardContext, Stop, span};
use crate::core::Core;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A new key that is counted already, and only needs to be stored.
pub(super) struct Newcomer<K> {
    pub(super) key: K,
    hash: u64,
    rates: Arc<Rates>,
    levels: Levels,
    form: Form,
}

/// How levels are stored.
enum Form {
    PackedLevel([NonZeroU64; 1]),
    PackedPair([NonZeroU64; 2]),
    Custom,
}

impl Form {
    fn of(rates: &Rates, levels: &Levels) -> Self {
        let pair = || rates.pack(levels).map(Self::PackedPair);
        rates.pack(levels).map(Self::PackedLevel).or_else(pair).unwrap_or(Self::Custom)
    }
}

impl<K: Clone + Eq> Shard<K> {
    /// Returns the live entry of the key, and creates it if there is none.
    pub(in crate::keyed) fn live(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Result<Arc<Core>, Stop> {
        let now = self.advance_to(request.now, context, deferred);
        let quota_version = self.quota_version();
        if let Some(live) = self.find_live(request) {
            return Ok(live);
        }
        let new = |rates: &Rates, levels: Levels| context.template.live(rates, &levels, quota_version, request.hash);
        if let Some(CustomEntry { key, hash, rates, entry_state, pinned }) = self.take_custom(request) {
            let live = entry_state.levels(&rates, now).map_or_else(Arc::clone, |levels| new(&rates, levels));
            self.push_live(CustomEntry { key, hash, rates, entry_state: EntryState::Live(Arc::clone(&live)), pinned });
            return Ok(live);
        }
        if let Some((key, levels)) = self.remove_packed(request, now) {
            let rates = Arc::clone(&self.rates);
            let live = new(&rates, levels);
            let entry_state = EntryState::Live(Arc::clone(&live));
            self.push_live(CustomEntry { key, hash: request.hash, rates, entry_state, pinned: false });
            return Ok(live);
        }
        let rates = self.rates_for(request)?;
        self.narrow_window(&rates, context, deferred);
        let key = request.take_place(context.key_limit, deferred)?;
        let live = new(&rates, rates.full(now));
        let entry_state = EntryState::Live(Arc::clone(&live));
        self.push_live(CustomEntry { key, hash: request.hash, rates, entry_state, pinned: false });
        Ok(live)
    }

    /// Removes a key from the tables of packed levels, and returns its levels at `now`, to which the shard has
    /// advanced.
    pub(super) fn remove_packed(&mut self, request: &EntryRequest<'_, K>, now: u64) -> Option<(K, Levels)> {
        if let Some((key, packed)) = self.packed_levels.remove(request.hash, request.key) {
            return Some((key, self.rates.unpack(&packed, now)));
        }
        let (key, packed) = self.rare_fields.as_mut()?.packed_pairs.remove(request.hash, request.key)?;
        Some((key, self.rates.unpack(&packed, now)))
    }

    fn take_custom(&mut self, request: &EntryRequest<'_, K>) -> Option<CustomEntry<K>> {
        let rare_fields = self.rare_fields.as_mut()?;
        let index = rare_fields.custom_entries.index_of(request.hash, |custom| custom.key == *request.key)?;
        rare_fields.take(index)
    }

    /// The quotas of a new key.
    pub(super) fn rates_for(&self, request: &EntryRequest<'_, K>) -> Result<Arc<Rates>, Stop> {
        if self.by_key { request.offered.clone().ok_or(Stop::AskQuota) } else { Ok(Arc::clone(&self.rates)) }
    }

    /// Does everything that may fail before a new key is stored, user code first, and counts the key.
    pub(super) fn prepare(
        &mut self,
        request: &EntryRequest<'_, K>,
        rates: Arc<Rates>,
        levels: Levels,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Result<Newcomer<K>, Stop> {
        let form = if self.by_key { Form::Custom } else { Form::of(&rates, &levels) };
        self.make_space_for(&form, context, deferred);
        // After the sweeps: a sweep computes the window from the keys that are stored, and the new key is not one of
        // them yet.
        self.narrow_window(&rates, context, deferred);
        let key = request.take_place(context.key_limit, deferred)?;
        // A sweep may have advanced the shard to a later time, and packed levels can be read from then on only.
        let levels = rates.advance(&levels, self.synced);
        let form = if matches!(form, Form::Custom) { form } else { Form::of(&rates, &levels) };
        Ok(Newcomer { key, hash: request.hash, rates, levels, form })
    }

    fn make_space_for(&mut self, form: &Form, context: &ShardContext<'_, K>, deferred: &mut DeferredDrops<K>) {
        match form {
            Form::PackedLevel(_) => {
                if self.packed_levels.is_filled() {
                    self.sweep(context, deferred);
                    self.packed_levels.make_space(context.hash_of);
                }
            }
            Form::PackedPair(_) => {
                if self.rare_fields().packed_pairs.is_filled() {
                    self.sweep(context, deferred);
                    self.rare_fields().packed_pairs.make_space(context.hash_of);
                }
            }
            Form::Custom => {
                let custom_entries = &self.rare_fields().custom_entries;
                if custom_entries.len() == custom_entries.capacity() {
                    self.sweep(context, deferred);
                }
            }
        }
    }

    pub(super) fn keep(&mut self, newcomer: Newcomer<K>, context: &ShardContext<'_, K>) {
        let Newcomer { key, hash, rates, levels, form } = newcomer;
        context.key_limit.idle_no_later_than(context.number, || Some(rates.full_at(&levels)));
        match form {
            Form::PackedLevel(packed) => self.packed_levels.insert(hash, key, packed),
            Form::PackedPair(packed) => self.rare_fields().packed_pairs.insert(hash, key, packed),
            Form::Custom => {
                let entry_state = EntryState::of(&rates, &levels);
                self.push_custom(CustomEntry { key, hash, rates, entry_state, pinned: false });
            }
        }
    }

    /// Turns packed levels that do not fit any more into a custom entry with `levels`.
    pub(super) fn make_custom(&mut self, request: &EntryRequest<'_, K>, levels: &Levels) {
        if let Some((key, _)) = self.remove_packed(request, self.synced) {
            let rates = Arc::clone(&self.rates);
            let entry_state = EntryState::of(&rates, levels);
            self.push_custom(CustomEntry { key, hash: request.hash, rates, entry_state, pinned: false });
        }
    }
}

impl<K> Shard<K> {
    /// Prepares the shard for packed levels of `rates`: shortens the window, and first sweeps if the shorter window is
    /// over already.
    pub(super) fn narrow_window(
        &mut self,
        rates: &Rates,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) {
        if span(rates) < self.window {
            if self.synced - self.swept > span(rates) {
                self.sweep(context, deferred);
            }
            self.window = self.window.min(span(rates));
        }
    }

    /// Stores a custom entry. The caller has called [`narrow_window`](Self::narrow_window) for its quotas.
    pub(super) fn push_custom(&mut self, custom: CustomEntry<K>) {
        self.rare_fields().insert(custom);
    }

    /// Stores an entry with a live core: in the table of live entries if it has the common quotas, else as a custom
    /// entry.
    pub(super) fn push_live(&mut self, custom: CustomEntry<K>) {
        match custom {
            CustomEntry { key, rates, entry_state: EntryState::Live(live), pinned: false, .. }
                if self.is_common(&rates) =>
            {
                self.live_entries.insert(key, live);
            }
            custom => self.push_custom(custom),
        }
    }

    /// Whether `rates` are the common quotas.
    pub(super) fn is_common(&self, rates: &Arc<Rates>) -> bool {
        !self.by_key && Arc::ptr_eq(rates, &self.rates)
    }

    /// Stores levels of the common quotas that are not full: as packed levels if there is space, else as a custom
    /// entry. Runs no user code.
    pub(super) fn insert_levels(&mut self, key: K, hash: u64, levels: &Levels) {
        match Form::of(&self.rates, levels) {
            Form::PackedLevel(packed) if !self.packed_levels.is_filled() => {
                self.packed_levels.insert(hash, key, packed)
            }
            Form::PackedPair(packed) if !self.rare_fields().packed_pairs.is_filled() => {
                self.rare_fields().packed_pairs.insert(hash, key, packed)
            }
            _ => {
                let (rates, entry_state) = (Arc::clone(&self.rates), EntryState::of(&self.rates, levels));
                self.push_custom(CustomEntry { key, hash, rates, entry_state, pinned: false });
            }
        }
    }
}
