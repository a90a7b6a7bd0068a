//! The whole gateway: two listeners, the state they share, and the shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tower::service_fn;

use super::addresses::Addresses;
use super::admin::{self, AdminState};
use super::config::Config;
use super::connection::Connection;
use super::counters::Counters;
use super::front::front;
use super::limits::Limits;
use super::log;
use super::meters::{self, Meters};
use super::places::Places;
use super::proxy::Upstream;
use super::sample::Samples;
use super::server::{Answers, Server};
use super::session::{Session, Tls};
use super::status::Status;
use super::upload::Upload;

/// The time after the grace period in which the requests that still wait get their refusal.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Connections of the operator: a browser, one or two scrapers, some pages.
const ADMIN_CONNECTIONS: usize = 100;
/// How many connections of the operator are accepted when no more files can be opened.
const ADMIN_RESERVE: usize = 8;

/// Where the gateway listens, and for how many connections of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) max_connections: usize,
}

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) limits: Arc<Limits>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) status: Arc<Status>,
    stop: oneshot::Sender<()>,
    front: JoinHandle<()>,
    /// The tasks that end with the gateway.
    others: JoinSet<()>,
}

impl Gateway {
    /// `is_limited` is false to measure the cost of the limits.
    pub(crate) async fn start(limits: Limits, place: Place, is_limited: bool) -> io::Result<Self> {
        let (limits, counters, status) = (Arc::new(limits), Arc::<Counters>::default(), Arc::new(Status::new()));
        let samples = Arc::new(Samples::new());
        let state = AdminState {
            meters: Meters::new(&limits).map_err(io::Error::other)?,
            limits: Arc::clone(&limits),
            counters: Arc::clone(&counters),
            status: Arc::clone(&status),
            samples: Arc::clone(&samples),
        };
        let meet = move |_| {
            let timeouts = state.limits.config().timeouts;
            Some(Session { service: admin::service(state.clone()), timeouts, tls: None })
        };
        let admin_server = Server::bind(place.admin, meet, ADMIN_CONNECTIONS, ADMIN_RESERVE).await?;
        let admin = admin_server.address()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            // Dropping this handle stops the task.
            let _ = stopped.await;
        };
        let clients = Clients::new(&limits, &counters, place.max_connections);
        let (address, front) = if is_limited {
            let meet = move |peer| clients.meet(peer);
            let front = Server::bind(place.listen, meet, place.max_connections, 0).await?;
            (front.address()?, tokio::spawn(front.run(stopped)))
        } else {
            let meet = move |peer| clients.meet_unlimited(peer);
            let front = Server::bind(place.listen, meet, place.max_connections, 0).await?;
            (front.address()?, tokio::spawn(front.run(stopped)))
        };
        let mut others = JoinSet::new();
        others.spawn(admin_server.run(std::future::pending()));
        others.spawn(meters::upkeep());
        others.spawn(samples.take(Arc::clone(&limits), Arc::clone(&counters), Arc::clone(&status)));
        Ok(Self { address, admin, limits, counters, status, stop, front, others })
    }

    /// Stops accepting connections, serves the requests that wait and those in flight for the grace period, then
    /// refuses the ones that still wait. Returns true if every request got a response.
    pub(crate) async fn shut_down(self) -> bool {
        let Self { limits, status, stop, mut front, others, .. } = self;
        status.end();
        drop(stop);
        let grace = limits.config().grace;
        let mut is_done = tokio::time::timeout(grace, &mut front).await.is_ok();
        if !is_done {
            limits.close();
            is_done = tokio::time::timeout(LAST_WORDS, front).await.is_ok();
        }
        // The admin server runs until here, so that the page shows the shutdown.
        drop(others);
        is_done
    }
}

/// What the connections of clients share.
struct Clients {
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    upstream: Upstream,
    addresses: Addresses,
    /// The places of the requests of HTTP/2 connections.
    requests: Arc<Semaphore>,
}

impl Clients {
    fn new(limits: &Arc<Limits>, counters: &Arc<Counters>, max_connections: usize) -> Self {
        let (limits, counters) = (Arc::clone(limits), Arc::clone(counters));
        let addresses = Addresses::new(limits.config().fixed.max_connections_per_address.value);
        let requests = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        Self { upstream: Upstream::new(Arc::clone(&limits)), limits, counters, addresses, requests }
    }

    fn tls(&self, config: &Config, peer: SocketAddr) -> Option<Tls> {
        let is_counted = !config.keys.proxies.trust(peer.ip());
        let own = is_counted.then(|| (self.addresses.clone(), peer.ip()));
        let places = || Places::new(Arc::clone(&self.requests), own);
        config.tls.clone().map(|config| Tls { config, places: places() })
    }

    /// The session of a connection, unless its address has too many.
    fn meet(&self, peer: SocketAddr) -> Option<Session<impl Answers + use<>>> {
        let config = self.limits.config();
        let counted = if config.keys.proxies.trust(peer.ip()) {
            None
        } else if let Some(counted) = self.addresses.enter(peer.ip()) {
            Some(counted)
        } else {
            meters::refused_connection();
            log::CONNECTIONS.line(format_args!("{} has as many connections as one address may have", peer.ip()));
            return None;
        };
        let (limits, counters) = (Arc::clone(&self.limits), Arc::clone(&self.counters));
        let proxy = self.upstream.proxy(peer, config.scheme());
        let connection = Connection { peer, limits, counters, proxy, _counted: counted };
        Some(Session { service: front(connection), timeouts: config.timeouts, tls: self.tls(&config, peer) })
    }

    /// A session without limits, to measure their cost.
    fn meet_unlimited(&self, peer: SocketAddr) -> Option<Session<impl Answers + use<>>> {
        let config = self.limits.config();
        let proxy = self.upstream.proxy(peer, config.scheme());
        let service = service_fn(move |request: Request<Body>| {
            let proxy = proxy.clone();
            async move { Ok::<_, Infallible>(proxy.forward(request.map(Upload::streaming)).await) }
        });
        Some(Session { service, timeouts: config.timeouts, tls: self.tls(&config, peer) })
    }
}
