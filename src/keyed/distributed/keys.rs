//! The operations of limiters, claims and grants on the keys.

use super::claim::Router;
use super::map::{DistributedMap, Route};
use super::route_shard::Found;
use crate::clock::whole_nanos;
use crate::error::{Bound, ConfigError, Denied, TryAcquireError};
use crate::keyed::keys::{DistributedKeys, Request, Step};
use crate::keyed::map::Taken;
use crate::keyed::{KeyedEntry, KeyedSnapshot, Quotas};
use crate::observe::Observers;
use crate::permit::Permit;
use crate::sync::Ordering;
use crate::{Limiter, QuotaSnapshot};
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl<K, S> DistributedKeys<K> for DistributedMap<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn hash(&self, key: &K) -> u64 {
        DistributedMap::hash(self, key)
    }

    fn begin(&self, request: &Request<'_, K>) -> Step {
        Router::of(self, request).begin()
    }

    fn try_acquire(&self, key: &K, hash: u64, cost: u64) -> Result<Taken, TryAcquireError> {
        let limiter = match self.try_route(key, hash, cost) {
            Ok(Some(limiter)) => limiter,
            Ok(None) => return Ok(Taken::whole(0)),
            Err(error) => {
                self.count_refusal();
                self.observers.refused(cost, error);
                return Err(error);
            }
        };
        // The limiter reports its own refusals.
        let core = limiter.into_core();
        let answer = core.try_acquire(cost).map(|remaining| Taken::of_permit(Permit::new(core, cost, remaining), true));
        if answer.is_err() {
            self.count_refusal();
        }
        answer
    }

    fn missed(&self, key: &K, hash: u64, cost: u64) {
        if let Some(limiter) = self.limiter_here(key, hash)
            && self.terms(key).is_ok_and(|terms| cost <= terms.most_held())
        {
            limiter.core().miss(cost);
        }
    }

    fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    fn resettle(&self, key: &K, hash: u64, cost: u64, actual: u64) -> u64 {
        if actual > cost {
            let limiter = self.place(key, hash, true);
            return cost + limiter.map_or(0, |limiter| limiter.core().resettle(0, actual - cost));
        }
        if actual < cost
            && let Some(limiter) = self.limiter_here(key, hash)
        {
            limiter.core().resettle(cost, actual);
        }
        actual
    }

    fn limiter(&self, key: &K) -> Result<Limiter, ConfigError> {
        self.place(key, self.hash(key), false).ok_or_else(|| self.no_place(key))
    }

    fn available(&self, key: &K) -> u64 {
        match self.shards.find(key, self.hash(key)) {
            Found::Limiter(limiter) => limiter.available(),
            Found::CachedReply(cached) => cached.remaining(),
            Found::Nothing => 0,
        }
    }

    fn deficiency(&self, key: &K) -> u64 {
        self.limiter_here(key, self.hash(key)).map_or(0, |limiter| limiter.deficiency())
    }

    fn estimate(&self, key: &K, cost: u64) -> Option<Duration> {
        let now = self.time.now();
        if cost == 0 && !self.is_closed() {
            return Some(Duration::ZERO);
        }
        match self.route(key, self.hash(key), &self.terms(key).ok()?, cost, now) {
            Route::Limiter(limiter) => limiter.estimate(cost),
            Route::Later { at, .. } => Some(Duration::from_nanos(at - now)),
            Route::Request | Route::Paused => None,
        }
    }

    fn quotas(&self, key: &K) -> Quotas {
        self.named_quota(key).map_or_else(|_| Quotas::default(), |quota| Quotas::default().and(quota))
    }

    fn quota_snapshots(&self, key: &K) -> Vec<QuotaSnapshot> {
        if let Some(limiter) = self.limiter_here(key, self.hash(key)) {
            return limiter.snapshot().quotas;
        }
        let available = self.available(key);
        let more_in = self.estimate(key, available.saturating_add(1));
        let Ok((name, quota)) = self.named_quota(key) else { return Vec::new() };
        vec![QuotaSnapshot {
            name,
            quota,
            head: 0,
            level: available as i64,
            available,
            more_in,
            dry_run: false,
            would_refuse: 0,
        }]
    }

    fn pause_for(&self, key: &K, duration: Duration) {
        if let Some(limiter) = self.place(key, self.hash(key), true) {
            limiter.pause_for(duration);
        }
    }

    fn pause_all_for(&self, duration: Duration) {
        let gate = self.time.now().saturating_add(whole_nanos(duration));
        // First, so that a limiter that is created meanwhile is paused too.
        self.paused_until.fetch_max(gate, Ordering::AcqRel);
        self.shards.each_limiter(|limiter| self.refresh_pause(limiter));
    }

    fn resume(&self, key: &K) {
        if let Some(limiter) = self.limiter_here(key, self.hash(key)) {
            limiter.resume();
        }
    }

    fn resume_all(&self) {
        self.paused_until.store(0, Ordering::Release);
        self.shards.each_limiter(|limiter| self.refresh_pause(limiter));
    }

    fn replenish(&self, key: &K, tokens: u64) {
        if let Some(limiter) = self.place(key, self.hash(key), true) {
            limiter.replenish(tokens);
        }
    }

    fn entries(&self) -> Vec<KeyedEntry<K>> {
        self.shards.each_entry(|key, limiter| {
            limiter.core().look_at(|state, rovers, _| KeyedEntry {
                key,
                available: state.available(rovers),
                deficiency: state.deficiency(rovers),
                waiting_tasks: state.queue.len(),
                in_flight: None,
            })
        })
    }

    fn snapshot(&self) -> KeyedSnapshot<K> {
        let mut snapshot = KeyedSnapshot {
            refused: self.refused.load(Relaxed),
            closed: self.is_closed(),
            cached: self.shards.cached(),
            spared: self.spared.load(Relaxed),
            store: Some(self.stores.tally().snapshot()),
            ..KeyedSnapshot::empty(Vec::new())
        };
        snapshot.count((self.granted.load(Relaxed), 0));
        snapshot.count(self.shards.forgotten());
        self.shards.each_limiter(|limiter| {
            snapshot.keys += 1;
            snapshot.kept += limiter.available();
            snapshot.add(limiter.core());
        });
        snapshot
    }

    fn observers(&self) -> &Observers {
        &self.observers
    }

    fn is_closed(&self) -> bool {
        DistributedMap::is_closed(self)
    }

    fn close(&self) {
        DistributedMap::close(self);
    }
}

