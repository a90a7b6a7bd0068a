//! A listener and its connections: a bounded number at a time, and a shutdown that serves every accepted connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tower::{BoxError, Service};

/// How long a client may take until it has sent the next request's head. Load balancers keep idle connections for a
/// minute, and should not find them closed.
const HEAD: Duration = Duration::from_secs(75);
/// How long a client may read nothing of its response. Its tokens are in flight meanwhile.
const STALLED: Duration = Duration::from_secs(30);
/// How long connections are still accepted after the shutdown began, for those that are already on their way.
const LATE_COMERS: Duration = Duration::from_millis(20);
/// The pause when no more files can be opened: other connections have to be closed first.
const OUT_OF_FILES: Duration = Duration::from_millis(50);

pub(crate) struct Server<M> {
    listener: TcpListener,
    meet: M,
    places: Arc<Semaphore>,
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
    M: Fn(SocketAddr) -> S,
    S: Answers,
{
    /// Binds the listener. `meet` makes the service for the connection from an address.
    pub(crate) async fn bind(address: SocketAddr, meet: M, max_connections: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "cannot listen on {address}: {error}; choose another address, or stop the process that listens there"
                ),
            )
        })?;
        let places = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        Ok(Self { listener, meet, places, connections: GracefulShutdown::new() })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. Then accepts only the connections that have arrived, and ends when every accepted request
    /// has its response.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, meet, places, connections } = self;
        let mut end = pin!(async {
            stop.await;
            tokio::time::sleep(LATE_COMERS).await;
        });
        loop {
            let place = Arc::clone(&places).acquire_owned();
            let next = async { (place.await.expect("the semaphore is never closed"), listener.accept().await) };
            let (place, accepted) = tokio::select! {
                biased;
                () = &mut end => break,
                next = next => next,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let connection = serve(stream, meet(peer));
                    let connection = connections.watch(connection);
                    tokio::spawn(async move {
                        // A connection that ends with an error was ended by its client.
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
    service: S,
) -> impl GracefulConnection<Output = hyper::Result<()>, Error = hyper::Error> + Send {
    // A short response must not wait for the next one. This may fail on some kinds of sockets.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALLED));
    let service = service_fn(move |request: Request<Incoming>| {
        // The service is always ready.
        service.clone().call(request.map(Body::new))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), service)
}
