//! The future that waits for tokens of a key, through a single request or through the key's limiter.

use super::asking::StoreReply;
use super::grant::DistributedKeyedGrant;
use super::map::{DistributedMap, Route};
use crate::Limiter;
use crate::consume::{ConsumeOwned, WithinOwned};
use crate::core::coop::pay;
use crate::core::state::MAX_COST;
use crate::distributed::{Outage, QuotaTerms};
use crate::error::ConsumeError;
use pin_project::pin_project;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::coop::poll_proceed;

/// The future of [`DistributedKeyedLimiter::consume`](super::DistributedKeyedLimiter::consume).
///
/// # Cancel safety
///
/// It can be dropped at any time. While it waits in the queue of the key's limiter, it behaves like
/// [`Consume`](crate::Consume). While its request for a key without a limiter is under way, the store may have granted
/// its tokens already: then they are lost.
///
/// # Panics
///
/// As [`Consume`](crate::Consume). Also if `Hash`, `Eq` or `Clone` of the key panics, the function that names it, or
/// `quota_by`.
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
pub struct DistributedKeyedConsume<'k, K: Clone, S> {
    map: Arc<DistributedMap<K, S>>,
    key: Cow<'k, K>,
    hash: u64,
    cost: u64,
    allowed: Option<Duration>,
    /// The start of the allowed wait, in the limiter's nanoseconds.
    since: u64,
    #[pin]
    stage: Stage,
}

#[pin_project(project = StageProjection)]
enum Stage {
    New,
    Asking(Pin<Box<dyn Future<Output = StoreReply> + Send>>),
    Queued(#[pin] ConsumeOwned),
    WithDeadline(#[pin] WithinOwned),
    Done,
}

impl<'k, K, S> DistributedKeyedConsume<'k, K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(map: &Arc<DistributedMap<K, S>>, key: Cow<'k, K>, cost: u64) -> Self {
        let map = Arc::clone(map);
        Self { hash: map.hash(&key), map, key, cost, allowed: None, since: 0, stage: Stage::New }
    }

    /// Waits for `allowed` at most; with `Duration::ZERO`, does not wait at all. Call this before the first poll.
    ///
    /// Fails with [`TooLate`](ConsumeError::TooLate) if the wait would be longer, by the store's reply. The first
    /// caller learns this after a round trip. All others learn it at once, without a request, until the tokens can be
    /// available. Fails with [`TimedOut`](ConsumeError::TimedOut) if a queue of callers takes longer.
    ///
    /// The request for a key without a limiter here is not cut short, because its tokens may already be
    /// granted. So the result can be late by a round trip, or by the time after which an unreachable store gives up
    /// (`RedisStore::patience` in Redis).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{ConsumeError, KeyedLimiter, Quota, distributed::MemoryStore};
    /// let stores = MemoryStore::new();
    /// let users = KeyedLimiter::builder().quota(Quota::per_minute(1)).distributed(stores.clone()).build()?;
    /// users.consume(&"ann", 1).await?;
    /// for _ in 0..1_000 {
    ///     let refused = users.consume(&"ann", 1).within(Duration::from_millis(50)).await;
    ///     assert!(matches!(refused, Err(ConsumeError::TooLate { estimate, .. }) if estimate.as_secs() == 60));
    /// }
    /// assert_eq!(stores.asks(), 1);
    /// # Ok(()) }
    /// ```
    pub fn within(mut self, allowed: Duration) -> Self {
        self.allowed = Some(allowed);
        self
    }
}

/// The next step: continue with this stage, or complete with this result.
type Next<K, S> = ControlFlow<Result<DistributedKeyedGrant<K, S>, ConsumeError>, Stage>;

/// A claim without a route yet.
struct Router<'a, K, S> {
    map: &'a Arc<DistributedMap<K, S>>,
    key: &'a K,
    hash: u64,
    cost: u64,
    allowed: Option<Duration>,
    since: u64,
}

