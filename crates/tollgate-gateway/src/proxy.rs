//! Forwards one request and its response. Bodies stream both ways; hop-by-hop headers are removed.

pub(crate) mod checker;
pub(crate) mod settling_body;
pub(crate) mod tunnel;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{CONTENT_LENGTH, EXPECT, HOST, RETRY_AFTER, TRANSFER_ENCODING};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Request, StatusCode, Uri, Version};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Error;
use tokio::time::Instant;
use tollgate_tower::{Hold, ToBody};

use crate::body::complete_body::CompleteBody;
use crate::body::retry_body::RetryBody;
use crate::body::timeout_body::TimeoutBody;
use crate::body::upload::{Progress, Upload};
use crate::config::Config;
use crate::http::conformance;
use crate::http::hop_by_hop::drop_hop_by_hop;
use crate::http::http2;
use crate::http::local_reply;
use crate::limits::Limits;
use crate::request::forwarding::Received;
use crate::request::name::Name;
use crate::request::outcome::Outcome;
use crate::telemetry::log;
use crate::telemetry::stats;
use crate::telemetry::upstream_stats::UpstreamError;
use crate::upstream::backend::Backend;
use crate::upstream::backends::Selected;
use crate::upstream::connector::{self, HttpClient, UpstreamProtocol, chain, is_timeout};
use crate::upstream::target::Target;
use settling_body::NotSent;
use tunnel::UpgradeRequest;

/// The clients for the upstreams, shared by all connections.
pub(crate) struct UpstreamClients {
    /// Their configuration contains the upstreams.
    limits: Arc<Limits>,
    client: HttpClient,
    /// The client for requests that may become WebSockets.
    for_tunnels: HttpClient,
}

/// In a response whose limits are followed: the upstream that it is from.
#[derive(Clone)]
pub(crate) struct AnsweredBy(pub(crate) Arc<Backend>);

/// The proxy of one connection.
#[derive(Clone)]
pub(crate) struct Proxy(Arc<ProxyInner>);

struct ProxyInner {
    peer: SocketAddr,
    /// The scheme of the URLs that its client uses.
    scheme: &'static str,
    upstream: Arc<UpstreamClients>,
}

impl UpstreamClients {
    pub(crate) fn new(limits: Arc<Limits>) -> Self {
        let config = limits.config();
        let client = connector::client(Arc::clone(&config.roots), config.upstream_protocol(), usize::MAX);
        let for_tunnels = connector::client(Arc::clone(&config.roots), UpstreamProtocol::Http1, usize::MAX);
        drop(config);
        Self { limits, client, for_tunnels }
    }

    /// The proxy for a connection from `peer`, which uses URLs of this scheme.
    pub(crate) fn proxy(self: &Arc<Self>, peer: SocketAddr, scheme: &'static str) -> Proxy {
        Proxy(Arc::new(ProxyInner { peer, scheme, upstream: Arc::clone(self) }))
    }
}

impl Proxy {
    /// Forwards a request and returns its response. `began` is now, and `model` the limit of its model, if it follows the
    /// upstreams.
    pub(crate) async fn forward(&self, mut request: Request<Upload>, model: Option<Name>, began: Instant) -> Response {
        let UpstreamClients { limits, client, for_tunnels } = &*self.0.upstream;
        let config = limits.config();
        let timeouts = config.timeouts;
        let Some(mut selected) = config.upstreams.select_for(model) else {
            return unavailable(config.upstreams.outage().unwrap_or_default());
        };
        let target = selected.target(&config.upstreams);
        let first = model.map(|_| Arc::clone(selected.backend_in(&config.upstreams)));
        let Some(uri) = target.at(request.uri()) else {
            return counted(Outcome::Invalid, StatusCode::BAD_REQUEST, "the request target is not a path");
        };
        let upgrade = UpgradeRequest::of(&mut request);
        self.outward(&mut request, uri, target, &config);
        drop(config);
        let client = if upgrade.is_some() {
            UpgradeRequest::write(request.headers_mut());
            for_tunnels
        } else {
            client
        };
        let progress = request.body().progress();
        let answer = tokio::select! {
            biased;
            answer = self.send(client, request, &mut selected, model) => answer,
            () = upstream_timeout(progress.as_deref(), began, timeouts.upstream) => {
                return failed(StatusCode::GATEWAY_TIMEOUT, UpstreamError::Timeout, "the upstream did not answer in time");
            }
        };
        match answer {
            Ok(response) => match upgrade {
                Some(upgrade) if UpgradeRequest::is_accepted_by(&response) => {
                    switched(upgrade, response, timeouts.websocket_idle, selected)
                }
                _ => {
                    let answered_by = first.map(|first| AnsweredBy(selected.backend().cloned().unwrap_or(first)));
                    let mut response = self.accept(response, timeouts.upstream_idle, selected);
                    answered_by.map(|answered_by| response.extensions_mut().insert(answered_by));
                    response
                }
            },
            Err(error) => match progress.and_then(|progress| progress.error()) {
                Some(error) => error.response(),
                None => self.failed(&error, &selected),
            },
        }
    }

