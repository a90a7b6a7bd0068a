//! Storing the state of a key in the shard.

use super::{EntryIndex, EntryRequest, Kind, Levels, Own, OwnState, Rates, Shard, ShardContext, Slot, SlotRef, Stop};
use crate::core::in_use::InUse;
use crate::keyed::ToKey;
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// Returns the live entry of the key, and creates it if there is none.
    pub(in crate::keyed) fn live(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        context: &mut ShardContext<'_, K>,
    ) -> Result<InUse, Stop> {
        self.advance_to(request.now, context);
        let (index, rates, levels) = match self.look_up(request) {
            Err(Stop::Live(live)) => return Ok(live),
            found => found?,
        };
        let rates = Arc::clone(rates);
        let key = if index.is_none() { Some(self.take_place(request, context)?) } else { None };
        // A sweep may have advanced the shard.
        let levels = rates.advance(&levels, self.synced);
        let live = context.template.live(&rates, &levels, self.quota_version(), request.key.hash);
        self.expect_windows(rates.sliding.is_some(), context);
        let own = Own { rates, state: OwnState::Live(Arc::clone(&live)), pinned: false };
        if let Some(key) = key {
            self.slots.insert(request.key.hash, key, Slot::Own(own));
        } else if let Some(index) = index {
            match self.slots.own_mut(index) {
                Some(old) => old.state = own.state,
                None => self.slots.set(index, Slot::Own(own)),
            }
        }
        Ok(InUse::new(live))
    }

    pub(in crate::keyed) fn index(&self, request: &EntryRequest<'_, impl ToKey<K> + ?Sized>) -> Option<EntryIndex> {
        self.slots.index_of(request.key)
    }

    /// Finds the key, its quotas and its levels at the shard's time. A key that is not stored is full.
    pub(super) fn look_up<'a>(
        &'a self,
        request: &'a EntryRequest<'_, impl ToKey<K> + ?Sized>,
    ) -> Result<(Option<EntryIndex>, &'a Arc<Rates>, Levels), Stop> {
        let index = self.index(request);
        let Some(found) = index else {
            let rates = self.rates_of_new(request)?;
            return Ok((None, rates, rates.full(self.synced)));
        };
        let (rates, levels) = self.state_of(self.slots.at(found));
        Ok((index, rates, levels.map_err(Stop::Live)?))
    }

    /// The quotas of a new key.
    pub(super) fn rates_of_new<'a>(
        &'a self,
        request: &'a EntryRequest<'_, impl ToKey<K> + ?Sized>,
    ) -> Result<&'a Arc<Rates>, Stop> {
        match self.rates.kind {
            Kind::QuotaBy => request.offered.as_ref().ok_or(Stop::AskQuota),
            _ => Ok(&self.rates),
        }
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
        context.key_limit.take_place(request.key.form, request.forced).ok_or(Stop::NoSpace)
    }
}

impl<K> Shard<K> {
    /// A live entry with a sliding quota is not needed any more once its windows are empty, without a call.
    pub(super) fn expect_windows(&mut self, is_sliding: bool, context: &ShardContext<'_, K>) {
        if is_sliding {
            self.expect_handles(context);
        }
    }

    /// The quotas of a key, and its levels at the shard's time, or its live core, which knows its own levels.
    pub(super) fn state_of<'a>(&'a self, slot: SlotRef<'a>) -> (&'a Arc<Rates>, Result<Levels, InUse>) {
        match slot {
            SlotRef::Packed(packed) => (&self.rates, Ok(self.rates.unpack(packed, self.synced))),
            SlotRef::Own(Own { rates, state: OwnState::Levels(levels), .. }) => {
                (rates, Ok(rates.advance(levels, self.synced)))
            }
            SlotRef::Own(Own { rates, state: OwnState::Live(live), .. }) => (rates, Err(InUse::new(Arc::clone(live)))),
        }
    }

    /// Stores the levels of the present of a key without a live core, which keeps its quotas.
    pub(super) fn put(&mut self, index: EntryIndex, levels: &Levels) {
        match self.slots.own_mut(index) {
            Some(Own { rates, state: OwnState::Levels(old), pinned })
                if *pinned || !Arc::ptr_eq(rates, &self.rates) =>
            {
                **old = *levels;
            }
            _ => self.slots.set(index, Slot::of_levels(&self.rates, levels, true)),
        }
    }
}
