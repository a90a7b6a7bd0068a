//! Gates: which limiter a request asks, for how many tokens, and how long it may wait.

use crate::coop::poll_paid;
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::ConsumeOwned;
use tollgate::Limiter;
use tollgate::OwnedGrant;
use tollgate::Refused;

/// How long a request may wait in the queue. The default is [`MaxWait::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxWait {
    /// As long as it takes.
    Endless,
    /// At most this long; see [`Consume::within`](tollgate::Consume::within).
    AtMost(Duration),
    /// Not at all; see [`Limiter::try_acquire`].
    None,
}

impl MaxWait {
    /// 30 seconds: about as long as clients and proxies wait for a response. A request that would wait longer is refused
    /// at once.
    pub const DEFAULT: Self = Self::AtMost(Duration::from_secs(30));
}

impl Default for MaxWait {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Admits requests: decides which limiter a request asks and how many tokens it costs.
///
/// A [`Limiter`] is a gate that takes a token per request. [`Priced`] computes the cost with a closure, [`Chosen`]
/// also the limiter. Implement this trait for any other limiter. The future must take nothing before it is polled, and
/// must refund, when dropped, what it was granted. A refusal for now is a [`Denied::new`](tollgate::Denied::new), which
/// the feature `http` answers with status 429.
pub trait Gate<Request> {
    /// The grant, held while the request is in flight.
    type Pass;
    /// The future that resolves to the grant.
    type Admission: Future<Output = Result<Self::Pass, Refused>>;

    /// Starts to admit `request`, which may wait for `max_wait`.
    fn admit(&self, request: &Request, max_wait: MaxWait) -> Self::Admission;
}

impl<Request> Gate<Request> for Limiter {
    type Pass = OwnedGrant;
    type Admission = Admission;

    fn admit(&self, _: &Request, max_wait: MaxWait) -> Admission {
        Admission::new(self.clone(), 1, max_wait)
    }
}

/// A [`Gate`] with one limiter for all requests and a cost computed from the request; created by
/// [`LimitLayer::cost`](super::LimitLayer::cost).
pub struct Priced<C> {
    limiter: Limiter,
    cost: Arc<C>,
}

impl<C> Priced<C> {
    /// Creates a gate. `cost` returns the cost of a request in tokens.
    pub fn new(limiter: &Limiter, cost: C) -> Self {
        Self { limiter: limiter.clone(), cost: Arc::new(cost) }
    }

    #[cfg(feature = "http")]
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }
}

impl<Request, C: Fn(&Request) -> u64> Gate<Request> for Priced<C> {
    type Pass = OwnedGrant;
    type Admission = Admission;

    fn admit(&self, request: &Request, max_wait: MaxWait) -> Admission {
        Admission::new(self.limiter.clone(), (self.cost)(request), max_wait)
    }
}

impl<C> Clone for Priced<C> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), cost: Arc::clone(&self.cost) }
    }
}

impl<C> fmt::Debug for Priced<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Priced").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

/// A [`Gate`] that computes limiter and cost from the request; created by [`LimitLayer::by`](super::LimitLayer::by).
pub struct Chosen<F> {
    choose: Arc<F>,
}

impl<F> Chosen<F> {
    /// Creates a gate. `choose` returns the limiter of a request, and its cost in tokens.
    pub fn new(choose: F) -> Self {
        Self { choose: Arc::new(choose) }
    }

    pub(crate) fn choose<Request>(&self, request: &Request) -> (Limiter, u64)
    where
        F: Fn(&Request) -> (Limiter, u64),
    {
        (self.choose)(request)
    }
}

impl<Request, F: Fn(&Request) -> (Limiter, u64)> Gate<Request> for Chosen<F> {
    type Pass = OwnedGrant;
    type Admission = Admission;

    fn admit(&self, request: &Request, max_wait: MaxWait) -> Admission {
        let (limiter, cost) = self.choose(request);
        Admission::new(limiter, cost, max_wait)
    }
}

impl<F> Clone for Chosen<F> {
    fn clone(&self) -> Self {
        Self { choose: Arc::clone(&self.choose) }
    }
}

impl<F> fmt::Debug for Chosen<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").finish_non_exhaustive()
    }
}

/// A claim on a [`Limiter`], with or without a limit on the wait.
///
/// # Cancel safety
///
/// The same as [`Consume`](tollgate::Consume).
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct Admission {
    #[pin]
    mode: Mode,
}

#[pin_project(project = ModeProjection)]
#[derive(Debug)]
enum Mode {
    Wait(#[pin] ConsumeOwned),
    None(Limiter, u64),
}

impl Admission {
    /// Creates a claim of `cost` tokens of `limiter`.
    pub fn new(limiter: Limiter, cost: u64, max_wait: MaxWait) -> Self {
        let mode = match max_wait {
            MaxWait::Endless => Mode::Wait(limiter.consume_owned(cost)),
            MaxWait::AtMost(allowed) => Mode::Wait(limiter.consume_owned(cost).within(allowed)),
            MaxWait::None => Mode::None(limiter, cost),
        };
        Self { mode }
    }
}

impl Future for Admission {
    type Output = Result<OwnedGrant, Refused>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().mode.project() {
            ModeProjection::Wait(consume) => consume.poll(cx).map_err(Refused::InLine),
            ModeProjection::None(limiter, cost) => {
                let ask = || limiter.clone().try_acquire_owned(*cost).map_err(Refused::AtOnce);
                poll_paid(cx, |_| Poll::Ready(ask()))
            }
        }
    }
}
