//! Changes of the whole map, shard by shard.

use super::{Entered, Map};
use crate::core::Core;
use crate::error::ConfigError;
use crate::keyed::ToKey;
use crate::keyed::rates::Rates;
use crate::keyed::shard::{Assigned, Shard};
use crate::keyed::{Quotas, live};
use crate::sync::Ordering;
use crate::{Quota, Which};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// The number of changes of the common quotas that may be pending in a shard, beside the last one. Each change makes
/// one shard in this many catch up.
const MAX_PENDING: usize = 16;

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
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
            self.in_shard(number, |shard, context| shard.catch_up_if_behind(context));
        }
    }

    /// Gives `key` checked quotas of its own, or with `None` the common ones again.
    pub(in crate::keyed) fn set_quotas_for(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        quotas: Option<Quotas>,
    ) -> Result<(), ConfigError> {
        self.assign(key, &quotas.map_or(Assigned::AsNew, |quotas| Assigned::Own(self.rates(quotas))))
    }

    /// Gives `key` quotas of its own: those that it has, except that `quota` replaces the one that `which` selects.
    pub(in crate::keyed) fn set_one_quota_for(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        which: Which<'_>,
        quota: Quota,
    ) -> Result<(), ConfigError> {
        let hash = self.hash(key);
        // The other quotas are read and written under one lock, so that a change of another one meanwhile is not
        // undone.
        let entered = self.enter(key, hash, false, |shard, request, context| {
            let quotas = match shard.rates_of(request, context)?.quotas.with(which, quota) {
                Ok(quotas) => quotas,
                Err(error) => return Ok(Err(error)),
            };
            let assigned = Assigned::Own(Arc::new(Rates::new(quotas, Some(&self.template.calendars))));
            let stale = shard.set_quotas_for(request, &assigned, context)?;
            Ok(Ok(stale.map(|(live, rates)| (live, rates, shard.quota_version()))))
        });
        match entered {
            Entered::Done(Ok(stale)) => {
                self.deliver(hash, stale);
                Ok(())
            }
            Entered::Done(Err(error)) => Err(error),
            Entered::Refused(error) => Err(error),
            Entered::Live(_) => Err(self.no_place()),
        }
    }

    /// Asks `quota_by` again for the quotas of all keys in memory that have none of their own.
    pub(in crate::keyed) fn renew_quotas(&self) {
        if self.common_rates().is_some() {
            return;
        }
        for number in 0..self.shards.len() {
            let keys = self.list_shard(number).0.into_iter().filter(|listed| !listed.pinned).map(|listed| listed.key);
            keys.for_each(|key| _ = self.assign(&key, &Assigned::AsNewUnlessOwn));
            // The list held live entries, so a sweep meanwhile may have found them in use.
            self.key_limit.idle_now(number);
        }
    }

    fn assign(&self, key: &(impl ToKey<K> + ?Sized), assigned: &Assigned) -> Result<(), ConfigError> {
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |shard, request, context| {
            let stale = shard.set_quotas_for(request, assigned, context)?;
            Ok(stale.map(|(live, rates)| (live, rates, shard.quota_version())))
        });
        match entered {
            Entered::Done(stale) => {
                self.deliver(hash, stale);
                Ok(())
            }
            Entered::Refused(error) => Err(error),
            Entered::Live(_) => Err(self.no_place()),
        }
    }

    /// Gives the live entry of a key, if it has one, its new quotas.
    fn deliver(&self, hash: u64, stale: Option<(Arc<Core>, Arc<Rates>, u32)>) {
        if let Some((live, rates, quota_version)) = stale {
            live::set_quotas(&live, &rates, quota_version);
            self.let_go(hash, live);
        }
    }

    /// Puts all keys in dry run, or enforces their quotas again.
    pub(in crate::keyed) fn set_dry_run(&self, is_on: bool) {
        self.template.dry_run.set(is_on);
        self.visit_all(|_| {}, |live| live::refresh_dry_run(live, &self.template));
    }

    pub(in crate::keyed) fn close(&self) {
        // Some keys are closed already: a panic of the clock must not leave the waiters of the other keys.
        self.visit_all(Shard::close, |live| live.close_anyway());
    }

    /// Calls `in_shard` under the lock of each shard, and then, without that lock, `on_live` on the shard's live
    /// entries.
    pub(super) fn visit_all(&self, in_shard: impl Fn(&mut Shard<K>), on_live: impl Fn(&Arc<Core>)) {
        for number in 0..self.shards.len() {
            let live_entries: Vec<Arc<Core>> = self.in_shard(number, |shard, _| {
                in_shard(shard);
                shard.live_entries().cloned().collect()
            });
            live_entries.iter().for_each(&on_live);
            drop(live_entries);
            // A sweep meanwhile may have found the live entries in use.
            self.key_limit.idle_now(number);
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
                self.in_shard(number, |shard, _| shard.live_entries().cloned().collect());
            live_entries.iter().for_each(|live| live.tick());
            drop(live_entries);
            let now = self.now();
            self.in_shard(number, |shard, context| shard.sweep_at(now, context));
        }
    }
}
