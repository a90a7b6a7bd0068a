//! The client's layer: its limiter follows every response.

use super::heed::Heed;
#[cfg(feature = "keyed")]
use super::heed_target::HeedKey;
use super::heed_target::HeedTarget;
use crate::{AnyLimiter, By};
use http::Response;
use pin_project::pin_project;
use std::future::Future;
#[cfg(feature = "keyed")]
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
#[cfg(feature = "keyed")]
use tollgate::KeyedLimiter;
use tollgate::{AsLimiter, ConfigError, Limiter, Quota, Which};
use tower_layer::Layer;
use tower_service::Service;

/// Selects the limiter or the key that follows the response to a request: a [`Limiter`] selects itself, a [`By`]
/// computes the limiter or the key.
pub trait Heeding<Request> {
    /// A limiter, or a key of a keyed limiter.
    type Target: HeedTarget;

    /// Returns the limiter, or the key, for `request`.
    fn limiter(&self, request: &Request) -> Self::Target;
}

impl<Request> Heeding<Request> for Limiter {
    type Target = Self;

    fn limiter(&self, _: &Request) -> Limiter {
        self.clone()
    }
}

impl<Request, F: Fn(&Request) -> Limiter> Heeding<Request> for By<AnyLimiter, F> {
    type Target = Limiter;

    fn limiter(&self, request: &Request) -> Limiter {
        self.choose(request)
    }
}

#[cfg(feature = "keyed")]
impl<Request, K, S, F> Heeding<Request> for By<KeyedLimiter<K, S>, F>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
    F: Fn(&Request) -> K,
{
    type Target = HeedKey<K, S>;

    fn limiter(&self, request: &Request) -> HeedKey<K, S> {
        HeedKey::new(By::limiter(self).clone(), self.choose(request))
    }
}

/// Makes a limiter follow what the responses to an HTTP client say about the server's limits; see [`Heed`].
///
/// The layer itself limits nothing. Put a [`LimitLayer`](crate::LimitLayer) with the same limiter around it:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tollgate_tower::http::HeedLayer;
/// use tollgate_tower::LimitLayer;
/// use tollgate::{Limiter, Quota};
/// use tower::{Service, ServiceBuilder, ServiceExt};
///
/// let limiter = Limiter::new(Quota::per_second(100))?;
/// let mut client = ServiceBuilder::new()
///     .layer(LimitLayer::new(&limiter).wait_without_limit()) // for as long as the server says
///     .layer(HeedLayer::new(&limiter))
///     .service_fn(async |_: http::Request<String>| {
///         // ... a server that responds:
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
/// A server that counts several resources needs a limiter and a layer for each. Each call reserves its tokens from all
/// limiters with [`reserve`](tollgate::reserve); the example `llm_client` is a complete program.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tollgate_tower::http::{Heed, HeedLayer};
/// # use tollgate::{Limiter, Quota};
/// # use tower::{ServiceBuilder, service_fn};
/// let (requests, tokens) = (Limiter::new(Quota::per_minute(500))?, Limiter::new(Quota::per_minute(30_000))?);
/// let client = ServiceBuilder::new()
///     .layer(HeedLayer::new(&requests).with(Heed::default().unit("requests")).follow(0)?)
///     .layer(HeedLayer::new(&tokens).with(Heed::default().unit("tokens")).follow(0)?)
///     .service(service_fn(async |_: http::Request<String>| {
///         // ... a server that says:
///         http::Response::builder()
///             .header("anthropic-ratelimit-requests-limit", "50")
///             .header("anthropic-ratelimit-tokens-limit", "20000")
///             .body(String::new())
///     }));
/// # tokio_test::block_on(tower::ServiceExt::oneshot(client, http::Request::new(String::new())))?;
/// // ... after a response:
/// assert_eq!(requests.snapshot().quotas[0].quota, Quota::per_minute(50).burst(49));
/// assert_eq!(tokens.snapshot().quotas[0].quota, Quota::per_minute(20_000).burst(19_999));
/// # Ok(()) }
/// ```
///
/// Responses must be those of the `http` crate. A client with responses of its own, such as reqwest, can be mapped
/// (`client.map_response(http::Response::<reqwest::Body>::from)`), or can call [`Heed::heed`] itself.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put behind it"]
pub struct HeedLayer<L = Limiter> {
    limiters: L,
    heed: Heed,
}

impl HeedLayer {
    /// Creates a layer in which `limiter` follows all responses. If it is a class, its limiter does: a server does not know
    /// of classes.
    pub fn new(limiter: &impl AsLimiter) -> Self {
        Self { limiters: limiter.limiter().clone(), heed: Heed::default() }
    }

