//! The keys of a shard, to be saved.

use super::{CustomEntry, DeferredDrops, Levels, Rates, Shard, ShardContext};
use crate::core::Core;
use crate::keyed::Quotas;
use std::sync::Arc;

/// The keys of a shard at an instant.
pub(in crate::keyed) struct SavedShard<K> {
    /// The time of the map at that instant.
    pub(in crate::keyed) at: u64,
    /// The instant until which all keys are paused; 0 if they are not.
    pub(in crate::keyed) gate: u64,
    pub(in crate::keyed) keys: Vec<SavedKey<K>>,
}

/// A key that owes tokens, is paused, or has quotas of its own.
pub(in crate::keyed) struct SavedKey<K> {
    pub(in crate::keyed) key: K,
    pub(in crate::keyed) rates: Arc<Rates>,
    /// The levels, or the live core, which knows its own levels.
    pub(in crate::keyed) levels: Result<Levels, Arc<Core>>,
    /// True if a user set the quotas of this key.
    pub(in crate::keyed) pinned: bool,
}

impl<K> Shard<K> {
    /// The common quotas; `None` if `quota_by` chooses the quotas of each key.
    pub(in crate::keyed) fn common_quotas(&self) -> Option<Quotas> {
        if self.by_key { None } else { Some(self.rates.quotas.clone()) }
    }
}

impl<K: Clone + Eq> Shard<K> {
    pub(in crate::keyed) fn saved(
        &mut self,
        now: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> SavedShard<K> {
        let at = self.advance_to(now, context, deferred);
        let common = |key: &K, levels| {
            let rates = Arc::clone(&self.rates);
            SavedKey { key: key.clone(), rates, levels, pinned: false }
        };
        let packed_levels =
            self.packed_levels.iter().map(|(key, packed)| common(key, Ok(self.rates.unpack(packed, at))));
        let pairs = self.rare_fields.iter().flat_map(|rare_fields| rare_fields.packed_pairs.iter());
        let pairs = pairs.map(|(key, packed)| common(key, Ok(self.rates.unpack(packed, at))));
        let live_entries = self.live_entries.iter().map(|(key, live)| common(key, Err(Arc::clone(live))));
        let custom_entries = self.custom_entries().map(|CustomEntry { key, rates, entry_state, pinned, .. }| {
            let levels = entry_state.levels(rates, at).map_err(Arc::clone);
            SavedKey { key: key.clone(), rates: Arc::clone(rates), levels, pinned: *pinned }
        });
        let keys = packed_levels.chain(pairs).chain(live_entries).chain(custom_entries).collect();
        SavedShard { at, gate: self.gate(), keys }
    }
}
