//! Changes of the whole map, shard by shard.

use super::Map;
use crate::core::Core;
use crate::error::ConfigError;
use crate::keyed::ToKey;
use crate::keyed::shard::{Assigned, Shard};
use crate::keyed::{Quotas, live};
use crate::sync::Ordering;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// The number of changes of the common quotas that may be pending in a shard, beside the last one. Each change makes
/// one shard in this many catch up. With more, the first call to a shard that had no calls would take longer.
const MAX_PENDING: usize = 4;

impl<K: Hash + Eq + Clone, S: BuildHasher> Map<K, S> {
    /// Sets checked quotas as the common quotas from now on. Each shard only records the change, and the next call
    /// there applies it to the keys. So this costs a short lock for each shard, and a visit to each live entry.
    pub(in crate::keyed) fn set_quotas(&self, quotas: Quotas) {
        let rates = self.rates(quotas);
        let version = self.versions.fetch_add(1, Ordering::AcqRel) as u32 + 1;
        let now = self.now();
        for number in 0..self.shards.len() {
            let (live_entries, quota_version) = self.in_shard(number, |shard, context| {
                let live_entries = shard.set_quotas(Arc::clone(&rates), version, now, context);
                (live_entries, shard.quota_version())
            });
            for live in live_entries {
                live::set_quotas(&live, &rates, quota_version);
            }
            // Under the new quotas a key may be full earlier.
            self.key_limit.idle_now(number);
        }
        // Let some shards catch up, so that a shard without calls does not collect pending changes without a bound.
        for number in (version as usize % MAX_PENDING..self.shards.len()).step_by(MAX_PENDING) {
            self.in_shard(number, |shard, context| {
                if shard.pending() > 1 {
                    shard.catch_up(context)
                }
            });
        }
    }

    /// Gives `key` the assigned quotas, and so its live entry, if it has one. `forced`: even if the map is full.
    pub(in crate::keyed) fn assign(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        assigned: &Assigned<'_>,
        forced: bool,
    ) -> Result<(), ConfigError> {
        let key = self.hashed(key);
        let stale = self.act(
            key,
            forced,
            |_| unreachable!("a live entry is returned with its new quotas"),
            |shard, request, context| shard.set_quotas_for(request, assigned, context),
        )?;
        if let Some((live, rates, quota_version)) = stale {
            let address = Arc::as_ptr(&live);
            self.on_live(key.hash, live, |live| live::set_quotas(live, &rates, quota_version));
            self.retire(key.hash, address, 0);
        }
        Ok(())
    }

    pub(in crate::keyed) fn close(&self) {
        // Some keys are closed already: a panic of the clock must not leave the waiters of the other keys.
        self.visit_all(Shard::close, |live| live.close_anyway());
    }

    /// Calls `in_shard` under the lock of each shard, and then, without that lock, `on_live` on the shard's live
    /// entries.
    pub(in crate::keyed) fn visit_all(&self, in_shard: impl Fn(&mut Shard<K>), on_live: impl Fn(&Arc<Core>)) {
        for number in 0..self.shards.len() {
            let live_entries: Vec<Arc<Core>> = self.in_shard(number, |shard, _| {
                in_shard(shard);
                shard.live_entries().cloned().collect()
            });
            if live_entries.is_empty() {
                continue;
            }
            live_entries.iter().for_each(&on_live);
            drop(live_entries);
            // A sweep meanwhile may have found the live entries in use.
            self.key_limit.idle_now(number);
        }
    }
}
