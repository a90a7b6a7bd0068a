//! Requests through an adaptive limiter, which learns from the status of their responses.

use super::advice::{self, Advice};
use super::format::Format;
use crate::{AsError, Gate, Hold, LimitLayer, MaxWait};
use http::{Response, StatusCode};
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tollgate::adaptive::{AdaptiveConsume, AdaptiveGrant, Target};
use tollgate::{Adaptive, Limiter, Refused};

impl<T: Target> LimitLayer<AdaptiveGate<T>, ReportStatus, AsError> {
    /// Creates a layer for the client of a server that does not say what its limit is: each request waits in the queue of
    /// `adaptive` for one token, at most [30 seconds](MaxWait::DEFAULT), and the status of its response is reported; see
    /// [`ReportStatus`].
    ///
    /// If the server sends header fields about its limit, put a [`HeedLayer`](super::HeedLayer) with the
    /// [limiter](Adaptive::limiter) behind this layer, without [`follow`](super::HeedLayer::follow): the adaptive limiter
    /// sets the quota.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::Adaptive;
    /// use tollgate_tower::LimitLayer;
    /// use tower::{Service, ServiceBuilder, ServiceExt};
    ///
    /// let api = Adaptive::between("1/s", "5000/s").start("20/s").build()?;
    /// let mut client = ServiceBuilder::new()
    ///     .layer(LimitLayer::adaptive(&api).within(Duration::from_secs(60)))
    ///     .service_fn(async |_: http::Request<String>| {
    ///         // ... a server that says:
    ///         http::Response::builder().status(429).header("retry-after", "3").body(String::new())
    ///     });
    ///
    /// client.ready().await?.call(http::Request::new(String::new())).await?;
    /// assert!(api.tokens_per_second() < 20.0);
    /// assert_eq!(api.limiter().snapshot().paused_for, Some(Duration::from_secs(3)));
    /// # Ok(()) }
    /// ```
    pub fn adaptive(adaptive: &Adaptive<T>) -> Self {
        Self::parts(AdaptiveGate::new(adaptive), ReportStatus)
    }
}

/// A [`Gate`] through an [`Adaptive`] limiter, for one token per request. [`LimitLayer::adaptive`] is this gate with
/// [`ReportStatus`]; if the outcome does not follow from the status, pass it to [`LimitLayer::through`] with a [`Hold`]
/// of your own.
#[derive(Clone, Debug)]
pub struct AdaptiveGate<T: Target = Limiter> {
    adaptive: Adaptive<T>,
}

impl<T: Target> AdaptiveGate<T> {
    /// Creates a gate.
    pub fn new(adaptive: &Adaptive<T>) -> Self {
        Self { adaptive: adaptive.clone() }
    }
}

impl<Request, T: Target> Gate<Request> for AdaptiveGate<T> {
    type Pass = Unreported<T>;
    type Admission = AdaptiveAdmission<T>;

    fn admit(&self, _: &Request, max_wait: MaxWait) -> AdaptiveAdmission<T> {
        let claim = self.adaptive.consume(1);
        let claim = match max_wait {
            MaxWait::Endless => claim,
            MaxWait::AtMost(allowed) => claim.within(allowed),
            MaxWait::None => claim.within(Duration::ZERO),
        };
        AdaptiveAdmission { claim }
    }
}

/// The claim of a request through an [`AdaptiveGate`].
///
/// # Cancel safety
///
/// The same as [`AdaptiveConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct AdaptiveAdmission<T: Target = Limiter> {
    #[pin]
    claim: AdaptiveConsume<T>,
}

impl<T: Target> Future for AdaptiveAdmission<T> {
    type Output = Result<Unreported<T>, Refused>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let granted = ready!(self.project().claim.poll(cx));
        Poll::Ready(granted.map(|grant| Unreported(Some(grant))).map_err(Refused::InLine))
    }
}

/// The grant of a request until the outcome of the request is known.
///
/// Dropping it reports nothing: the request was cancelled, or failed without a response, which says nothing about the
/// server's limit.
pub struct Unreported<T: Target = Limiter>(Option<AdaptiveGrant<T>>);

impl<T: Target> Unreported<T> {
    /// Returns the grant, to report its outcome.
    ///
    /// # Panics
    ///
    /// Never: the grant is there until the value is dropped.
    pub fn into_grant(mut self) -> AdaptiveGrant<T> {
        self.0.take().expect("only `into_grant` and `drop` take the grant")
    }
}

impl<T: Target> Drop for Unreported<T> {
    fn drop(&mut self) {
        if let Some(grant) = self.0.take() {
            grant.ignored();
        }
    }
}

impl<T: Target> fmt::Debug for Unreported<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unreported").field(&self.0).finish()
    }
}

/// Reports the status of each response to the [`Adaptive`] limiter that granted the request; set by
/// [`LimitLayer::adaptive`]. The request is in flight until the head of the response is there.
///
/// | response | reported |
/// |---|---|
/// | 429, 503; 403 with `Retry-After` or with a limit that is used up, as GitHub sends it | [`throttled`](AdaptiveGrant::throttled), with the time to wait if there is one |
/// | any other 5xx | nothing: it says nothing about the limit |
/// | everything else | [`succeeded`](AdaptiveGrant::succeeded) |
/// | none, because the request was cancelled or failed | nothing |
///
/// The time to wait is that of `Retry-After`, `retry-after-ms`, or the reset of a limit that is used up, in any
/// [`Format`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportStatus;

impl<B, T: Target> Hold<Response<B>, Unreported<T>> for ReportStatus {
    type Response = Response<B>;

    fn hold(&self, response: Response<B>, pass: Option<Unreported<T>>) -> Response<B> {
        if let Some(grant) = pass.map(Unreported::into_grant) {
            let (status, headers) = (response.status(), response.headers());
            let is_refusal = advice::is_refusal(status, headers);
            let advice = Advice::read_head(is_refusal, status, headers, &Format::ALL, None);
            match status {
                _ if is_refusal => grant.throttled(advice.wait),
                StatusCode::FORBIDDEN if advice.wait.is_some() => grant.throttled(advice.wait),
                status if status.is_server_error() => grant.ignored(),
                _ => grant.succeeded(),
            }
        }
        response
    }
}