    /// Sends the request to the selected upstream. If no connection to it can be made, the request was certainly not sent,
    /// and is sent to another one, if there is one.
    async fn send(
        &self,
        client: &HttpClient,
        request: Request<Upload>,
        selected: &mut Selected,
        model: Option<Name>,
    ) -> Result<Response<Incoming>, Error> {
        let Some(backend) = selected.backend() else {
            return client.request(request.map(RetryBody::last_attempt)).await;
        };
        let (mut head, body) = request.into_parts();
        let (body, mut returned) = RetryBody::new(body);
        let error = match client.request(Request::from_parts(head.clone(), body)).await {
            Err(error) if error.is_connect() => error,
            answer => return answer,
        };
        self.not_connected(backend, &error);
        let (other, uri) = {
            let config = self.0.upstream.limits.config();
            let Some(other) = config.upstreams.select_other(backend, model) else { return Err(error) };
            let target = other.target(&config.upstreams);
            let Some(uri) = target.at(&head.uri) else { return Err(error) };
            head.headers.extend(value(&target.authority).map(|host| (HOST, host)));
            (other, uri)
        };
        let Ok(body) = returned.try_recv() else { return Err(error) };
        log::UPSTREAM.line(format_args!("upstream {}: {}; tried another", backend.target, chain(&error)));
        head.uri = uri;
        *selected = other;
        let answer = client.request(Request::from_parts(head, RetryBody::last_attempt(body))).await;
        if let (Err(error), Some(backend)) = (&answer, selected.backend()) {
            self.not_connected(backend, error);
        }
        answer
    }

    /// Notes an error of a request, if it is that of a connection.
    fn not_connected(&self, backend: &Backend, error: &Error) {
        if error.is_connect() {
            self.0.upstream.limits.config().upstreams.connection_failed(backend, error);
        }
    }

    /// The response for the client.
    fn accept(&self, mut response: Response<Incoming>, idle: Duration, selected: Selected) -> Response {
        if let Err(why) = conformance::check_response(&response) {
            self.log(&selected, why);
            return failed(StatusCode::BAD_GATEWAY, UpstreamError::Malformed, "the upstream's response is malformed");
        }
        drop_hop_by_hop(response.headers_mut());
        let version = response.version();
        conformance::add_via(version, response.headers_mut());
        // The connection to the client has a version of its own.
        *response.version_mut() = Version::HTTP_11;
        // The client sees that its response is incomplete, and the operator why.
        let broken = |error| {
            stats::cut_off();
            log::UPSTREAM.line(format_args!("a response of the upstream broke off: {error}"));
            error
        };
        let response =
            response.map(|body| Body::new(TimeoutBody::new(CompleteBody::of(body, version), idle).map_err(broken)));
        match selected.into_active() {
            Some(active) => ToBody.hold(response, Some(active)).map(Body::new),
            None => response,
        }
    }

