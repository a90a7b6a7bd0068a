//! Changes of the whole map, shard by shard.

use super::{Entered, Map};
use crate::Quota;
use crate::core::Core;
use crate::keyed::live;
use crate::sync::Ordering;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// The number of common quotas that may be pending in a shard, beside the last one. Each change makes one shard in this
/// many catch up.
const MAX_PENDING: usize = 16;

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Sets a checked quota as the common quota from now on. Each shard only records it; the next call there applies it
    /// to the keys. So this costs a short lock for each shard, and a look at each live entry.
    pub(in crate::keyed) fn set_quota(&self, quota: Quota) {
        let rate = self.rate(quota);
        let version = self.versions.fetch_add(1, Ordering::AcqRel) as u32 + 1;
        let now = self.now();
        for number in 0..self.shards.len() {
            let (live_entries, quota_version) = self.in_shard(number, |shard, context, deferred| {
                let live_entries = shard.set_quota(Arc::clone(&rate), version, now, context, deferred);
                (live_entries, shard.quota_version())
            });
            for live in live_entries {
                live::set_quota(&live, &rate, quota_version);
            }
            // Under the new quota a key may be full earlier.
            self.key_limit.idle_now(number);
        }
        // A shard without calls must not collect ever more pending changes.
        for number in (version as usize % MAX_PENDING..self.shards.len()).step_by(MAX_PENDING) {
            self.in_shard(number, |shard, context, deferred| shard.catch_up_if_behind(context, deferred));
        }
    }

    /// Gives `key` a quota of its own, or with `None` the common one again. Returns false if the map is full.
    pub(in crate::keyed) fn set_quota_for(&self, key: &K, quota: Option<Quota>) -> bool {
        let own = quota.map(|quota| self.rate(quota));
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |shard, request, context, deferred| {
            let told = shard.set_quota_for(request, own.clone(), context, deferred)?;
            Ok(told.map(|(live, rate)| (live, rate, shard.quota_version())))
        });
        match entered {
            Entered::Done(Some((live, rate, quota_version))) => {
                live::set_quota(&live, &rate, quota_version);
                self.let_go(hash, live);
                true
            }
            Entered::Done(None) => true,
            Entered::Live(_) | Entered::Full => false,
        }
    }

    pub(in crate::keyed) fn close(&self) {
        for number in 0..self.shards.len() {
            let live_entries: Vec<Arc<Core>> = self.in_shard(number, |shard, _, _| {
                shard.closed = true;
                shard.live_entries().cloned().collect()
            });
            // Some keys are closed already: a panic of the clock must not leave the waiters of the other keys.
            live_entries.iter().for_each(|live| live.close_anyway());
            drop(live_entries);
            self.key_limit.idle_now(number);
        }
        if let Some(overflow) = &self.overflow {
            overflow.close_anyway();
        }
    }

    /// Serves all queues and forgets the keys that may be forgotten: the work of the drivers and of the calls, on the
    /// user's request.
    pub(in crate::keyed) fn tick(&self) {
        if let Some(parent) = &self.parent {
            parent.tick();
        }
        for number in 0..self.shards.len() {
            let live_entries: Vec<Arc<Core>> =
                self.in_shard(number, |shard, _, _| shard.live_entries().cloned().collect());
            live_entries.iter().for_each(|live| live.tick());
            drop(live_entries);
            let now = self.now();
            self.in_shard(number, |shard, context, deferred| shard.sweep_at(now, context, deferred));
        }
        if let Some(overflow) = &self.overflow {
            overflow.tick();
        }
    }
}
