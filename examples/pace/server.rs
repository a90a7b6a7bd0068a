//! A real HTTP server on a loopback port that records every request.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::Failure;
use crate::claim::{Claim, ClaimRecorder, HEADER};

pub(crate) struct Server {
    address: SocketAddr,
    log: Arc<Log>,
    runtime: Runtime,
}

/// The records of a whole run.
pub(crate) struct Seen {
    pub(crate) arrivals: Vec<Arrival>,
    /// The most tokens worked on at the same time.
    pub(crate) in_flight_max: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    /// Nanoseconds since the start.
    pub(crate) at: u64,
    pub(crate) claim: Claim,
}

struct Log {
    recorder: Arc<ClaimRecorder>,
    arrivals: Mutex<Vec<Arrival>>,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
}

impl Server {
    /// Starts on a thread of its own.
    pub(crate) fn start(recorder: Arc<ClaimRecorder>) -> Result<Server, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let log = Arc::new(Log {
            recorder,
            arrivals: Mutex::default(),
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
        });
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(serve(listener, log.clone()));
        Ok(Server { address, log, runtime })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// To be called when every request has been answered.
    pub(crate) fn stop(self) -> Seen {
        self.runtime.shutdown_background();
        let arrivals = std::mem::take(&mut *self.log.arrivals.lock().expect("handlers never panic with the lock"));
        Seen { arrivals, in_flight_max: self.log.in_flight_max.load(Ordering::Relaxed) }
    }
}

async fn serve(listener: TcpListener, log: Arc<Log>) {
    while let Ok((connection, _)) = listener.accept().await {
        let log = log.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let log = log.clone();
            async move {
                let mut response = Response::new(Empty::<Bytes>::new());
                *response.status_mut() = work(&log, request.headers()).await;
                Ok::<_, Infallible>(response)
            }
        });
        // It fails when the client hangs up.
        tokio::spawn(async { _ = http1::Builder::new().serve_connection(TokioIo::new(connection), answer).await });
    }
}

async fn work(log: &Log, headers: &HeaderMap) -> StatusCode {
    let at = log.recorder.now();
    let Some(claim) = headers.get(HEADER).and_then(|value| value.to_str().ok()?.parse::<Claim>().ok()) else {
        return StatusCode::BAD_REQUEST;
    };
    log.arrivals.lock().expect("handlers never panic with the lock").push(Arrival { at, claim });
    let in_flight = log.in_flight.fetch_add(claim.cost, Ordering::Relaxed) + claim.cost;
    log.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
    simulate_work(claim.place).await;
    log.in_flight.fetch_sub(claim.cost, Ordering::Relaxed);
    StatusCode::NO_CONTENT
}

/// One request in four takes from 2 to 12 ms; the others are answered at once.
async fn simulate_work(place: u64) {
    if place.is_multiple_of(4) {
        tokio::time::sleep(Duration::from_millis(2 + place / 4 % 11)).await;
    }
}
