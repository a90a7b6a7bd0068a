//! The service: admits a request, calls the inner service, and holds the grant.

use super::answer::{Answer, AsError};
use super::gate::{Gate, MaxWait};
use super::hold::{Hold, ToBody};
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tollgate::Limiter;
use tower_service::Service;

/// A service behind a limiter; created by [`LimitLayer`](super::LimitLayer). Clones share the limiter.
///
/// The inner service must be `Clone`: the instance that was ready belongs to the call, which may wait.
#[derive(Clone, Debug)]
pub struct Limit<S, G = Limiter, H = ToBody, A = AsError> {
    inner: S,
    gate: G,
    max_wait: MaxWait,
    hold: H,
    answer: A,
}

impl<S, G, H, A> Limit<S, G, H, A> {
    pub(super) fn new(inner: S, gate: G, max_wait: MaxWait, hold: H, answer: A) -> Self {
        Self { inner, gate, max_wait, hold, answer }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service. Calls made on it directly are not limited.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<Request, S, G, H, A> Service<Request> for Limit<S, G, H, A>
where
    S: Service<Request> + Clone,
    G: Gate<Request>,
    H: Hold<A::Response, G::Pass> + Clone,
    A: Answer<S::Response, S::Error> + Clone,
{
    type Response = H::Response;
    type Error = A::Error;
    type Future = LimitFuture<Request, S, G, H, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), A::Error>> {
        self.inner.poll_ready(cx).map_err(A::failed)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let admission = self.gate.admit(&request, self.max_wait);
        LimitFuture::new(admission, take_ready(&mut self.inner), request, self.hold.clone(), self.answer.clone())
    }
}

/// Takes the instance that was ready, with what it reserved, and leaves a clone that has reserved nothing.
pub(crate) fn take_ready<S: Clone>(inner: &mut S) -> S {
    let clone = inner.clone();
    std::mem::replace(inner, clone)
}

/// The future returned by [`Limit`].
///
/// # Cancel safety
///
/// It can be dropped at any time. While it waits, the request leaves the queue. While the inner service works, its
/// future is dropped and the tokens in flight are released. No token is lost.
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
pub struct LimitFuture<Request, S: Service<Request>, G: Gate<Request>, H, A> {
    #[pin]
    stage: Stage<Request, S, G>,
    hold: H,
    answer: A,
}

#[pin_project(project = OnStage)]
enum Stage<Request, S: Service<Request>, G: Gate<Request>> {
    Waits {
        #[pin]
        admission: G::Admission,
        /// The service that was ready, and the request to call it with.
        call: Option<(S, Request)>,
    },
    Works {
        #[pin]
        response: S::Future,
        pass: Option<G::Pass>,
    },
}

impl<Request, S: Service<Request>, G: Gate<Request>, H, A> LimitFuture<Request, S, G, H, A> {
    /// Creates a future that calls `ready` with `request` once `admission` has granted.
    pub(crate) fn new(admission: G::Admission, ready: S, request: Request, hold: H, answer: A) -> Self {
        Self { stage: Stage::Waits { admission, call: Some((ready, request)) }, hold, answer }
    }
}

impl<Request, S, G, H, A> Future for LimitFuture<Request, S, G, H, A>
where
    S: Service<Request>,
    G: Gate<Request>,
    H: Hold<A::Response, G::Pass>,
    A: Answer<S::Response, S::Error>,
{
    type Output = Result<H::Response, A::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let OnStage::Waits { admission, call } = this.stage.as_mut().project() {
            let answer = ready!(admission.poll(cx));
            let (mut service, request) = call.take().expect("polled after it was ready");
            match answer {
                Ok(pass) => {
                    let response = service.call(request);
                    this.stage.set(Stage::Works { response, pass: Some(pass) });
                }
                Err(refused) => {
                    return Poll::Ready(this.answer.refused(refused).map(|response| this.hold.hold(response, None)));
                }
            }
        }
        let OnStage::Works { response, pass } = this.stage.project() else { unreachable!("it was just set") };
        let response = ready!(response.poll(cx));
        let pass = pass.take();
        let response = response.map(|response| this.answer.granted(response)).map_err(A::failed);
        Poll::Ready(response.map(|response| this.hold.hold(response, pass)))
    }
}

impl<Request, S: Service<Request>, G: Gate<Request>, H, A> fmt::Debug for LimitFuture<Request, S, G, H, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Waits { .. } => "waits",
            Stage::Works { .. } => "works",
        };
        f.debug_struct("LimitFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
