//! Gates: which limiter a request asks, for how many tokens, and how long it may wait.

use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::coop::poll_proceed;
use tollgate::{AsLimiter, ConsumeError, ConsumeOwned, Limiter, OwnedGrant, Refused, TryAcquireError};

/// How long a request may wait in the queue. The default is [`MaxWait::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxWait {
    /// Without a limit.
    Endless,
    /// At most this long; see [`Consume::within`](tollgate::Consume::within).
    AtMost(Duration),
    /// Not at all; see [`Limiter::try_acquire`].
    None,
}

impl MaxWait {
    /// 30 seconds: about as long as clients and proxies wait for a response. A request that would wait longer is
    /// refused at once.
    pub const DEFAULT: Self = Self::AtMost(Duration::from_secs(30));
}

impl Default for MaxWait {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Admits requests: decides which limiter a request asks and how many tokens it costs.
///
/// A [`Limiter`] or a [`Class`](tollgate::Class) is a gate that takes a token per request. [`By`] computes from the request what to take, and of which
/// limiter or key. Implement this trait for any other limiter. The future must take no tokens before it is polled, and
/// must refund the tokens that it was granted if it is dropped. A refusal for now is a
/// [`Denied::new`](tollgate::Denied::new), which the feature `http` answers with status 429.
pub trait Gate<Request> {
    /// The grant, held while the request is in flight.
    type Pass;
    /// The future that resolves to the grant.
    type Admission: Future<Output = Result<Self::Pass, Refused>>;

    /// Starts to admit `request`, which may wait for `max_wait`.
    fn admit(&self, request: &Request, max_wait: MaxWait) -> Self::Admission;
}

impl<Request, L: AsLimiter> Gate<Request> for L {
    type Pass = OwnedGrant<L>;
    type Admission = Admission<L>;

    fn admit(&self, _: &Request, max_wait: MaxWait) -> Admission<L> {
        Admission::new(self.clone(), 1, max_wait)
    }
}

/// A [`Gate`] that computes from each request the limiter or key to ask, and the cost: created by
/// [`LimitLayer::cost`](super::LimitLayer::cost), [`LimitLayer::by`](super::LimitLayer::by) and `LimitLayer::keyed`.
///
/// | `L` | the function returns | created by |
/// |---|---|---|
/// | [`Limiter`], `Class` | the cost | `cost` |
/// | [`AnyLimiter`] | the limiter or the class, and the cost | `by` |
/// | [`AnyLimiter`] | the limiter | `HeedLayer::by` |
/// | `KeyedLimiter`, `DistributedKeyedLimiter` | the key and the cost | `keyed` |
/// | `KeyedLimiter` | the key | `HeedLayer::keyed` |
pub struct By<L, F> {
    limiter: L,
    choose: Arc<F>,
}

/// The limiter of a [`By`] with a function that chooses the limiter, or the class, of each request.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyLimiter;

impl<L, F> By<L, F> {
    /// Creates a gate. `choose` returns the cost of a request, and its limiter or key: see [`By`].
    pub fn new(limiter: L, choose: F) -> Self {
        Self { limiter, choose: Arc::new(choose) }
    }

    #[cfg(feature = "http")]
    pub(crate) fn limiter(&self) -> &L {
        &self.limiter
    }

    pub(crate) fn choose<Request, T>(&self, request: &Request) -> T
    where
        F: Fn(&Request) -> T,
    {
        (self.choose)(request)
    }

    pub(crate) fn admit_chosen<T>(&self, chosen: T, max_wait: MaxWait) -> Admission<L, T>
    where
        L: Acquire<T>,
    {
        Admission::of(self.limiter.clone(), chosen, max_wait)
    }
}

impl<Request, L, F, T> Gate<Request> for By<L, F>
where
    L: Acquire<T>,
    F: Fn(&Request) -> T,
{
    type Pass = L::Pass;
    type Admission = Admission<L, T>;

    fn admit(&self, request: &Request, max_wait: MaxWait) -> Admission<L, T> {
        self.admit_chosen(self.choose(request), max_wait)
    }
}

impl<L: Clone, F> Clone for By<L, F> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), choose: Arc::clone(&self.choose) }
    }
}

impl<L: fmt::Debug, F> fmt::Debug for By<L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("By").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

