//! One connection of a client, from its TLS handshake to its end.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::log;
use super::meters;
use super::server::Answers;
use super::timeouts::Timeouts;

/// The largest head, and the most that is read ahead of a body.
pub(crate) const MOST_READ: usize = 64 << 10;

/// How a connection is served.
pub(crate) struct Session<S> {
    pub(crate) service: S,
    pub(crate) timeouts: Timeouts,
    /// `None`: the connection is not encrypted.
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

impl<S: Answers> Session<S> {
    /// Serves until the client or a time-out ends the connection. After `stop`, until the requests that it has received
    /// are answered.
    pub(crate) async fn run(self, stream: TcpStream, peer: SocketAddr, stop: watch::Receiver<()>) {
        // A short response must not wait for the next one. This may fail on some kinds of sockets.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.timeouts.client));
        let (allowed, has_begun) = (self.timeouts.header, Arc::new(AtomicBool::new(false)));
        tokio::select! {
            () = self.serve(Box::pin(stream), peer, stop, Arc::clone(&has_begun)) => {}
            () = no_request(&has_begun, allowed) => {}
        }
    }

    async fn serve<I>(self, stream: I, peer: SocketAddr, stop: watch::Receiver<()>, has_begun: Arc<AtomicBool>)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { service, timeouts, tls } = self;
        let Some(tls) = tls else { return serve_http1(stream, service, timeouts, stop, has_begun).await };
        match TlsAcceptor::from(tls).accept(stream).await {
            Ok(stream) => serve_http1(stream, service, timeouts, stop, has_begun).await,
            Err(error) => no_handshake(peer, &error),
        }
    }
}

fn no_handshake(peer: SocketAddr, error: &io::Error) {
    meters::failed_handshake();
    log::CONNECTIONS.line(format_args!("the TLS handshake with {} failed: {error}", peer.ip()));
}

/// Ends after `allowed`, unless a request has begun by then.
async fn no_request(has_begun: &AtomicBool, allowed: Duration) {
    tokio::time::sleep(allowed).await;
    if has_begun.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

async fn serve_http1<S: Answers>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: S,
    timeouts: Timeouts,
    mut stop: watch::Receiver<()>,
    has_begun: Arc<AtomicBool>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        has_begun.store(true, Ordering::Relaxed);
        // The service is always ready.
        service.clone().call(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.idle)
        .max_buf_size(MOST_READ)
        .max_header_size(MOST_READ)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // A connection that ends with an error was ended by its client.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
