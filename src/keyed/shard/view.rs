//! Reading a shard: all its keys, and the quotas and the live entry of one.

use super::{EntryRequest, Levels, Own, Rates, Shard, ShardContext, SlotRef, Stop};
use crate::core::in_use::InUse;
use crate::keyed::{Hashed, ToKey};
use std::sync::Arc;

/// A key as its shard lists it.
pub(in crate::keyed) struct ListedKey<K> {
    pub(in crate::keyed) key: K,
    pub(in crate::keyed) rates: Arc<Rates>,
    /// The levels without the pause of all keys, or the live core, which knows its own levels.
    pub(in crate::keyed) levels: Result<Levels, InUse>,
    /// True if a user set the quotas of this key.
    pub(in crate::keyed) pinned: bool,
}

/// How many groups are listed under one lock: some hundred keys.
const PIECE: usize = 64;

/// How far the keys of a shard are listed.
#[derive(Debug, Default)]
pub(in crate::keyed) struct Listing {
    /// The next group.
    group: usize,
    rebuilds: u32,
    /// True if the table was rebuilt: what was listed before counts no more.
    pub(in crate::keyed) begins_anew: bool,
    pub(in crate::keyed) is_complete: bool,
}

impl<K: Clone + Eq> Shard<K> {
    /// The next keys of the shard, at the shard's time, to which it advances.
    pub(in crate::keyed) fn list(
        &mut self,
        listing: &mut Listing,
        now: u64,
        context: &mut ShardContext<'_, K>,
    ) -> Vec<ListedKey<K>> {
        self.advance_to(now, context);
        let rebuilds = self.slots.groups.rebuilds;
        let begins_anew = listing.rebuilds != rebuilds;
        let from = if begins_anew { 0 } else { listing.group };
        let (group, is_complete) = (from + PIECE, self.slots.is_last_piece(from, PIECE));
        *listing = Listing { group, rebuilds, begins_anew, is_complete };
        let listed = |(key, slot): (&K, SlotRef<'_>)| {
            let pinned = matches!(slot, SlotRef::Own(Own { pinned: true, .. }));
            let (rates, levels) = self.state_of(slot);
            ListedKey { key: key.clone(), rates: Arc::clone(rates), levels, pinned }
        };
        self.slots.piece(from, PIECE).map(listed).collect()
    }

    /// The quotas of the key: those that it has, or would have if it came now.
    pub(in crate::keyed) fn rates_of(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        context: &mut ShardContext<'_, K>,
    ) -> Result<Arc<Rates>, Stop> {
        self.catch_up(context);
        let rates = match self.index(request).map(|index| self.slots.at(index)) {
            Some(SlotRef::Own(own)) => &own.rates,
            Some(SlotRef::Packed(_)) => &self.rates,
            None => self.rates_of_new(request)?,
        };
        Ok(Arc::clone(rates))
    }

    /// The live entry of the key, if it has one.
    pub(in crate::keyed) fn find_live(&self, key: Hashed<'_, impl ToKey<K> + ?Sized>) -> Option<InUse> {
        match self.slots.at(self.slots.index_of(key)?) {
            SlotRef::Own(own) => own.in_use(),
            SlotRef::Packed(_) => None,
        }
    }
}
