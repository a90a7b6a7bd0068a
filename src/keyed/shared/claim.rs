//! The future that waits for tokens of a key, whichever way it goes.

use super::asking::Asked;
use super::core::{Core, Course};
use super::grant::SharedKeyedGrant;
use crate::Limiter;
use crate::consume::{ConsumeOwned, WithinOwned};
use crate::coop::pay;
use crate::error::ConsumeError;
use crate::lease::{Outage, Terms};
use crate::state::MOST_COST;
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

/// The future of [`SharedKeyedLimiter::consume`](super::SharedKeyedLimiter::consume).
///
/// # Cancel safety
///
/// It can be dropped at any time. While it waits in line that is as with [`Consume`](crate::Consume). While it asks for a key that
/// has no limiter here, its tokens may be taken already: then they are lost.
///
/// # Panics
///
/// As [`Consume`](crate::Consume). And where `Hash`, `Eq` or `Clone` of the key do, the function that names it, or `quota_by`.
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
pub struct SharedKeyedConsume<'k, K: Clone, S> {
    core: Arc<Core<K, S>>,
    key: Cow<'k, K>,
    hash: u64,
    cost: u64,
    allowed: Option<Duration>,
    /// From when on its patience counts, in the limiter's nanoseconds.
    since: u64,
    #[pin]
    way: Way,
}

#[pin_project(project = OnItsWay)]
enum Way {
    Nowhere,
    Asking(Pin<Box<dyn Future<Output = Asked> + Send>>),
    InLine(#[pin] ConsumeOwned),
    Hurried(#[pin] WithinOwned),
    Done,
}

impl<'k, K, S> SharedKeyedConsume<'k, K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn new(core: &Arc<Core<K, S>>, key: Cow<'k, K>, cost: u64) -> Self {
        let core = Arc::clone(core);
        Self { hash: core.hash(&key), core, key, cost, allowed: None, since: 0, way: Way::Nowhere }
    }

    /// Waits for `allowed` at most, or not at all with `Duration::ZERO`. To be said before the first poll.
    ///
    /// Refuses with [`TooLate`](ConsumeError::TooLate) if the line says that the wait would be longer: the first caller after a
    /// round trip, and all others at once, without asking, until the tokens can be there. Ends with
    /// [`TimedOut`](ConsumeError::TimedOut) if a line of callers takes longer.
    ///
    /// The ask of a claim whose key has no limiter here is not cut short, since its tokens may be taken already: so an answer can
    /// come a round trip later, or the [`patience`](crate::RedisLine::patience) of a line that is out of reach.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{ConsumeError, KeyedLimiter, Quota, lease::MemoryLine};
    /// let lines = MemoryLine::new();
    /// let users = KeyedLimiter::builder().quota(Quota::per_minute(1)).shared(lines.clone()).build()?;
    /// users.consume(&"ann", 1).await?;
    /// for _ in 0..1_000 {
    ///     let refused = users.consume(&"ann", 1).within(Duration::from_millis(50)).await;
    ///     assert!(matches!(refused, Err(ConsumeError::TooLate { estimate, .. }) if estimate.as_secs() == 60));
    /// }
    /// assert_eq!(lines.asks(), 1);
    /// # Ok(()) }
    /// ```
    pub fn within(mut self, allowed: Duration) -> Self {
        self.allowed = Some(allowed);
        self
    }
}

/// What is to be done next: to go this way, or to answer.
type Next<K, S> = ControlFlow<Result<SharedKeyedGrant<K, S>, ConsumeError>, Way>;

/// A claim that has not found its way yet.
struct Seeker<'a, K, S> {
    core: &'a Arc<Core<K, S>>,
    key: &'a K,
    hash: u64,
    cost: u64,
    allowed: Option<Duration>,
    since: u64,
}

