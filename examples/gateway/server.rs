//! A listener and its connections: so many at a time, and an end that loses nobody who was accepted.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tower::Service;

use super::proxy::Peer;

/// How long a client may take until it has sent the next request's head. Balancers keep idle connections for a minute, and
/// are not to find them closed.
const HEAD: Duration = Duration::from_secs(75);
/// How long a client may read nothing of its response: it holds its place in flight meanwhile.
const STALLED: Duration = Duration::from_secs(30);
/// How long those are still accepted after the end was said who are on their way already.
const LATE_COMERS: Duration = Duration::from_millis(20);
/// When no more files can be opened, others have to be closed first.
const OUT_OF_FILES: Duration = Duration::from_millis(50);

pub(crate) struct Server<S> {
    listener: TcpListener,
    service: S,
    places: Arc<Semaphore>,
    connections: GracefulShutdown,
}

/// What answers requests, and never fails.
pub(crate) trait Answers:
    Service<Request<Body>, Response = Response, Error = Infallible, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S> Answers for S where
    S: Service<Request<Body>, Response = Response, Error = Infallible, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S: Answers> Server<S> {
    pub(crate) async fn bind(address: SocketAddr, service: S, max_connections: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot listen on {address}: {error}; choose another, or stop who does"),
            )
        })?;
        let places = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        Ok(Self { listener, service, places, connections: GracefulShutdown::new() })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`; then accepts those who are at the door and nobody else, and ends when all that were accepted
    /// have their answers.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, service, places, connections } = self;
        let mut end = pin!(async {
            stop.await;
            tokio::time::sleep(LATE_COMERS).await;
        });
        loop {
            let place = Arc::clone(&places).acquire_owned();
            let next = async { (place.await.expect("it is never closed"), listener.accept().await) };
            let (place, accepted) = tokio::select! {
                biased;
                () = &mut end => break,
                next = next => next,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let connection = serve(stream, peer, service.clone());
                    let connection = connections.watch(connection);
                    tokio::spawn(async move {
                        // Whatever ends a connection early is its client's doing.
                        let _ = connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    eprintln!("gateway: cannot accept a connection: {error}");
                    tokio::time::sleep(OUT_OF_FILES).await;
                }
            }
        }
        drop(listener);
        connections.shutdown().await;
    }
}

fn serve<S: Answers>(
    stream: TcpStream,
    peer: SocketAddr,
    service: S,
) -> impl GracefulConnection<Output = hyper::Result<()>, Error = hyper::Error> + Send {
    // An answer of a few bytes is not to wait for the next one. (Not on every kind of socket.)
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALLED));
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        // It is always ready.
        service.clone().call(request)
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), service)
}
