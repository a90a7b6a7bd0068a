//! One connection of a client, from its TLS handshake to its end.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::http_service::{HttpService, MAX_READ};
use super::http1::serve_http1;
use super::stream_permits::StreamPermits;
use super::streams::{StreamResponseBody, Streams};
use crate::body::complete_body::CompleteBody;
use crate::config::timeouts::Timeouts;
use crate::http::local_reply;
use crate::telemetry::connection_counts;
use crate::telemetry::log;

/// The bounds of an HTTP/2 connection: its requests at a time, what a client may send of one and of all of them before
/// the gateway reads it, and what the gateway keeps of a response that the client does not take. All have space for each of
/// their requests, so those whose bodies wait hold back no other.
const MAX_STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
const MAX_UNSENT: usize = 64 << 10;
/// How often the gateway asks whether the client of an HTTP/2 connection is still there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Grace after GOAWAY: the client may have sent a request before it received it.
const GOAWAY_GRACE: Duration = Duration::from_secs(1);

/// How a connection is served.
pub(crate) struct Session<S> {
    pub(crate) service: S,
    pub(crate) timeouts: Timeouts,
    /// `None`: the connection is not encrypted.
    pub(crate) tls: Option<Tls>,
}

/// An encrypted connection, which may speak HTTP/2.
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    /// Each request of HTTP/2 needs one.
    pub(crate) permits: StreamPermits,
}

impl<S: HttpService> Session<S> {
    /// Serves until the client or a time-out ends the connection. After `stop`, until the requests that it has received
    /// are answered.
    pub(crate) async fn run(self, stream: TcpStream, peer: SocketAddr, stop: watch::Receiver<()>) {
        // A short response must not wait for the next one. This may fail on some kinds of sockets.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.timeouts.client));
        let (timeout, has_begun) = (self.timeouts.header, Arc::new(AtomicBool::new(false)));
        tokio::select! {
            () = self.serve(Box::pin(stream), peer, stop, Arc::clone(&has_begun)) => {}
            () = no_request(&has_begun, timeout) => {}
        }
    }

    async fn serve<I>(self, stream: I, peer: SocketAddr, stop: watch::Receiver<()>, has_begun: Arc<AtomicBool>)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { service, timeouts, tls } = self;
        let Some(Tls { config, permits }) = tls else {
            return serve_http1(stream, service, timeouts, stop, has_begun).await;
        };
        // In boxes: a connection without TLS need not have the memory for it.
        let stream = match Box::pin(TlsAcceptor::from(config).accept(stream)).await {
            Ok(stream) => Box::new(stream),
            Err(error) => return log_handshake_error(peer, &error),
        };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            Box::pin(serve_http2(stream, service, timeouts, permits, stop, has_begun)).await;
        } else {
            Box::pin(serve_http1(stream, service, timeouts, stop, has_begun)).await;
        }
    }
}

fn log_handshake_error(peer: SocketAddr, error: &io::Error) {
    connection_counts::failed_handshake();
    log::CONNECTIONS.line(format_args!("the TLS handshake with {} failed: {error}", peer.ip()));
}

/// Ends after `timeout`, unless a request has begun by then.
async fn no_request(has_begun: &AtomicBool, timeout: Duration) {
    tokio::time::sleep(timeout).await;
    if has_begun.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

async fn serve_http2<S: HttpService>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: S,
    timeouts: Timeouts,
    permits: StreamPermits,
    mut stop: watch::Receiver<()>,
    has_begun: Arc<AtomicBool>,
) {
    let streams = Streams::new(timeouts.client);
    let own = streams.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        has_begun.store(true, Ordering::Relaxed);
        let unanswered = own.request();
        // The service is always ready.
        let call = || service.clone().call(request.map(|body| Body::new(CompleteBody::of(body, Version::HTTP_2))));
        let answer = permits.try_acquire().map(|permit| (permit, call()));
        async move {
            let Some((permit, answer)) = answer else {
                unanswered.answered();
                return Ok(stream_refused().map(|body| StreamResponseBody::new(body, None)));
            };
            let response = answer.await;
            unanswered.answered();
            response.map(|response| response.map(|body| StreamResponseBody::new(Body::new(body), Some(permit))))
        }
    });
    let connection = http2::Builder::new(streams.clone())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_READ as u32)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_UNSENT)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(timeouts.client)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = streams.are_flooded() => return connection_counts::flooded_connection(),
        () = streams.are_quiet(timeouts.idle) => {}
        _ = stop.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let is_over = async {
        // A client that does not acknowledge the end is not waited for.
        tokio::time::sleep(GOAWAY_GRACE).await;
        streams.are_quiet(GOAWAY_GRACE).await;
    };
    tokio::select! {
        _ = connection => {}
        () = streams.are_flooded() => connection_counts::flooded_connection(),
        () = is_over => {}
    }
}

/// The response to a request for which there is no permit. On HTTP/1.1 its connection would have been refused.
fn stream_refused() -> Response<Body> {
    connection_counts::refused_stream();
    let mut response = local_reply::problem(StatusCode::SERVICE_UNAVAILABLE, "there are too many requests at a time");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
