//! The client's layer: every response is heeded.

use super::heed::Heed;
use crate::limiter::Limiter;
use crate::{ConfigError, Quota, Which};
use http::Response;
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_layer::Layer;
use tower_service::Service;

/// Knows whose limiter heeds the response to a request: a [`Limiter`] its own, [`By`] that of the request.
pub trait Heeding<Request> {
    /// The limiter.
    fn limiter(&self, request: &Request) -> Limiter;
}

impl<Request> Heeding<Request> for Limiter {
    fn limiter(&self, _: &Request) -> Limiter {
        self.clone()
    }
}

/// The limiter is a function of the request; from [`HeedLayer::by`].
pub struct By<F> {
    choose: Arc<F>,
}

impl<Request, F: Fn(&Request) -> Limiter> Heeding<Request> for By<F> {
    fn limiter(&self, request: &Request) -> Limiter {
        (self.choose)(request)
    }
}

impl<F> Clone for By<F> {
    fn clone(&self) -> Self {
        Self { choose: Arc::clone(&self.choose) }
    }
}

impl<F> fmt::Debug for By<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("By").finish_non_exhaustive()
    }
}

/// Puts HTTP clients under the eyes of a limiter, which heeds what responses say of the server's limits: see [`Heed`].
///
/// It limits nothing by itself; a [`LimitLayer`](crate::tower::LimitLayer) with the same limiter goes around it:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tollgate::http::HeedLayer;
/// use tollgate::tower::LimitLayer;
/// use tollgate::{Limiter, Quota};
/// use tower::{Service, ServiceBuilder, ServiceExt};
///
/// let limiter = Limiter::new(Quota::per_second(100))?;
/// let mut client = ServiceBuilder::new()
///     .layer(LimitLayer::new(&limiter))
///     .layer(HeedLayer::new(&limiter))
///     .service_fn(async |_: http::Request<String>| {
///         // ... a server that says:
///         http::Response::builder().status(429).header("retry-after", "3").body(String::new())
///     });
///
/// let request = || http::Request::new(String::new());
/// let start = tokio::time::Instant::now();
/// client.ready().await?.call(request()).await?; // 429
/// client.ready().await?.call(request()).await?; // waits before it asks again
/// assert_eq!(start.elapsed(), Duration::from_secs(3));
/// # Ok(()) }
/// ```
///
/// Responses are those of the `http` crate. A client whose responses are its own, such as reqwest, is mapped
/// (`client.map_response(http::Response::<reqwest::Body>::from)`), or calls [`Heed::heed`] itself.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put behind it"]
pub struct HeedLayer<L = Limiter> {
    whose: L,
    heed: Heed,
}

impl HeedLayer {
    /// `limiter` heeds all responses.
    pub fn new(limiter: &Limiter) -> Self {
        Self { whose: limiter.clone(), heed: Heed::default() }
    }

    /// [`Heed::follow`] with what the quota is now as the fastest: the server's policies slow it down, and let it run as it
    /// was built to.
    ///
    /// # Errors
    ///
    /// [`UnknownQuota`](ConfigError::UnknownQuota).
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// use tollgate::http::HeedLayer;
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(100))?;
    /// let layer = HeedLayer::new(&limiter).follow(0)?;
    /// assert!(HeedLayer::new(&limiter).follow("api").is_err());
    /// # let _ = layer; Ok(()) }
    /// ```
    pub fn follow<'q>(self, which: impl Into<Which<'q>>) -> Result<Self, ConfigError> {
        let which = which.into();
        let quotas = self.whose.snapshot().quotas;
        let found = match which {
            Which::Index(index) => quotas.get(index),
            Which::Name(name) => quotas.iter().find(|quota| quota.name.as_deref() == Some(name)),
        };
        let unknown = || ConfigError::UnknownQuota { which: which.to_string(), count: quotas.len() };
        let fastest: Quota = found.ok_or_else(unknown)?.quota;
        Ok(Self { heed: self.heed.follow(which, fastest), ..self })
    }
}

impl<F> HeedLayer<By<F>> {
    /// The limiter that `choose` names heeds the response to a request: one per host, say.
    pub fn by<Request>(choose: F) -> Self
    where
        F: Fn(&Request) -> Limiter,
    {
        Self { whose: By { choose: Arc::new(choose) }, heed: Heed::default() }
    }
}

impl<L> HeedLayer<L> {
    /// Heeds in this way.
    pub fn with(self, heed: Heed) -> Self {
        Self { heed, ..self }
    }
}

impl<S, L: Clone> Layer<S> for HeedLayer<L> {
    type Service = Heeded<S, L>;

    fn layer(&self, inner: S) -> Heeded<S, L> {
        Heeded { inner, whose: self.whose.clone(), heed: Arc::new(self.heed.clone()) }
    }
}

/// A client whose responses are heeded; from [`HeedLayer`].
#[derive(Clone, Debug)]
pub struct Heeded<S, L = Limiter> {
    inner: S,
    whose: L,
    heed: Arc<Heed>,
}

impl<S, L> Heeded<S, L> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service. What it responds here is not heeded.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<Request, S, B, L> Service<Request> for Heeded<S, L>
where
    S: Service<Request, Response = Response<B>>,
    L: Heeding<Request>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = HeedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let limiter = self.whose.limiter(&request);
        HeedFuture { response: self.inner.call(request), limiter, heed: Arc::clone(&self.heed) }
    }
}

/// The future of [`Heeded`].
///
/// # Cancel safety
///
/// That of the inner service's future. Dropped before the response is there, nothing is heeded.
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct HeedFuture<F> {
    #[pin]
    response: F,
    limiter: Limiter,
    heed: Arc<Heed>,
}

impl<B, E, F: Future<Output = Result<Response<B>, E>>> Future for HeedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = ready!(this.response.poll(cx));
        if let Ok(response) = &answer {
            this.heed.heed(this.limiter, response.status(), response.headers());
        }
        Poll::Ready(answer)
    }
}