impl<K, S> Router<'_, K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn begin(&self) -> Next<K, S> {
        let cost = self.cost;
        if self.map.is_closed() {
            return Next::Break(Err(ConsumeError::Closed));
        }
        if cost == 0 {
            return self.granted(0);
        }
        let terms = self.map.terms(self.key);
        let most = MAX_COST.min(terms.most_claimed());
        if cost > most {
            return Next::Break(Err(ConsumeError::TooLarge { cost, most }));
        }
        match self.map.route(self.key, self.hash, &terms, cost, self.since) {
            Route::Limiter(limiter) => self.wait_in_queue(limiter),
            Route::Later { at, .. } => {
                let next = self.wait_until(at);
                if matches!(next, Next::Break(Err(ConsumeError::TooLate { .. }))) {
                    self.map.spare();
                }
                next
            }
            // So many tokens are never available at once.
            Route::Request if cost > terms.burst() => self.wait(),
            Route::Request => self.ask(terms),
        }
    }

    /// Sends a request, or lets the key's limiter send it if the key has frequent requests.
    fn ask(&self, terms: QuotaTerms) -> Next<K, S> {
        if Handle::try_current().is_err() {
            return Next::Break(Err(ConsumeError::NoRuntime));
        }
        let is_rare = self.map.shards.note(self.key, self.hash, self.since, |cached| cached.count(self.since));
        // A limiter never has more tokens at once than its allowance. If there is no place for a limiter, one request
        // per claim is good enough.
        if !is_rare
            && self.cost <= terms.most_held()
            && let Some(limiter) = self.map.limiter(self.key, self.hash, false)
        {
            return self.wait_in_queue(limiter);
        }
        let (map, key, hash, cost) = (Arc::clone(self.map), self.key.clone(), self.hash, self.cost);
        let allowed = self.allowed;
        Next::Continue(Stage::Asking(Box::pin(async move { map.ask(&key, hash, terms, cost, allowed).await })))
    }

    /// Continues after the store has answered, or could not be reached.
    fn go_on(&self, asked: StoreReply) -> Next<K, S> {
        match asked {
            StoreReply::Granted { remaining } => self.granted(remaining),
            StoreReply::NotThere => {
                let terms = self.map.terms(self.key);
                match self.map.route(self.key, self.hash, &terms, self.cost, self.since) {
                    Route::Limiter(limiter) => self.wait_in_queue(limiter),
                    Route::Later { at, .. } => self.wait_until(at),
                    Route::Request => self.wait(),
                }
            }
            StoreReply::TimedOut { waited } => Next::Break(Err(ConsumeError::TimedOut { waited })),
            StoreReply::Failed | StoreReply::NotSent if self.map.stores.outage() == Outage::Fail => {
                Next::Break(Err(ConsumeError::Unreachable))
            }
            StoreReply::Failed | StoreReply::NotSent => self.wait(),
        }
    }

    fn granted(&self, remaining: u64) -> Next<K, S> {
        Next::Break(Ok(DistributedKeyedGrant::of_store(self.map, self.key.clone(), self.hash, self.cost, remaining)))
    }

    /// Waits for tokens that come at `at` at the earliest, if the allowed wait covers that.
    fn wait_until(&self, at: u64) -> Next<K, S> {
        let estimate = Duration::from_nanos(at.saturating_sub(self.since));
        match self.allowed {
            Some(allowed) if estimate > allowed => Next::Break(Err(ConsumeError::TooLate { estimate, allowed })),
            _ => self.wait(),
        }
    }

    /// Waits in the queue of the key's limiter.
    fn wait(&self) -> Next<K, S> {
        match self.map.limiter(self.key, self.hash, false) {
            Some(limiter) => self.wait_in_queue(limiter),
            None => Next::Break(Err(self.map.too_many())),
        }
    }

    fn wait_in_queue(&self, limiter: Limiter) -> Next<K, S> {
        let claim = limiter.consume_owned(self.cost);
        Next::Continue(match self.allowed {
            Some(allowed) => Stage::WithDeadline(claim.within(allowed)),
            None => Stage::Queued(claim),
        })
    }
}

impl<K, S> Future for DistributedKeyedConsume<'_, K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Output = Result<DistributedKeyedGrant<K, S>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            // A claim in the queue of a limiter spends its own part of the task's budget.
            let budget = match this.stage.as_mut().project() {
                StageProjection::Queued(_) | StageProjection::WithDeadline(_) => None,
                _ => Some(ready!(poll_proceed(cx))),
            };
            let asked = match this.stage.as_mut().project() {
                StageProjection::Queued(claim) => return claim.poll(cx).map_ok(DistributedKeyedGrant::of_limiter),
                StageProjection::WithDeadline(claim) => {
                    let answer = ready!(claim.poll(cx));
                    if matches!(answer, Err(ConsumeError::TimedOut { .. })) {
                        this.map.miss(this.key, *this.hash, *this.cost);
                    }
                    return Poll::Ready(answer.map(DistributedKeyedGrant::of_limiter));
                }
                StageProjection::Asking(asking) => Some(ready!(asking.as_mut().poll(cx))),
                StageProjection::New => None,
                StageProjection::Done => panic!("polled after it was ready"),
            };
            *this.since = this.map.time.now();
            let (hash, cost, allowed, since) = (*this.hash, *this.cost, *this.allowed, *this.since);
            let router = Router { map: this.map, key: &**this.key, hash, cost, allowed, since };
            match asked.map_or_else(|| router.begin(), |asked| router.go_on(asked)) {
                Next::Continue(stage) => this.stage.set(stage),
                Next::Break(answer) => {
                    this.stage.set(Stage::Done);
                    if let Some(budget) = budget {
                        pay(budget);
                    }
                    return Poll::Ready(answer);
                }
            }
        }
    }
}

impl<K: Clone, S> fmt::Debug for DistributedKeyedConsume<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::New => "new",
            Stage::Asking(_) => "asking",
            Stage::Queued(_) | Stage::WithDeadline(_) => "queued",
            Stage::Done => "done",
        };
        f.debug_struct("DistributedKeyedConsume")
            .field("cost", &self.cost)
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}
