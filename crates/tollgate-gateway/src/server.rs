//! A listener and its connections: a bounded number at a time, and a shutdown that serves every accepted connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tower::{BoxError, Service};

use super::files::Reserve;
use super::log;
use super::timeouts::Timeouts;

/// The largest head, and the most that is read ahead of a body.
const MOST_READ: usize = 64 << 10;
/// How long connections are still accepted after the shutdown began, for those that are already on their way.
const LATE_COMERS: Duration = Duration::from_millis(20);
/// The pause when a connection cannot be accepted, unless one of the server's own ends before.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Server<M> {
    listener: TcpListener,
    meet: M,
    places: Arc<Semaphore>,
    reserve: Arc<Reserve>,
    /// Notified when a connection has ended.
    ended: Arc<Notify>,
    connections: GracefulShutdown,
}

/// The service of a connection. It never fails.
pub(crate) trait Answers:
    Service<Request<Body>, Response = Response<<Self as Answers>::Body>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + 'static
{
    type Body: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send;
}

impl<S, B> Answers for S
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send + 'static>,
    S: Clone + Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
}

impl<M, S> Server<M>
where
    M: Fn(SocketAddr) -> Option<(S, Timeouts)>,
    S: Answers,
{
    /// Binds the listener. `meet` makes the service for the connection from an address, or refuses the connection. The
    /// server accepts some connections when no more files can be opened: as many as it has files in `reserve`.
    pub(crate) async fn bind(address: SocketAddr, meet: M, max_connections: usize, reserve: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "cannot listen on {address}: {error}; choose another address, or stop the process that listens there"
                ),
            )
        })?;
        let places = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        let reserve = Arc::new(Reserve::new(reserve));
        Ok(Self { listener, meet, places, reserve, ended: Arc::default(), connections: GracefulShutdown::new() })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. Then accepts only the connections that have arrived, and ends when every accepted request
    /// has its response.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let mut end = pin!(async {
            stop.await;
            tokio::time::sleep(LATE_COMERS).await;
        });
        loop {
            let (place, accepted) = tokio::select! {
                biased;
                () = &mut end => break,
                next = self.next() => next,
            };
            let Err(error) = accepted.map(|(stream, peer)| self.spawn(place, stream, peer)) else { continue };
            log::CONNECTIONS.line(format_args!("cannot accept a connection: {error}"));
            if is_out_of_files(&error) && self.reserve.give() {
                continue;
            }
            // A file that another part of the gateway closes is its own to open again. So this waits for a connection of
            // its own to end, and looks only now and then whether there are files after all.
            tokio::select! {
                biased;
                () = &mut end => break,
                () = self.ended.notified() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        drop(self.listener);
        self.connections.shutdown().await;
    }

    /// The next connection, when there is a place for it.
    async fn next(&self) -> (OwnedSemaphorePermit, io::Result<(TcpStream, SocketAddr)>) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed");
        (place, self.listener.accept().await)
    }

    fn spawn(&self, place: OwnedSemaphorePermit, stream: TcpStream, peer: SocketAddr) {
        let Some((service, timeouts)) = (self.meet)(peer) else { return };
        let has_begun = Arc::new(AtomicBool::new(false));
        let connection = self.connections.watch(serve(stream, service, timeouts, Arc::clone(&has_begun)));
        let (reserve, ended) = (Arc::clone(&self.reserve), Arc::clone(&self.ended));
        tokio::spawn(async move {
            tokio::select! {
                // A connection that ends with an error was ended by its client.
                _ = connection => {}
                () = no_request(&has_begun, timeouts.header) => {}
            }
            reserve.refill();
            drop(place);
            ended.notify_one();
        });
    }
}

/// Ends after `allowed`, unless a request has begun by then.
async fn no_request(has_begun: &AtomicBool, allowed: Duration) {
    tokio::time::sleep(allowed).await;
    if has_begun.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}

fn serve<S: Answers>(
    stream: TcpStream,
    service: S,
    timeouts: Timeouts,
    has_begun: Arc<AtomicBool>,
) -> impl GracefulConnection<Output = hyper::Result<()>, Error = hyper::Error> + Send {
    // A short response must not wait for the next one. This may fail on some kinds of sockets.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(timeouts.client));
    let service = service_fn(move |request: Request<Incoming>| {
        has_begun.store(true, Ordering::Relaxed);
        // The service is always ready.
        service.clone().call(request.map(Body::new))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.idle)
        .max_buf_size(MOST_READ)
        .max_header_size(MOST_READ)
        .serve_connection(TokioIo::new(Box::pin(stream)), service)
}