    /// Makes a quota follow the server, with its present value as the fastest; see [`Heed::follow`]. Several calls make
    /// several quotas follow.
    ///
    /// The server's policies can slow the quota down, and never make it faster than it is now.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownQuota`](ConfigError::UnknownQuota) if the limiter has no such quota.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// use tollgate_tower::http::HeedLayer;
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(100))?;
    /// let layer = HeedLayer::new(&limiter).follow(0)?;
    /// assert!(HeedLayer::new(&limiter).follow("api").is_err());
    /// # let _ = layer; Ok(()) }
    /// ```
    pub fn follow<'q>(self, which: impl Into<Which<'q>>) -> Result<Self, ConfigError> {
        let which = which.into();
        let quotas = self.limiters.snapshot().quotas;
        let found = match which {
            Which::Index(index) => quotas.get(index),
            Which::Name(name) => quotas.iter().find(|quota| quota.name.as_deref() == Some(name)),
        };
        let unknown = || ConfigError::UnknownQuota { which: which.to_string(), count: quotas.len() };
        let fastest: Quota = found.ok_or_else(unknown)?.quota;
        Ok(Self { heed: self.heed.follow(which, fastest), ..self })
    }
}

impl<F> HeedLayer<By<AnyLimiter, F>> {
    /// Creates a layer that asks `choose` for the limiter that follows the response to a request, for example one of
    /// several upstreams. For one per host, [`keyed`](HeedLayer::keyed) takes a keyed limiter.
    pub fn by<Request>(choose: F) -> Self
    where
        F: Fn(&Request) -> Limiter,
    {
        Self { limiters: By::new(AnyLimiter, choose), heed: Heed::default() }
    }
}

#[cfg(feature = "keyed")]
impl<K, S, F> HeedLayer<By<KeyedLimiter<K, S>, F>> {
    /// Creates a layer in which the key that `key` returns follows the response to a request, for example the host.
    ///
    /// Put a [`LimitLayer::keyed`](crate::LimitLayer::keyed) with the same keyed limiter around it. A key that
    /// [follows](Heed::follow) a quota gets quotas of its own; [`Heed::heed_key`] says what this means.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Quota};
    /// use tollgate_tower::LimitLayer;
    /// use tollgate_tower::http::{Heed, HeedLayer};
    /// use tower::{ServiceBuilder, ServiceExt};
    ///
    /// let fastest = Quota::per_second(10).burst(4);
    /// let hosts = KeyedLimiter::builder().quota(fastest).max_in_flight(4).max_keys(10_000).build()?;
    /// let host = |request: &http::Request<String>| request.uri().host().unwrap_or_default().to_owned();
    /// let client = ServiceBuilder::new()
    ///     .layer(LimitLayer::keyed(&hosts, move |request: &http::Request<String>| (host(request), 1)))
    ///     .layer(HeedLayer::keyed(&hosts, host).with(Heed::default().follow(0, fastest)))
    ///     .service_fn(async |_: http::Request<String>| {
    ///         // ... a server that responds:
    ///         http::Response::builder().header("ratelimit-policy", r#""a";q=60;w=60"#).body(http_body_util::Empty::<&[u8]>::new())
    ///     });
    /// client.oneshot(http::Request::get("http://a.example/").body(String::new())?).await?;
    /// assert_eq!(hosts.quotas(&"a.example".to_owned()).get(0), Some(Quota::per_minute(60).burst(4)));
    /// # Ok(()) }
    /// ```
    pub fn keyed<Request>(limiter: &KeyedLimiter<K, S>, key: F) -> Self
    where
        F: Fn(&Request) -> K,
    {
        Self { limiters: By::new(limiter.clone(), key), heed: Heed::default() }
    }
}

impl<L> HeedLayer<L> {
    /// Follows responses according to `heed`, in place of earlier settings. Quotas for which [`follow`](Self::follow) was
    /// called before keep following the server.
    pub fn with(self, heed: Heed) -> Self {
        Self { heed: heed.and_follow(self.heed), ..self }
    }
}

impl<S, L: Clone> Layer<S> for HeedLayer<L> {
    type Service = Heeded<S, L>;

    fn layer(&self, inner: S) -> Heeded<S, L> {
        Heeded { inner, limiters: self.limiters.clone(), heed: Arc::new(self.heed.clone()) }
    }
}

/// A client with a limiter that follows its responses; created by [`HeedLayer`].
#[derive(Clone, Debug)]
pub struct Heeded<S, L = Limiter> {
    inner: S,
    limiters: L,
    heed: Arc<Heed>,
}

impl<S, L> Heeded<S, L> {
    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service. Responses to calls made on it directly are not followed.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
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
    type Future = HeedFuture<S::Future, L::Target>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let limiter = self.limiters.limiter(&request);
        HeedFuture { response: self.inner.call(request), limiter, heed: Arc::clone(&self.heed) }
    }
}

/// The future returned by [`Heeded`].
///
/// # Cancel safety
///
/// The same as the inner service's future. If it is dropped before the response, nothing is followed.
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct HeedFuture<F, T = Limiter> {
    #[pin]
    response: F,
    limiter: T,
    heed: Arc<Heed>,
}

impl<B, E, F: Future<Output = Result<Response<B>, E>>, T: HeedTarget> Future for HeedFuture<F, T> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = ready!(this.response.poll(cx));
        if let Ok(response) = &answer {
            this.heed.heed_target(this.limiter, response.status(), response.headers());
        }
        Poll::Ready(answer)
    }
}
