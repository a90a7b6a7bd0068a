//! A real HTTP server on a loopback port that counts requests.

use crate::Failure;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The header field with the cost of a request.
pub(crate) const COST: &str = "x-cost";

pub(crate) struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    runtime: Runtime,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Received {
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    /// The most tokens worked on at the same time.
    pub(crate) in_flight_max: u64,
    in_flight: u64,
}

impl Server {
    /// Starts on a thread of its own.
    pub(crate) fn start() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let received = Arc::<Mutex<Received>>::default();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(serve(listener, Arc::clone(&received)));
        Ok(Self { address, received, runtime })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// To be called when every request has been answered.
    pub(crate) fn stop(self) -> Received {
        self.runtime.shutdown_background();
        *self.received.lock().expect("no handler panics with the lock")
    }
}

async fn serve(listener: TcpListener, received: Arc<Mutex<Received>>) {
    while let Ok((connection, _)) = listener.accept().await {
        let received = Arc::clone(&received);
        let answer = service_fn(move |request| {
            let received = Arc::clone(&received);
            async move {
                let mut response = Response::new(Empty::<Bytes>::new());
                *response.status_mut() = work(&received, &request).await;
                Ok::<_, Infallible>(response)
            }
        });
        // It fails when the client hangs up.
        tokio::spawn(async { _ = http1::Builder::new().serve_connection(TokioIo::new(connection), answer).await });
    }
}

async fn work(received: &Mutex<Received>, request: &Request<Incoming>) -> StatusCode {
    let cost = request.headers().get(COST).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let Some(cost) = cost else { return StatusCode::BAD_REQUEST };
    let count = |change: &dyn Fn(&mut Received)| change(&mut received.lock().expect("no handler panics with the lock"));
    count(&|all| {
        all.requests += 1;
        all.tokens += cost;
        all.in_flight += cost;
        all.in_flight_max = all.in_flight_max.max(all.in_flight);
    });
    // Dear requests take longer.
    tokio::time::sleep(Duration::from_millis(cost)).await;
    count(&|all| all.in_flight -= cost);
    StatusCode::NO_CONTENT
}