    /// Makes the received request the one that is forwarded to `uri`.
    fn outward(&self, request: &mut Request<Upload>, uri: Uri, target: &Target, config: &Config) {
        let ProxyInner { peer, scheme, .. } = &*self.0;
        // The host in the target of a request replaces that of the field.
        let named = std::mem::replace(request.uri_mut(), uri).into_parts().authority;
        let version = std::mem::replace(request.version_mut(), Version::HTTP_11);
        let (method, length) = (request.method().clone(), request.body().size_hint().exact());
        request.body_mut().set_key_field(config.keys.source.field());
        let headers = request.headers_mut();
        let was_chunked = headers.contains_key(TRANSFER_ENCODING);
        drop_hop_by_hop(headers);
        // hyper answers `Expect: 100-continue` when the body is first polled, so it is not forwarded.
        headers.remove(EXPECT);
        let host = headers.remove(HOST);
        let host = named.as_ref().map_or(host, value);
        let received = Received { peer: peer.ip(), host, scheme, key_field: config.keys.source.field() };
        config.keys.proxies.rewrite(headers, received);
        headers.extend(value(&target.authority).map(|upstream| (HOST, upstream)));
        conformance::count_forward(&method, headers);
        conformance::add_via(version, headers);
        if version == Version::HTTP_2 {
            http2::join_cookies(headers);
        }
        match length {
            // Without this field hyper sends no body with methods that rarely have one.
            None => {
                headers.remove(CONTENT_LENGTH);
                headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            // And none about a body that turned out to be empty.
            Some(length) if was_chunked || (version == Version::HTTP_2 && http2::has_body(&method, length)) => {
                headers.insert(CONTENT_LENGTH, length.into());
            }
            Some(_) => {}
        }
    }

    fn failed(&self, error: &Error, selected: &Selected) -> Response {
        let mut response = self.failure(error, selected);
        if error.is_connect() {
            response.extensions_mut().insert(NotSent);
        }
        response
    }

    fn failure(&self, error: &Error, selected: &Selected) -> Response {
        if is_timeout(error) {
            return failed(StatusCode::GATEWAY_TIMEOUT, UpstreamError::Connect, "the upstream cannot be reached");
        }
        // The details go to the operator's log, and not to the client.
        self.log(selected, chain(error));
        let fault = if error.is_connect() { UpstreamError::Connect } else { UpstreamError::Broken };
        failed(StatusCode::BAD_GATEWAY, fault, "the upstream did not answer")
    }

    fn log(&self, selected: &Selected, what: impl fmt::Display) {
        let config = self.0.upstream.limits.config();
        log::UPSTREAM.line(format_args!("upstream {}: {what}", selected.target(&config.upstreams)));
    }
}

/// Waits until the upstream has taken `timeout` since the last part of the request, which is that of `began` if there is no
/// body to send.
async fn upstream_timeout(progress: Option<&Progress>, began: Instant, timeout: Duration) {
    match (progress, began.checked_add(timeout)) {
        (Some(progress), _) => progress.upstream_is_late(timeout).await,
        (None, Some(deadline)) => tokio::time::sleep_until(deadline).await,
        (None, None) => std::future::pending().await,
    }
}

/// The response to a client whose connection becomes a WebSocket.
fn switched(upgrade: UpgradeRequest, mut response: Response<Incoming>, idle: Duration, selected: Selected) -> Response {
    drop_hop_by_hop(response.headers_mut());
    conformance::add_via(response.version(), response.headers_mut());
    upgrade.accept(&mut response, idle, selected.into_active());
    response.map(|_| Body::empty())
}

/// The response while no upstream is healthy, which may change after `wait`.
pub(crate) fn unavailable(wait: Duration) -> Response {
    let mut response = counted(Outcome::Failed, StatusCode::SERVICE_UNAVAILABLE, "no upstream is healthy");
    // In whole seconds, and never too early.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    response.headers_mut().insert(RETRY_AFTER, seconds.max(1).into());
    response
}

fn value(authority: &Authority) -> Option<HeaderValue> {
    HeaderValue::try_from(authority.as_str()).ok()
}

fn failed(status: StatusCode, fault: UpstreamError, why: &'static str) -> Response {
    let mut response = counted(Outcome::Failed, status, why);
    response.extensions_mut().insert(fault);
    response
}

fn counted(outcome: Outcome, status: StatusCode, why: &'static str) -> Response {
    let mut response = local_reply::problem(status, why);
    response.extensions_mut().insert(outcome);
    response
}
