//! The layer and its settings.

use super::answer::{AsBoxError, AsError, AsResponse};
use super::gate::{AnyLimiter, By, MaxWait};
use super::grpc::AsGrpc;
use super::hold::{ToBody, ToHead};
use super::service::Limit;
use std::time::Duration;
#[cfg(feature = "keyed")]
use tollgate::AsKeyedLimiter;
use tollgate::{AsLimiter, Limiter, Refused};
use tower_layer::Layer;

/// Puts services behind a limiter. See the [module](super) for the settings and their defaults.
///
/// If several of [`within`](Self::within), [`wait_without_limit`](Self::wait_without_limit) and
/// [`refuse`](Self::refuse) are called, the last call counts. How long requests are in flight and how refusals are
/// answered can each be chosen once: a second choice does not compile.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put behind it"]
pub struct LimitLayer<G = Limiter, H = ToBody, A = AsError> {
    gate: G,
    max_wait: MaxWait,
    hold: H,
    answer: A,
}

impl<L: AsLimiter> LimitLayer<L> {
    /// Creates a layer in which each request waits in the queue of `limiter` for one token, at most
    /// [30 seconds](MaxWait::DEFAULT). `limiter` may be a class of a limiter.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// use tollgate_tower::LimitLayer;
    /// use tollgate::{Limiter, Quota, Share};
    /// let limiter = Limiter::builder().quota(Quota::per_second(100)).classes().build()?;
    /// let interactive = limiter.class("interactive", Share::weight(3))?;
    /// let batch = limiter.class("batch", Share::weight(1))?;
    /// let pages = LimitLayer::new(&interactive);
    /// let exports = LimitLayer::new(&batch).wait_without_limit();
    /// # let _ = (pages, exports); Ok(()) }
    /// ```
    pub fn new(limiter: &L) -> Self {
        Self::through(limiter.clone())
    }
}

impl<G> LimitLayer<G> {
    /// Creates a layer with a [`Gate`](super::Gate) of your own.
    pub fn through(gate: G) -> Self {
        Self::parts(gate, ToBody)
    }
}

impl<G, H> LimitLayer<G, H> {
    pub(crate) fn parts(gate: G, hold: H) -> Self {
        Self { gate, max_wait: MaxWait::DEFAULT, hold, answer: AsError }
    }
}

impl<F> LimitLayer<By<AnyLimiter, F>> {
    /// Creates a layer that asks `choose` for the limiter and the cost of each request: one limiter per user, tenant
    /// or route. It may return classes of a limiter in place of limiters.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// use tollgate_tower::LimitLayer;
    /// use tollgate::{Limiter, Quota};
    /// let (reads, writes) = (Limiter::new(Quota::per_second(100))?, Limiter::new(Quota::per_second(5))?);
    /// let layer = LimitLayer::by(move |request: &http::Request<String>| {
    ///     let limiter = if request.method().is_safe() { &reads } else { &writes };
    ///     (limiter.clone(), 1)
    /// });
    /// # let _ = layer; Ok(()) }
    /// ```
    pub fn by<Request, L>(choose: F) -> Self
    where
        L: AsLimiter,
        F: Fn(&Request) -> (L, u64),
    {
        Self::through(By::new(AnyLimiter, choose))
    }
}

#[cfg(feature = "keyed")]
impl<L, F> LimitLayer<By<L, F>> {
    /// Creates a layer that asks `key` for the key and the cost of each request: one queue per user, address or API
    /// key. `users` is a [`KeyedLimiter`](tollgate::KeyedLimiter), or a `DistributedKeyedLimiter`: many machines then
    /// share the quota of each key.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// use tollgate_tower::LimitLayer;
    /// use tollgate::{KeyedLimiter, Quota};
    /// let users = KeyedLimiter::builder().quota(Quota::per_second(10)).max_keys(100_000).build()?;
    /// let layer = LimitLayer::keyed(&users, |request: &http::Request<String>| {
    ///     (request.headers().get("x-api-key").cloned(), 1) // all requests without a key share a bucket
    /// });
    /// # let _ = layer; Ok(()) }
    /// ```
    pub fn keyed<Request, K>(users: &L, key: F) -> Self
    where
        L: AsKeyedLimiter<K>,
        F: Fn(&Request) -> (K, u64),
    {
        Self::through(By::new(users.clone(), key))
    }
}

impl<L: AsLimiter, H, A> LimitLayer<L, H, A> {
    /// Computes the cost of each request with `cost`; a request of cost 0 passes at once.
    pub fn cost<Request, C: Fn(&Request) -> u64>(self, cost: C) -> LimitLayer<By<L, C>, H, A> {
        let Self { gate, max_wait, hold, answer } = self;
        LimitLayer { gate: By::new(gate, cost), max_wait, hold, answer }
    }
}

impl<G, H, A> LimitLayer<G, H, A> {
    /// Refuses requests that would wait longer than `allowed`; see [`Consume::within`](tollgate::Consume::within). The
    /// default is 30 seconds. Replaces an earlier `within`, [`refuse`](Self::refuse) or
    /// [`wait_without_limit`](Self::wait_without_limit).
    pub fn within(self, allowed: Duration) -> Self {
        Self { max_wait: MaxWait::AtMost(allowed), ..self }
    }

