//! HTTP/1.1 connections. The library keeps two buffers of 8 kB for a connection, and what it needs for a request. A
//! connection on which nothing happens for about a second gives them up, until its client sends something again.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use futures::poll;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_tower::{HeldBody, Hold, ToBody};

use super::http_service::{HttpService, MAX_READ};
use super::prefixed_io::{IoState, PrefixedIo};
use crate::config::timeouts::Timeouts;
use crate::proxy::tunnel::PendingTunnel;

/// How often a connection looks whether it had a request. It gives up its buffers when it had none between two looks.
const QUIET: Duration = Duration::from_millis(500);

/// What happened to a connection.
enum Event {
    /// Its client, a time-out or an error ended it, or it has become a tunnel.
    Over,
    /// It has no request for a while.
    Quiet,
    /// The gateway shuts down.
    Stop,
}

/// The requests of a connection since it has buffers.
#[derive(Default)]
struct RequestCount {
    begun: AtomicU64,
    /// Of which the response has been given to the library, to its last byte.
    ended: AtomicU64,
}

/// A request, which has ended when this is dropped.
struct Counted(Arc<RequestCount>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

impl RequestCount {
    fn begin(self: &Arc<Self>) -> Counted {
        self.begun.fetch_add(1, Relaxed);
        Counted(Arc::clone(self))
    }

    /// Waits until there was a request, and then none for a while, and all of its response was sent.
    async fn quiet(&self, io: &IoState) {
        let mut seen = 0;
        loop {
            sleep(QUIET).await;
            let (begun, ended) = (self.begun.load(Relaxed), self.ended.load(Relaxed));
            if ended > 0 && begun == ended && ended == seen && !io.is_blocked.load(Relaxed) {
                return;
            }
            seen = ended;
        }
    }
}

/// Serves requests until the connection ends; after `stop`, until those that it has received are answered.
pub(super) async fn serve_http1<I, S>(
    mut stream: I,
    service: S,
    timeouts: Timeouts,
    mut stop: watch::Receiver<()>,
    has_begun: Arc<AtomicBool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    // What the client has sent of its next request, and the time that is left for the rest of the head.
    let (mut received, mut head_timeout) = (Bytes::new(), timeouts.idle);
    loop {
        let serve = serve_until_quiet(stream, received, service.clone(), head_timeout, &mut stop, &has_begun);
        let Some((idle_stream, rest)) = Box::pin(serve).await else { return };
        (stream, received, head_timeout) = (idle_stream, rest, timeouts.idle.saturating_sub(QUIET));
        if received.is_empty() {
            let deadline = Instant::now() + head_timeout;
            let first = tokio::select! {
                first = timeout_at(deadline, first_byte(&mut stream)) => first,
                _ = stop.changed() => break,
            };
            let Ok(Ok(Some(first))) = first else { break };
            (received, head_timeout) = (first, deadline.saturating_duration_since(Instant::now()));
        }
    }
    // The client may have closed its end already.
    let _ = stream.shutdown().await;
}

/// The first byte that the client sends; `None` if it ends the connection.
async fn first_byte(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Option<Bytes>> {
    stream.flush().await?;
    let mut byte = [0];
    let read = stream.read(&mut byte).await?;
    Ok((read > 0).then(|| Bytes::copy_from_slice(&byte)))
}

/// Serves requests until there is none for a while. Returns the stream then, and what was read of the next request; `None` if
/// the connection has ended.
async fn serve_until_quiet<I, S>(
    stream: I,
    received: Bytes,
    service: S,
    head_timeout: Duration,
    stop: &mut watch::Receiver<()>,
    has_begun: &Arc<AtomicBool>,
) -> Option<(I, Bytes)>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    let (pending_tunnel, count) = (PendingTunnel::default(), Arc::<RequestCount>::default());
    let (stream, io) = PrefixedIo::new(received, stream);
    let service = counted_service(service, pending_tunnel.clone(), Arc::clone(&count), Arc::clone(has_begun));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(MAX_READ)
        .max_header_size(MAX_READ)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // A connection that ends with an error was ended by its client.
    let event = tokio::select! {
        // First, so that the library knows all that has happened when the connection seems to be quiet.
        biased;
        _ = &mut connection => Event::Over,
        () = count.quiet(&io) => Event::Quiet,
        _ = stop.changed() => Event::Stop,
    };
    if matches!(event, Event::Over) {
        drop(connection);
        run_tunnel(&pending_tunnel, stop).await;
        return None;
    }
    io.stays_open.store(matches!(event, Event::Quiet), Relaxed);
    Pin::new(&mut connection).graceful_shutdown();
    match (event, poll!(&mut connection)) {
        // The library agrees that it has no request.
        (Event::Quiet, Poll::Ready(Ok(()))) => {
            let parts = connection.into_parts()?;
            let stream: PrefixedIo<I> = parts.io.into_inner();
            return Some((stream.into_inner(), without_buffer(&parts.read_buf)));
        }
        (_, Poll::Pending) => {
            io.stays_open.store(false, Relaxed);
            let _ = connection.await;
        }
        (_, Poll::Ready(_)) => {}
    }
    None
}

/// What is left in a buffer, in memory of its own: an empty part of a buffer keeps all of the buffer.
fn without_buffer(left: &[u8]) -> Bytes {
    Bytes::copy_from_slice(left)
}

/// The service of a connection, whose requests are counted until their responses have ended.
fn counted_service<S: HttpService>(
    service: S,
    pending_tunnel: PendingTunnel,
    count: Arc<RequestCount>,
    has_begun: Arc<AtomicBool>,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<HeldBody<<S as HttpService>::Body, Counted>>,
    Error = Infallible,
    Future: Send,
> {
    service_fn(move |mut request: Request<Incoming>| {
        has_begun.store(true, Relaxed);
        if request.extensions().get::<OnUpgrade>().is_some() {
            request.extensions_mut().insert(pending_tunnel.clone());
        }
        let counted = count.begin();
        // The service is always ready. In a box: the connection would keep the memory of it.
        let answer = Box::pin(service.clone().call(request.map(Body::new)));
        async move { answer.await.map(|response| ToBody.hold(response, Some(counted))) }
    })
}

/// Runs what the connection has become, if it has become a tunnel.
async fn run_tunnel(pending_tunnel: &PendingTunnel, stop: &mut watch::Receiver<()>) {
    let Some(tunnel) = pending_tunnel.take() else { return };
    tokio::select! {
        () = tunnel => {}
        // A tunnel has no last request to wait for.
        _ = stop.changed() => {}
    }
}

#[test]
fn what_an_idle_connection_keeps_does_not_hold_its_buffer() {
    for text in ["", "G"] {
        let mut buffer = axum::body::Bytes::from(vec![b'x'; 8_192]).try_into_mut().expect("it is not shared");
        buffer.truncate(0);
        buffer.extend_from_slice(text.as_bytes());
        let kept = without_buffer(&buffer.freeze());
        assert_eq!(kept, text);
        assert!(kept.try_into_mut().map_or(0, |kept| kept.capacity()) <= text.len(), "{text}");
    }
}