impl<K, S> DistributedMap<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Gives the limiter of a key the pause of all keys as it is now. Its end is read under the limiter's lock, so after
    /// several concurrent changes the limiter has the last one.
    pub(super) fn refresh_pause(&self, limiter: &Limiter) {
        let core = limiter.core();
        core.with(|state, rovers, _| {
            let gate = core.time.translate(&self.time, self.paused_until.load(Ordering::Acquire));
            state.pause_in_common(rovers, u64::try_from(gate.max(0)).unwrap_or(u64::MAX));
        });
    }

    /// The limiter that a `try_acquire` of `cost` asks; `None` if nothing is asked for.
    fn try_route(&self, key: &K, hash: u64, cost: u64) -> Result<Option<Limiter>, TryAcquireError> {
        if self.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(None);
        }
        let terms = self.terms(key).map_err(|error| TryAcquireError::of_key(&error))?;
        if cost > terms.most_held() {
            let (most, quota_name) = (terms.most_held(), self.quota_name(key).text());
            return Err(TryAcquireError::TooLarge { cost, most, by: Bound::Quota(0), quota_name });
        }
        let now = self.time.now();
        let limiter = match self.route(key, hash, &terms, cost, now) {
            Route::Limiter(limiter) => Some(limiter),
            Route::Later { at, remaining, .. } => {
                self.count_spared();
                let retry_after = Some(Duration::from_nanos(at - now));
                let name = self.quota_name(key);
                return Err(Denied { retry_after, remaining, by: Bound::Quota(0), name }.into());
            }
            Route::Request | Route::Paused => self.place(key, hash, false),
        };
        limiter.map(Some).ok_or_else(|| TryAcquireError::of_key(&self.no_place(key)))
    }
}
