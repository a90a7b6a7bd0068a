//! The state that all clones of a distributed keyed limiter share.

use super::route_shard::RouteShards;
use crate::clock::Time;
use crate::distributed::{QuotaTerms, Stores};
use crate::error::QuotaError;
use crate::keyed::quotas::{NamedQuota, check_quota};
use crate::name::Name;
use crate::observe::Observers;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::{Limiter, Quota};
use std::fmt;
use std::hash::RandomState;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

/// The interval between searches for limiters to forget, while there are any.
const TIDY_INTERVAL: Duration = Duration::from_millis(500);
/// The shortest interval, in nanoseconds, between the extra searches that run when a new key finds no place.
const MIN_TIDY_INTERVAL: u64 = 20_000_000;

/// Returns the text of a key, which names its store.
pub(super) type Namer<K> = Box<dyn Fn(&K) -> String + Send + Sync>;
/// Chooses the quota of a key.
pub(super) type QuotaBy<K> = Box<dyn Fn(&K) -> Quota + Send + Sync>;

pub(super) struct DistributedMap<K> {
    pub(super) hasher: RandomState,
    pub(super) quota: NamedQuota,
    pub(super) quota_by: Option<QuotaBy<K>>,
    pub(super) max_waiting: u64,
    pub(super) stores: Arc<dyn Stores>,
    pub(super) name: Namer<K>,
    pub(super) shards: RouteShards<K>,
    pub(super) time: Time,
    /// The runtime on which the limiter's tasks run.
    pub(super) host: Handle,
    /// The task that searches for limiters to forget, while there are any.
    pub(super) tidier: Mutex<Option<JoinHandle<()>>>,
    /// The instant of the last extra search, in nanoseconds; see [`MIN_TIDY_INTERVAL`].
    pub(super) tidied_at: AtomicU64,
    pub(super) closed: AtomicBool,
    /// Tells callers with unsent requests that the limiter was closed.
    pub(super) closing: Notify,
    /// How many callers were refused by a cached reply.
    pub(super) spared: AtomicU64,
    /// How many calls were refused.
    pub(super) refused: AtomicU64,
    /// The observers of waits and refusals, for all keys together.
    pub(super) observers: Observers,
}

impl<K> DistributedMap<K> {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        self.shards.each_limiter(Limiter::close);
    }

    /// Waits until the limiter is closed.
    pub(super) async fn closing(&self) {
        let closing = self.closing.notified();
        if !self.is_closed() {
            closing.await;
        }
    }

    /// The name of the quota of all keys, for a refusal.
    pub(super) fn quota_name(&self) -> Name {
        self.quota.0.as_ref().map_or(Name::NONE, |name| Name::of(name))
    }

    /// Counts a call that was refused.
    pub(super) fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Forgets some limiters at rest, for a caller that found no place. Returns false if this frees no place, or if it was
    /// tried just before.
    pub(super) fn tidy_out_of_turn(&self) -> bool {
        let (now, last) = (self.time.now(), self.tidied_at.load(Ordering::Acquire));
        let is_mine = now >= last.saturating_add(MIN_TIDY_INTERVAL)
            && self.tidied_at.compare_exchange(last, now, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if is_mine {
            self.shards.tidy_some();
        }
        self.shards.limiters() < self.shards.most
    }

    /// Forgets the limiters that are at rest, until there are none.
    async fn tidy(map: Weak<Self>) {
        loop {
            sleep(TIDY_INTERVAL).await;
            let count = map.upgrade().map_or(0, |map| map.shards.count());
            for _ in 0..count {
                map.upgrade().into_iter().for_each(|map| _ = map.shards.tidy_next());
                // So that other tasks run.
                yield_now().await;
            }
            let Some(map) = map.upgrade() else { return };
            let mut tidier = map.tidier.lock();
            if map.shards.limiters() == 0 {
                *tidier = None;
                return;
            }
        }
    }
}

impl<K: Send + Sync + 'static> DistributedMap<K> {
    /// Forgets limiters that are at rest from now on, now that there is one.
    pub(super) fn tidy_from_now_on(self: &Arc<Self>) {
        let mut tidier = self.tidier.lock();
        // A task ends with its runtime. If the host runtime is gone, the current one is used.
        for host in [Some(self.host.clone()), Handle::try_current().ok()].into_iter().flatten() {
            if tidier.as_ref().is_none_or(JoinHandle::is_finished) {
                *tidier = Some(host.spawn(Self::tidy(Arc::downgrade(self))));
            }
        }
    }
}

/// The locks do not poison. `Eq` and `Clone` of keys run under them, and a panic there leaves the keys as they were.
impl<K> UnwindSafe for DistributedMap<K> {}
impl<K> RefUnwindSafe for DistributedMap<K> {}

impl<K> fmt::Debug for DistributedMap<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedMap")
            .field("stores", &self.stores)
            .field("limiters", &self.shards.limiters())
            .finish_non_exhaustive()
    }
}

/// Converts and checks the quota of a key.
pub(super) fn terms(quota: &Quota) -> Result<QuotaTerms, QuotaError> {
    check_quota(quota)?;
    QuotaTerms::of(quota)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::sleep;
    use crate::core::steps;
    use crate::distributed::MemoryStore;
    use crate::{DistributedKeyedLimiter, Quota};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_finds_no_place_looks_at_a_bounded_number_of_keys() {
        let builder = DistributedKeyedLimiter::builder(MemoryStore::new()).quota(Quota::per_second(10));
        let users = builder.max_keys(10_000).build().unwrap();
        (0..10_000).for_each(|key: u64| _ = users.try_acquire(&key, 1));
        sleep(Duration::from_millis(30)).await;
        steps::take();
        assert!(users.try_acquire(&10_000, 1).is_err());
        let steps = steps::take();
        assert!((1..3_000).contains(&steps), "{steps}");
    }
}