    /// Lets requests wait as long as it takes. Bound the queue with [`max_waiting`](tollgate::Builder::max_waiting): on
    /// a server, each request that waits is memory and a connection. Replaces an earlier [`within`](Self::within) or
    /// [`refuse`](Self::refuse).
    pub fn wait_without_limit(self) -> Self {
        Self { max_wait: MaxWait::Endless, ..self }
    }

    /// Refuses requests that cannot get their tokens at once; see [`Limiter::try_acquire`]. Replaces an earlier
    /// [`within`](Self::within) or [`wait_without_limit`](Self::wait_without_limit).
    pub fn refuse(self) -> Self {
        Self { max_wait: MaxWait::None, ..self }
    }
}

impl<G, A> LimitLayer<G, ToBody, A> {
    /// Keeps requests in flight until the service has responded, and not until the body has ended. Responses can then
    /// be of any kind.
    pub fn release_at_head(self) -> LimitLayer<G, ToHead, A> {
        self.hold(ToHead)
    }

    /// Keeps requests in flight until a [`Hold`](super::Hold) of your own drops the grant.
    pub fn hold<Other>(self, hold: Other) -> LimitLayer<G, Other, A> {
        let Self { gate, max_wait, answer, .. } = self;
        LimitLayer { gate, max_wait, hold, answer }
    }
}

impl<G, H> LimitLayer<G, H> {
    /// Turns refusals into HTTP responses with `Retry-After` and `RateLimit` fields; see [`http`](crate::http). The
    /// error type stays that of the inner service. gRPC calls get a gRPC status, as with [`grpc`](Self::grpc).
    #[cfg(feature = "http")]
    pub fn respond(self) -> crate::http::HttpLimitLayer<G, H> {
        crate::http::HttpLimitLayer::new(self.gate, self.max_wait, self.hold)
    }

    /// Does not compile, and says why.
    ///
    /// ```compile_fail,E0277
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_tower::LimitLayer;
    /// let limiter = Limiter::new(Quota::per_second(100)).unwrap();
    /// let layer = LimitLayer::new(&limiter).refuse().respond();
    /// ```
    #[cfg(not(feature = "http"))]
    #[doc(hidden)]
    pub fn respond(self) -> LimitLayer<G, H, AsGrpc>
    where
        Self: NeedsFeatureHttp,
    {
        self.grpc()
    }

    /// Turns refusals into gRPC statuses, for tonic. The error type stays that of the inner service.
    ///
    /// The status is `ResourceExhausted`, or `Unavailable` if the limiter is closed. If it is known when to retry, the
    /// fields `grpc-retry-pushback-ms` and `grpc-status-details-bin` (with a `google.rpc.RetryInfo`) say so. A call
    /// that can never be granted has a negative pushback, which means "do not retry".
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_tower::LimitLayer;
    /// let limiter = Limiter::new(Quota::per_second(100))?;
    /// let server = tonic::transport::Server::builder().layer(LimitLayer::new(&limiter).refuse().grpc());
    /// # let _ = server; Ok(()) }
    /// ```
    pub fn grpc(self) -> LimitLayer<G, H, AsGrpc> {
        let Self { gate, max_wait, hold, .. } = self;
        LimitLayer { gate, max_wait, hold, answer: AsGrpc }
    }

    /// Turns refusals into responses, so that the error type stays that of the inner service.
    pub fn on_refusal<Response, F: Fn(Refused) -> Response>(self, respond: F) -> LimitLayer<G, H, AsResponse<F>> {
        let Self { gate, max_wait, hold, .. } = self;
        LimitLayer { gate, max_wait, hold, answer: AsResponse::new(respond) }
    }

    /// Boxes errors, as tower's own layers do: a refusal is a [`Refused`] in the box, an inner error is boxed
    /// unchanged. For inner services with a boxed error.
    pub fn box_errors(self) -> LimitLayer<G, H, AsBoxError> {
        let Self { gate, max_wait, hold, .. } = self;
        LimitLayer { gate, max_wait, hold, answer: AsBoxError }
    }
}

/// No type implements this trait: the compiler names the feature that is missing.
#[cfg(not(feature = "http"))]
#[diagnostic::on_unimplemented(
    message = "`LimitLayer::respond` needs the feature `http` of tollgate-tower",
    label = "add the feature, or answer refusals with `.on_refusal(..)`",
    note = "cargo add tollgate-tower --features http"
)]
#[doc(hidden)]
pub trait NeedsFeatureHttp {}

impl<S, G: Clone, H: Clone, A: Clone> Layer<S> for LimitLayer<G, H, A> {
    type Service = Limit<S, G, H, A>;

    fn layer(&self, inner: S) -> Self::Service {
        Limit::new(inner, self.gate.clone(), self.max_wait, self.hold.clone(), self.answer.clone())
    }
}
