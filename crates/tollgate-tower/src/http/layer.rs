//! The layer: turns refusals into responses, and writes the limits into responses.

use super::body::LimitBody;
use super::format::Format;
use super::limits::Terms;
use super::refusal::Refusal;
use super::unit::Unit;
use super::view::{Advertise, Partitioned, View};
use crate::sealed::Sealed;
use crate::{Answer, Hold, LimitFuture, MaxWait, ToBody, grpc, take_ready};
use http::{HeaderValue, Request, Response};
use http_body::Body;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::Limiter;
use tollgate::Refused;
use tower_layer::Layer;
use tower_service::Service;

/// How limits are written into responses.
#[derive(Clone, Debug)]
struct Settings {
    terms: Terms,
    formats: Vec<Format>,
    always: bool,
    problem: bool,
    otherwise: Option<Duration>,
}

/// A [`LimitLayer`](crate::LimitLayer) that refuses with HTTP responses; created by
/// [`LimitLayer::respond`](crate::LimitLayer::respond). See the [module](super) for the settings and their
/// defaults. If a setting is made twice, the last call counts.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put behind it"]
pub struct HttpLimitLayer<G = Limiter, H = ToBody> {
    gate: G,
    max_wait: MaxWait,
    hold: H,
    settings: Settings,
}

impl<G, H> HttpLimitLayer<G, H> {
    pub(crate) fn new(gate: G, max_wait: MaxWait, hold: H) -> Self {
        let formats = vec![Format::Draft11];
        let settings = Settings { terms: Terms::default(), formats, always: false, problem: false, otherwise: None };
        Self { gate, max_wait, hold, settings }
    }

    fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Writes the limits in this format, instead of [`Format::Draft11`] or of formats set before.
    pub fn format(self, format: Format) -> Self {
        self.formats([format])
    }

    /// Writes the limits in all of these formats, instead of those set before. With no format, refusals have only their `Retry-After`.
    pub fn formats(self, formats: impl IntoIterator<Item = Format>) -> Self {
        self.settings(|settings| settings.formats = formats.into_iter().collect())
    }

    /// Writes the limits into every response, not only into refusals. This looks at the limiter, under its lock, each
    /// time.
    pub fn on_every_response(self) -> Self {
        self.settings(|settings| settings.always = true)
    }

    /// Gives refusals a body of RFC 9457, `application/problem+json`, instead of a line of text.
    pub fn problem_json(self) -> Self {
        self.settings(|settings| settings.problem = true)
    }

    /// Sets the name of quotas that have no name of their own. The default is `default`.
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        self.settings(|settings| settings.terms.name = name.into())
    }

    /// Sets the unit that a token stands for. The default is requests.
    pub fn unit(self, unit: Unit) -> Self {
        self.settings(|settings| settings.terms.unit = unit)
    }

    /// Also writes the in-flight cap; see [`Terms::in_flight`].
    pub fn tell_in_flight(self) -> Self {
        self.settings(|settings| settings.terms.in_flight = true)
    }

    /// Sets the `Retry-After` of refusals with an unknown wait, such as by the in-flight cap. By default they
    /// have none.
    pub fn or_retry_after(self, wait: Duration) -> Self {
        self.settings(|settings| settings.otherwise = Some(wait))
    }

    /// Writes the partition key (`pk`), which identifies the owner of the quota to the client.
    ///
    /// Every intermediary can read it, so it must not contain a secret name or the plain hash of one.
    pub fn partition_key<Request, F>(self, key: F) -> HttpLimitLayer<Partitioned<G, F>, H>
    where
        F: Fn(&Request) -> Vec<u8>,
    {
        let Self { gate, max_wait, hold, settings } = self;
        HttpLimitLayer { gate: Partitioned::new(gate, key), max_wait, hold, settings }
    }
}

impl<S, G: Clone, H: Clone> Layer<S> for HttpLimitLayer<G, H> {
    type Service = HttpLimit<S, G, H>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { gate, max_wait, hold, settings } = self.clone();
        HttpLimit { inner, gate, max_wait, hold, settings: Arc::new(settings) }
    }
}

/// A service behind a limiter that refuses with responses; created by [`HttpLimitLayer`]. Clones share the limiter.
/// Errors are those of the inner service.
///
/// It has the same guarantees as [`Limit`](crate::Limit).
#[derive(Clone, Debug)]
pub struct HttpLimit<S, G = Limiter, H = ToBody> {
    inner: S,
    gate: G,
    max_wait: MaxWait,
    hold: H,
    settings: Arc<Settings>,
}

impl<S, G, H> HttpLimit<S, G, H> {
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

impl<Sent, S, B, G, H> Service<Request<Sent>> for HttpLimit<S, G, H>
where
    S: Service<Request<Sent>, Response = Response<B>> + Clone,
    B: Body,
    B::Data: From<String>,
    G: Advertise<Request<Sent>>,
    H: Hold<Response<LimitBody<B>>, G::Pass> + Clone,
{
    type Response = H::Response;
    type Error = S::Error;
    type Future = LimitFuture<Request<Sent>, S, G, H, AsHttp<G::View>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let (admission, view) = self.gate.admit_in_view(&request, self.max_wait);
        let grpc = grpc::media_type(request.headers());
        let answer = AsHttp { view, settings: Arc::clone(&self.settings), grpc };
        LimitFuture::new(admission, take_ready(&mut self.inner), request, self.hold.clone(), answer)
    }
}

/// Turns the refusal of a request into a response, and writes the limits into responses; see [`HttpLimit`].
#[derive(Clone, Debug)]
pub struct AsHttp<V> {
    view: V,
    settings: Arc<Settings>,
    /// The media type of a gRPC or gRPC-Web call: the client reads a body as messages, so it gets the refusal as a status.
    grpc: Option<HeaderValue>,
}

impl<V> Sealed for AsHttp<V> {}

impl<B, E, V> Answer<Response<B>, E> for AsHttp<V>
where
    B: Body,
    B::Data: From<String>,
    V: View,
{
    type Response = Response<LimitBody<B>>;
    type Error = E;

    fn granted(&self, response: Response<B>) -> Self::Response {
        let mut response = response.map(LimitBody::inner);
        if self.settings.always {
            let limits = self.view.look(&self.settings.terms);
            self.settings.formats.iter().for_each(|format| limits.write(*format, response.headers_mut()));
        }
        response
    }

    fn refused(&self, refused: Refused) -> Result<Self::Response, E> {
        let limits = self.view.look_at_refusal(&self.settings.terms, &refused);
        if let Some(media_type) = &self.grpc {
            let mut response = grpc::response(refused, media_type.clone(), LimitBody::empty());
            self.settings.formats.iter().for_each(|format| limits.write(*format, response.headers_mut()));
            return Ok(response);
        }
        let mut refusal = Refusal::new(refused, &limits);
        if let Some(wait) = self.settings.otherwise {
            refusal = refusal.or_retry_after(wait);
        }
        let mut response = refusal.response(self.settings.problem);
        self.settings.formats.iter().for_each(|format| limits.write(*format, response.headers_mut()));
        Ok(response.map(LimitBody::refusal))
    }

    fn failed(error: E) -> E {
        error
    }
}