impl<K, S> Seeker<'_, K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn begin(&self) -> Next<K, S> {
        let cost = self.cost;
        if self.core.is_closed() {
            return Next::Break(Err(ConsumeError::Closed));
        }
        if cost == 0 {
            return self.granted(0);
        }
        let terms = self.core.terms(self.key);
        let most = MOST_COST.min(terms.most_claimed());
        if cost > most {
            return Next::Break(Err(ConsumeError::TooLarge { cost, most }));
        }
        match self.core.course(self.key, self.hash, &terms, cost, self.since) {
            Course::Limiter(limiter) => self.stand_in_line(limiter),
            Course::Later { at, .. } => {
                let next = self.wait_until(at);
                if matches!(next, Next::Break(Err(ConsumeError::TooLate { .. }))) {
                    self.core.spare();
                }
                next
            }
            // It is never there at once.
            Course::Ask if cost > terms.burst() => self.wait(),
            Course::Ask => self.ask(terms),
        }
    }

    /// Asks, or has the key's limiter ask if that happens often.
    fn ask(&self, terms: Terms) -> Next<K, S> {
        if Handle::try_current().is_err() {
            return Next::Break(Err(ConsumeError::NoRuntime));
        }
        let is_rare = self.core.shelves.note(self.key, self.hash, self.since, |said| said.count(self.since));
        // A limiter never has more at once than may be kept; and where there is no place for one, an ask for each claim will do.
        if !is_rare
            && self.cost <= terms.most_held()
            && let Some(limiter) = self.core.limiter(self.key, self.hash, false)
        {
            return self.stand_in_line(limiter);
        }
        let (core, key, hash, cost) = (Arc::clone(self.core), self.key.clone(), self.hash, self.cost);
        let allowed = self.allowed;
        Next::Continue(Way::Asking(Box::pin(async move { core.ask(&key, hash, terms, cost, allowed).await })))
    }

    /// The line has answered, or cannot be reached.
    fn go_on(&self, asked: Asked) -> Next<K, S> {
        match asked {
            Asked::Granted { remaining } => self.granted(remaining),
            Asked::NotThere => {
                let terms = self.core.terms(self.key);
                match self.core.course(self.key, self.hash, &terms, self.cost, self.since) {
                    Course::Limiter(limiter) => self.stand_in_line(limiter),
                    Course::Later { at, .. } => self.wait_until(at),
                    Course::Ask => self.wait(),
                }
            }
            Asked::TimedOut { waited } => Next::Break(Err(ConsumeError::TimedOut { waited })),
            Asked::Failed | Asked::NotSent if self.core.lines.outage() == Outage::Fail => {
                Next::Break(Err(ConsumeError::Unreachable))
            }
            Asked::Failed | Asked::NotSent => self.wait(),
        }
    }

    fn granted(&self, remaining: u64) -> Next<K, S> {
        Next::Break(Ok(SharedKeyedGrant::of_line(self.core, self.key.clone(), self.hash, self.cost, remaining)))
    }

    /// Its tokens come at `at` at the earliest.
    fn wait_until(&self, at: u64) -> Next<K, S> {
        let estimate = Duration::from_nanos(at.saturating_sub(self.since));
        match self.allowed {
            Some(allowed) if estimate > allowed => Next::Break(Err(ConsumeError::TooLate { estimate, allowed })),
            _ => self.wait(),
        }
    }

    /// Waits in the line of the key's limiter.
    fn wait(&self) -> Next<K, S> {
        match self.core.limiter(self.key, self.hash, false) {
            Some(limiter) => self.stand_in_line(limiter),
            None => Next::Break(Err(self.core.too_many())),
        }
    }

    fn stand_in_line(&self, limiter: Limiter) -> Next<K, S> {
        let claim = limiter.consume_owned(self.cost);
        Next::Continue(match self.allowed {
            Some(allowed) => Way::Hurried(claim.within(allowed)),
            None => Way::InLine(claim),
        })
    }
}

impl<K, S> Future for SharedKeyedConsume<'_, K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type Output = Result<SharedKeyedGrant<K, S>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            // The claims in line pay for themselves.
            let budget = match this.way.as_mut().project() {
                OnItsWay::InLine(_) | OnItsWay::Hurried(_) => None,
                _ => Some(ready!(poll_proceed(cx))),
            };
            let asked = match this.way.as_mut().project() {
                OnItsWay::InLine(claim) => return claim.poll(cx).map_ok(SharedKeyedGrant::of_limiter),
                OnItsWay::Hurried(claim) => {
                    let answer = ready!(claim.poll(cx));
                    if matches!(answer, Err(ConsumeError::TimedOut { .. })) {
                        this.core.miss(this.key, *this.hash, *this.cost);
                    }
                    return Poll::Ready(answer.map(SharedKeyedGrant::of_limiter));
                }
                OnItsWay::Asking(asking) => Some(ready!(asking.as_mut().poll(cx))),
                OnItsWay::Nowhere => None,
                OnItsWay::Done => panic!("polled after it was ready"),
            };
            *this.since = this.core.time.now();
            let (hash, cost, allowed, since) = (*this.hash, *this.cost, *this.allowed, *this.since);
            let seeker = Seeker { core: this.core, key: &**this.key, hash, cost, allowed, since };
            match asked.map_or_else(|| seeker.begin(), |asked| seeker.go_on(asked)) {
                Next::Continue(way) => this.way.set(way),
                Next::Break(answer) => {
                    this.way.set(Way::Done);
                    budget.map(pay);
                    return Poll::Ready(answer);
                }
            }
        }
    }
}

impl<K: Clone, S> fmt::Debug for SharedKeyedConsume<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            Way::Nowhere => "nowhere",
            Way::Asking(_) => "asking",
            Way::InLine(_) | Way::Hurried(_) => "in line",
            Way::Done => "done",
        };
        f.debug_struct("SharedKeyedConsume").field("cost", &self.cost).field("way", &way).finish_non_exhaustive()
    }
}
