//! Reading a shard: all its keys, and the quotas and the live entry of one.

use super::{CustomEntry, DeferredDrops, EntryRequest, Levels, RareFields, Rates, Shard, ShardContext, Stop};
use crate::core::Core;
use crate::keyed::entries::Listed;
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// All keys of the shard, with their states.
    pub(in crate::keyed) fn list(
        &mut self,
        now: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Vec<(K, Listed)> {
        let now = self.advance_to(now, context, deferred);
        let gate = self.gate();
        let of_levels = |key: &K, rates: &Arc<Rates>, levels: Levels| {
            (key.clone(), Listed::Levels(Arc::clone(rates), levels.paused_until(gate)))
        };
        let of_common = |key: &K, levels| of_levels(key, &self.rates, levels);
        let packed_levels =
            self.packed_levels.iter().map(|(key, packed)| of_common(key, self.rates.unpack(packed, now)));
        let pairs = self.rare_fields.iter().flat_map(|rare_fields| rare_fields.packed_pairs.iter());
        let pairs = pairs.map(|(key, packed)| of_common(key, self.rates.unpack(packed, now)));
        let live_entries = self.live_entries.iter().map(|(key, live)| (key.clone(), Listed::Live(Arc::clone(live))));
        let custom_entries = self.custom_entries().map(|CustomEntry { key, rates, entry_state, .. }| match entry_state
            .levels(rates, now)
        {
            Ok(levels) => of_levels(key, rates, levels),
            Err(live) => (key.clone(), Listed::Live(Arc::clone(live))),
        });
        packed_levels.chain(pairs).chain(live_entries).chain(custom_entries).collect()
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
