//! A store in memory, which tests can make slow or unreachable.

use super::{LeaseGrant, LeaseRequest, Outage, SharedBucket, Store, StoreCounters, StoreError, StoreSnapshot, Stores};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A store in the memory of this process: for tests of code that uses a distributed quota, also under paused time, and
/// for simulations of many nodes. Clones are the same store.
///
/// It answers as Redis would, and can be made slow or unreachable. Its clock, which counts the periods of calendar quotas,
/// shows the beginning of 1970 when the store is made: [`step_clock`](Self::step_clock) moves it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, distributed::MemoryStore};
/// let store = MemoryStore::new();
/// let one = Limiter::builder().quota(Quota::per_second(10)).distributed(store.clone()).build()?;
/// let two = Limiter::builder().quota(Quota::per_second(10)).distributed(store).build()?;
/// one.wait(7).await?;
/// two.wait(3).await?; // these were the burst of both
/// let begun = tokio::time::Instant::now();
/// two.wait(1).await?;
/// assert!(begun.elapsed() >= std::time::Duration::from_millis(100));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryStore {
    server: Arc<Mutex<Server>>,
    /// When the store was made.
    began: Instant,
    /// The quoted names of the stores from the outermost to this one, so that no two stores have the same key.
    key: Arc<str>,
    tally: Arc<StoreCounters>,
    outage: Outage,
    quota_version: u32,
}

/// Plays the part of the server: all buckets, and the simulated network.
#[derive(Debug, Default)]
struct Server {
    buckets: HashMap<Arc<str>, SharedBucket>,
    /// At this number of buckets, those that need not be remembered are removed.
    sweep_at: usize,
    /// The offset of the store's clock from the time since the store was made, in microseconds.
    skew: i64,
    latency: Duration,
    is_out: bool,
    asks: u64,
    /// How many of the next answers are lost.
    to_lose: u64,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self {
            server: Arc::default(),
            began: Instant::now(),
            key: "".into(),
            tally: Arc::default(),
            outage: Outage::Wait,
            quota_version: 0,
        }
    }

    /// Creates another store in the same memory, with the same latency and reachability.
    pub fn beside(&self, name: &str) -> Self {
        Self { key: format!("{name:?}").into(), tally: Arc::default(), ..self.clone() }
    }

    /// Sets the behavior of limiters built with this clone while the store cannot be reached. The last call
    /// counts.
    #[must_use = "this returns the changed store"]
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// Sets the [version](Store::quota_version) of the quotas of limiters built with this store. The last call counts.
    #[must_use = "this returns the changed store"]
    pub fn quota_version(mut self, version: u32) -> Self {
        self.quota_version = version;
        self
    }

    /// Sets the latency: from now on a request takes `latency` to arrive, and its answer as long to come back.
    pub fn set_latency(&self, latency: Duration) {
        self.server().latency = latency;
    }

    /// Sets whether the store can be reached from now on.
    pub fn set_reachable(&self, reachable: bool) {
        self.server().is_out = !reachable;
    }

    /// Makes the store carry out the next `count` requests and lose the answers.
    pub fn lose_answers(&self, count: u64) {
        self.server().to_lose = count;
    }

    /// Moves the store's clock by `micros` microseconds, forward or back.
    pub fn step_clock(&self, micros: i64) {
        self.server().skew += micros;
    }

    /// Returns the counters of the limiters that use this store or a clone of it; for a keyed limiter, of all its keys.
    pub fn snapshot(&self) -> StoreSnapshot {
        self.tally.snapshot()
    }

    /// Forgets all buckets, like a Redis server that restarted empty.
    pub fn forget(&self) {
        self.server().buckets.clear();
    }

    /// Returns how many requests this store and the others in the same memory have answered.
    pub fn asks(&self) -> u64 {
        self.server().asks
    }

    /// Answers a request as of `micros` microseconds of the store's clock, like one call of the script.
    ///
    /// # Errors
    ///
    /// [`StoreError::QuotaConflict`] if the request has a different quota than the store and the same version;
    /// [`StoreError::Refused`] if a later request has overtaken it, or the store owes too many tokens.
    pub fn answer(&self, ask: &LeaseRequest, micros: u64) -> Result<LeaseGrant, StoreError> {
        self.server().answer(&self.key, ask, micros as i64)
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn answer_now(&self, ask: &LeaseRequest) -> Result<LeaseGrant, StoreError> {
        let mut server = self.server();
        if server.is_out {
            return Err(StoreError::Unreachable(
                "`set_reachable(false)` was called: call `set_reachable(true)`".to_owned(),
            ));
        }
        let now = self.began.elapsed().as_micros() as i64 + server.skew;
        let answer = server.answer(&self.key, ask, now);
        if server.to_lose > 0 {
            server.to_lose -= 1;
            return Err(StoreError::Unreachable("`lose_answers` made the store lose the answer".to_owned()));
        }
        answer
    }
}

impl Stores for MemoryStore {
    fn named(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Self { key: format!("{}.{name:?}", self.key).into(), ..self.clone() })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            let latency = self.server().latency;
            if latency.is_zero() {
                return self.answer_now(&ask);
            }
            sleep(latency).await;
            let answer = self.answer_now(&ask);
            sleep(latency).await;
            answer
        })
    }

    fn tally(&self) -> &StoreCounters {
        &self.tally
    }

    fn outage(&self) -> Outage {
        self.outage
    }

    fn quota_version(&self) -> u32 {
        self.quota_version
    }
}

impl Server {
    fn answer(&mut self, key: &Arc<str>, ask: &LeaseRequest, now: i64) -> Result<LeaseGrant, StoreError> {
        self.asks += 1;
        if self.buckets.get(key).is_some_and(|bucket| bucket.is_forgotten(now)) {
            self.buckets.remove(key);
        }
        if self.buckets.len() >= self.sweep_at {
            self.buckets.retain(|_, bucket| !bucket.is_forgotten(now));
            self.sweep_at = (2 * self.buckets.len()).max(64);
        }
        self.buckets.entry(Arc::clone(key)).or_insert_with(|| SharedBucket::new(ask.terms, now)).answer(ask, now)
    }
}
