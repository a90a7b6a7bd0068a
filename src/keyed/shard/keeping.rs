//! Storing the state of a key in the shard.

use super::{EntryIndex, EntryRequest, Levels, Own, OwnState, Rates, Shard, ShardContext, Slot, SlotRef, Stop};
use crate::core::Core;
use crate::keyed::ToKey;
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// Returns the live entry of the key, and creates it if there is none.
    pub(in crate::keyed) fn live(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        context: &mut ShardContext<'_, K>,
    ) -> Result<Arc<Core>, Stop> {
        self.advance_to(request.now, context);
        let (version, hash) = (self.quota_version(), request.hash);
        let new = |rates: &Rates, levels: &Levels| context.template.live(rates, levels, version, hash);
        if let Some(index) = self.slots.index_of(hash, request.key) {
            let (rates, levels) = match self.levels_of(index) {
                Ok(found) => found,
                Err(live) => return Ok(live),
            };
            let live = new(rates, &levels);
            let is_sliding = rates.sliding.is_some();
            let state = OwnState::Live(Arc::clone(&live));
            match self.slots.own_mut(index) {
                Some(own) => own.state = state,
                None => self.slots.set(index, Slot::Own(Own { rates: None, state, pinned: false })),
            }
            self.expect_windows(is_sliding, context);
            return Ok(live);
        }
        let rates = self.rates_for(request)?;
        let key = self.take_place(request, context)?;
        let common = self.rates_or_common(rates.as_ref());
        let live = new(common, &common.full(self.synced));
        let is_sliding = common.sliding.is_some();
        let state = OwnState::Live(Arc::clone(&live));
        self.slots.insert(hash, key, Slot::Own(Own { rates, state, pinned: false }));
        self.expect_windows(is_sliding, context);
        Ok(live)
    }

    /// The quotas of a new key, if they are not the common ones.
    pub(super) fn rates_for(
        &self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
    ) -> Result<Option<Arc<Rates>>, Stop> {
        let asked = || request.offered.clone().ok_or(Stop::AskQuota);
        self.by_key.then(asked).transpose()
    }

    /// Does everything that may fail before a new key is stored, user code first, and counts the key. May sweep, and so
    /// advance the shard.
    pub(super) fn take_place(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        context: &mut ShardContext<'_, K>,
    ) -> Result<K, Stop> {
        if self.slots.is_filled() {
            self.sweep(context);
            self.slots.make_space(context.hash_of);
        }
        request.take_place(context)
    }

    /// Stores a new key that has taken its place, with these levels of the present or of an earlier instant.
    pub(super) fn keep(
        &mut self,
        (key, hash): (K, u64),
        rates: Option<Arc<Rates>>,
        levels: &Levels,
        pinned: bool,
        context: &ShardContext<'_, K>,
    ) {
        let own = self.rates_or_common(rates.as_ref());
        // A sweep may have advanced the shard, and packed levels can be read from then on only.
        let levels = own.advance(levels, self.synced);
        context.key_limit.idle_no_later_than(context.number, || Some(own.full_at(&levels)));
        let slot = self.slot_of(rates, &levels, pinned);
        self.slots.insert(hash, key, slot);
    }
}

impl<K> Shard<K> {
    /// A live entry with a sliding quota is not needed any more once its windows are empty, without a call.
    pub(super) fn expect_windows(&mut self, is_sliding: bool, context: &ShardContext<'_, K>) {
        if is_sliding {
            self.expect_handles(context);
        }
    }

    /// The quotas of a key, and its levels at the shard's time; or its live core, which knows its own levels.
    pub(super) fn levels_of(&self, index: EntryIndex) -> Result<(&Arc<Rates>, Levels), Arc<Core>> {
        match self.slots.at(index) {
            SlotRef::Packed(packed) => Ok((&self.rates, self.rates.unpack(packed, self.synced))),
            SlotRef::Own(own) => {
                let rates = self.rates_or_common(own.rates.as_ref());
                match &own.state {
                    OwnState::Levels(levels) => Ok((rates, rates.advance(levels, self.synced))),
                    OwnState::Live(live) => Err(Arc::clone(live)),
                }
            }
        }
    }

    /// The state of a key with these levels of the present: packed if it has the common quotas and they fit.
    pub(super) fn slot_of(&self, rates: Option<Arc<Rates>>, levels: &Levels, pinned: bool) -> Slot {
        let packed = if rates.is_none() { self.rates.pack(levels) } else { None };
        packed
            .map_or_else(|| Slot::Own(Own { rates, state: OwnState::Levels(Box::new(*levels)), pinned }), Slot::Packed)
    }

    /// Stores the levels of the present of a key without a live core, which keeps its quotas.
    pub(super) fn put(&mut self, index: EntryIndex, levels: &Levels) {
        match self.slots.own_mut(index) {
            Some(Own { rates: Some(_), state: OwnState::Levels(old), .. }) => **old = *levels,
            _ => {
                let slot = self.slot_of(None, levels, false);
                self.slots.set(index, slot);
            }
        }
    }
}