/// A limiter from which a [`By`] takes the tokens that its function has chosen. The trait cannot be named outside of
/// this crate: implement [`Gate`] for other limiters.
pub trait Acquire<T>: Clone {
    /// The grant.
    type Pass;
    /// The future that waits for the grant.
    type Claim: Future<Output = Result<Self::Pass, ConsumeError>>;

    /// Waits for the grant, for at most `allowed` if that is set.
    fn claim(self, chosen: T, allowed: Option<Duration>) -> Self::Claim;

    /// Takes the tokens if they are available now.
    fn try_acquire(self, chosen: T) -> Result<Self::Pass, TryAcquireError>;

    /// True if a request over the network is needed to learn whether the tokens are available. A request that must not
    /// wait in the queue waits for this answer all the same.
    fn is_remote(&self) -> bool {
        false
    }
}

impl<L: AsLimiter> Acquire<u64> for L {
    type Pass = OwnedGrant<L>;
    type Claim = ConsumeOwned<L>;

    fn claim(self, cost: u64, allowed: Option<Duration>) -> ConsumeOwned<L> {
        let claim = self.consume_owned(cost);
        match allowed {
            Some(allowed) => claim.within(allowed),
            None => claim,
        }
    }

    fn try_acquire(self, cost: u64) -> Result<OwnedGrant<L>, TryAcquireError> {
        self.try_acquire_owned(cost)
    }
}

impl<L: AsLimiter> Acquire<(L, u64)> for AnyLimiter {
    type Pass = OwnedGrant<L>;
    type Claim = ConsumeOwned<L>;

    fn claim(self, (limiter, cost): (L, u64), allowed: Option<Duration>) -> ConsumeOwned<L> {
        limiter.claim(cost, allowed)
    }

    fn try_acquire(self, (limiter, cost): (L, u64)) -> Result<OwnedGrant<L>, TryAcquireError> {
        limiter.try_acquire_owned(cost)
    }
}

/// A claim of a request, with or without a limit on the wait.
///
/// # Cancel safety
///
/// The same as [`Consume`](tollgate::Consume), or `KeyedConsume` for a keyed limiter.
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
pub struct Admission<L: Acquire<T> = Limiter, T = u64> {
    #[pin]
    mode: Mode<L, T>,
}

#[pin_project(project = ModeProjection)]
enum Mode<L: Acquire<T>, T> {
    Wait(#[pin] L::Claim),
    /// `None` once the future has returned its result.
    Try(Option<(L, T)>),
}

impl<L: AsLimiter> Admission<L> {
    /// Creates a claim of `cost` tokens of `limiter`.
    pub fn new(limiter: L, cost: u64, max_wait: MaxWait) -> Self {
        Self::of(limiter, cost, max_wait)
    }
}

impl<L: Acquire<T>, T> Admission<L, T> {
    fn of(limiter: L, chosen: T, max_wait: MaxWait) -> Self {
        let mode = match max_wait {
            MaxWait::Endless => Mode::Wait(limiter.claim(chosen, None)),
            MaxWait::AtMost(allowed) => Mode::Wait(limiter.claim(chosen, Some(allowed))),
            MaxWait::None if limiter.is_remote() => Mode::Wait(limiter.claim(chosen, Some(Duration::ZERO))),
            MaxWait::None => Mode::Try(Some((limiter, chosen))),
        };
        Self { mode }
    }
}

impl<L: Acquire<T>, T> Future for Admission<L, T> {
    type Output = Result<L::Pass, Refused>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().mode.project() {
            ModeProjection::Wait(claim) => claim.poll(cx).map_err(Refused::InLine),
            ModeProjection::Try(limiter) => {
                // A task that awaits one ready future after the other never returns to its runtime, which then cannot
                // run the driver of the limiter. So this one pays a unit of the task's budget, as those of tollgate do.
                let budget = ready!(poll_proceed(cx));
                let (limiter, chosen) = limiter.take().expect("polled after it was ready");
                budget.made_progress();
                Poll::Ready(limiter.try_acquire(chosen).map_err(Refused::AtOnce))
            }
        }
    }
}

impl<L: Acquire<T>, T> fmt::Debug for Admission<L, T> {
    /// Omits the key, if there is one: it may identify a user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = matches!(self.mode, Mode::Wait(_));
        f.debug_struct("Admission").field("waits", &waits).finish_non_exhaustive()
    }
}
