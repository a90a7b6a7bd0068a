//! Reading a shard: all its keys, and the quotas and the live entry of one.

use super::{CustomEntry, DeferredDrops, EntryRequest, Levels, RareFields, Rates, Shard, ShardContext, Stop};
use crate::core::Core;
use std::sync::Arc;

/// A key as its shard lists it.
pub(in crate::keyed) struct ListedKey<K> {
    pub(in crate::keyed) key: K,
    pub(in crate::keyed) rates: Arc<Rates>,
    /// The levels without the pause of all keys, or the live core, which knows its own levels.
    pub(in crate::keyed) levels: Result<Levels, Arc<Core>>,
    /// True if a user set the quotas of this key.
    pub(in crate::keyed) pinned: bool,
}

impl<K: Clone + Eq> Shard<K> {
    /// All keys of the shard at the shard's time, to which it advances.
    pub(in crate::keyed) fn list(
        &mut self,
        now: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Vec<ListedKey<K>> {
        let now = self.advance_to(now, context, deferred);
        let common = |key: &K, levels| {
            let rates = Arc::clone(&self.rates);
            ListedKey { key: key.clone(), rates, levels, pinned: false }
        };
        let packed_levels =
            self.packed_levels.iter().map(|(key, packed)| common(key, Ok(self.rates.unpack(packed, now))));
        let pairs = self.rare_fields.iter().flat_map(|rare_fields| rare_fields.packed_pairs.iter());
        let pairs = pairs.map(|(key, packed)| common(key, Ok(self.rates.unpack(packed, now))));
        let live_entries = self.live_entries.iter().map(|(key, live)| common(key, Err(Arc::clone(live))));
        let custom_entries = self.custom_entries().map(|CustomEntry { key, rates, entry_state, pinned, .. }| {
            let levels = entry_state.levels(rates, now).map_err(Arc::clone);
            ListedKey { key: key.clone(), rates: Arc::clone(rates), levels, pinned: *pinned }
        });
        packed_levels.chain(pairs).chain(live_entries).chain(custom_entries).collect()
    }

    /// The common rates; `None` if `quota_by` chooses the quotas of each key.
    pub(in crate::keyed) fn common_rates(
        &mut self,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Option<Arc<Rates>> {
        self.catch_up(context, deferred);
        Some(Arc::clone(&self.rates)).filter(|_| !self.by_key)
    }

    /// The quotas of the key: those that it has, or would have if it came now.
    pub(in crate::keyed) fn rates_of(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Result<Arc<Rates>, Stop> {
        self.catch_up(context, deferred);
        let is_it = |custom: &CustomEntry<K>| custom.key == *request.key;
        let custom =
            self.rare_fields.as_ref().and_then(|rare_fields| rare_fields.custom_entries.find(request.hash, is_it));
        custom.map_or_else(|| self.rates_for(request), |custom| Ok(Arc::clone(&custom.rates)))
    }

    /// The live entry of the key, if it has one.
    pub(in crate::keyed) fn find_live(&self, request: &EntryRequest<'_, K>) -> Option<Arc<Core>> {
        let own = |rare_fields: &RareFields<K>| {
            rare_fields
                .custom_entries
                .find(request.hash, |custom| custom.key == *request.key)?
                .entry_state
                .live()
                .cloned()
        };
        self.live_entries.find(request.hash, request.key).cloned().or_else(|| self.rare_fields.as_deref().and_then(own))
    }
}
