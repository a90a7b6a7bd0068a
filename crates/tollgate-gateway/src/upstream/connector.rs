//! How the gateway connects to its upstream.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustix::io::Errno;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower::{BoxError, Service};

use crate::body::retry_body::RetryBody;

/// Shorter than an upstream keeps idle connections: if the upstream closed first, a request could be lost on a closing
/// connection.
const IDLE: Duration = Duration::from_secs(15);
const CONNECT: Duration = Duration::from_secs(3);
/// For the connection and the TLS handshake together.
const HANDSHAKE: Duration = Duration::from_secs(6);
/// How often the gateway asks whether the upstream of an HTTP/2 connection with open requests is still there, and how long
/// it waits for the answer.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_ANSWER: Duration = Duration::from_secs(10);
/// What the upstream may send of one response before its client takes it. All responses of a connection together have no
/// bound of their own: clients that take nothing would hold back the responses of the others.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
const MAX_HEAD: u32 = 64 << 10;

pub(crate) type HttpClient = Client<TimeoutConnector<HttpsConnector<HttpConnector>>, RetryBody>;

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamProtocol {
    Http1,
    /// Without asking. All requests share one connection, so also the number of requests that the upstream takes on it.
    Http2,
}

/// A client for requests to upstreams. It trusts `roots`, and keeps up to `idle` connections to each upstream.
pub(crate) fn client(roots: Arc<RootCertStore>, upstream_protocol: UpstreamProtocol, idle: usize) -> HttpClient {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_nodelay(true);
    // The scheme decides.
    tcp.enforce_http(false);
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let tls = tls.with_safe_default_protocol_versions().expect("the provider has them");
    let tls = tls.with_root_certificates(roots).with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let connector = match upstream_protocol {
        UpstreamProtocol::Http1 => connector.enable_http1().wrap_connector(tcp),
        UpstreamProtocol::Http2 => connector.enable_http2().wrap_connector(tcp),
    };
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(idle)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_only(upstream_protocol == UpstreamProtocol::Http2)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(MAX_HEAD)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_ANSWER)
        .build(TimeoutConnector(connector))
}

/// Whether the gateway could not connect because it has too few files, addresses or too little memory itself.
pub(crate) fn is_local_resource_error(error: &(dyn Error + 'static)) -> bool {
    let own = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
    let of = |error: &(dyn Error + 'static)| error.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
    causes(error).any(|error| of(error).is_some_and(|error| own.contains(&error)))
}

pub(crate) fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let kind = |error: &(dyn Error + 'static)| error.downcast_ref::<io::Error>().map(io::Error::kind);
    causes(error).any(|error| kind(error) == Some(io::ErrorKind::TimedOut))
}

/// The error and its causes, for the operator.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// A connector with a time-out for all that it does.
#[derive(Clone)]
pub(crate) struct TimeoutConnector<C>(C);

impl<C> Service<Uri> for TimeoutConnector<C>
where
    C: Service<Uri, Error = BoxError, Future: Send + 'static>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = tokio::time::timeout(HANDSHAKE, self.0.call(uri));
        Box::pin(
            async move { connected.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())) },
        )
    }
}
