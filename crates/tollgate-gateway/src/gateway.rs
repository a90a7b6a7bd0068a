//! The whole gateway: two listeners, the state they share, and the shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::admin::meters::{self, Meters};
use crate::admin::sample::{Samples, Sources};
use crate::admin::status::Status;
use crate::admin::{self, AdminState};
use crate::config::Config;
use crate::config::log_destination::Destination;
use crate::downstream::connection::Connection;
use crate::downstream::connection_limit::ConnectionLimit;
use crate::downstream::handler::handler;
use crate::downstream::http_service::HttpService;
use crate::downstream::server::Server;
use crate::downstream::session::{Session, Tls};
use crate::downstream::stream_permits::StreamPermits;
use crate::limits::Limits;
use crate::proxy::UpstreamClients;
use crate::proxy::checker::Checker;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::connection_counts;
use crate::telemetry::counters::Counters;
use crate::telemetry::log;
use crate::telemetry::stats::Stats;

/// The time after the grace period in which the requests that still wait get their refusal.
const REFUSAL_GRACE: Duration = Duration::from_secs(1);
/// Connections of the operator: a browser, one or two scrapers, some pages.
const ADMIN_CONNECTIONS: usize = 100;
/// How many connections of the operator are accepted when no more files can be opened.
const ADMIN_RESERVE: usize = 8;

/// Where the gateway listens, and for how many connections of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenConfig {
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
    access_log: AccessLog,
    stop: oneshot::Sender<()>,
    front: JoinHandle<()>,
    /// The tasks that end with the gateway.
    others: JoinSet<()>,
}

impl Gateway {
    /// `is_limited` is false to measure the cost of the limits.
    pub(crate) async fn start(limits: Limits, listen_config: ListenConfig, is_limited: bool) -> io::Result<Self> {
        let (limits, counters, status) = (Arc::new(limits), Arc::<Counters>::default(), Arc::new(Status::new()));
        let samples = Arc::new(Samples::new());
        let access_log = {
            let fixed = &limits.config().fixed;
            AccessLog::start(fixed.access_log.value.as_ref(), fixed.access_log_query.value)?
        };
        let stats = Arc::new(Stats::new(access_log.lines()));
        let state = AdminState {
            meters: Meters::new(&limits).map_err(io::Error::other)?,
            limits: Arc::clone(&limits),
            counters: Arc::clone(&counters),
            status: Arc::clone(&status),
            samples: Arc::clone(&samples),
            stats: Arc::clone(&stats),
        };
        let make_session = move |_| {
            let timeouts = state.limits.config().timeouts;
            Some(Session { service: admin::service(state.clone()), timeouts, tls: None })
        };
        let admin_server = Server::bind(listen_config.admin, make_session, ADMIN_CONNECTIONS, ADMIN_RESERVE).await?;
        let admin = admin_server.address()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            // Dropping this handle stops the task.
            let _ = stopped.await;
        };
        let clients = Clients::new(&limits, &counters, &stats, &access_log, listen_config.max_connections);
        let make_session = move |peer| clients.make_session(peer, is_limited);
        let front = Server::bind(listen_config.listen, make_session, listen_config.max_connections, 0).await?;
        let (address, front) = (front.address()?, tokio::spawn(front.run(stopped)));
        let mut others = JoinSet::new();
        others.spawn(admin_server.run(std::future::pending()));
        others.spawn(meters::upkeep());
        others.spawn(Checker::new(Arc::clone(&limits)).run());
        others.spawn(access_log.reopening()?);
        let sources = Sources {
            limits: Arc::clone(&limits),
            counters: Arc::clone(&counters),
            status: Arc::clone(&status),
            stats,
        };
        others.spawn(samples.take(sources));
        Ok(Self { address, admin, limits, counters, status, access_log, stop, front, others })
    }

    /// Whether the standard output is for the lines of the access log alone.
    pub(crate) fn has_log_on_stdout(&self) -> bool {
        self.limits.config().fixed.access_log.value == Some(Destination::Stdout)
    }

    /// Says where it is.
    pub(crate) fn announce(&self) {
        let scheme = self.limits.config().scheme();
        let greeting = format!("gateway: requests at {scheme}://{}, the page at http://{}/", self.address, self.admin);
        if self.has_log_on_stdout() { eprintln!("{greeting}") } else { println!("{greeting}") }
    }

    /// Stops accepting connections, serves the requests that wait and those in flight for the grace period, then
    /// refuses the ones that still wait. Returns true if every request got a response.
    pub(crate) async fn shut_down(self) -> bool {
        let Self { limits, status, access_log, stop, mut front, others, .. } = self;
        status.end();
        drop(stop);
        let grace = limits.config().grace;
        let mut is_done = tokio::time::timeout(grace, &mut front).await.is_ok();
        if !is_done {
            limits.close();
            is_done = tokio::time::timeout(REFUSAL_GRACE, front).await.is_ok();
        }
        access_log.flush().await;
        // The admin server runs until here, so that the page shows the shutdown.
        drop(others);
        is_done
    }
}

/// What the connections of clients share.
struct Clients {
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    upstream: Arc<UpstreamClients>,
    addresses: ConnectionLimit,
    /// The permits of the requests of HTTP/2 connections.
    requests: Arc<Semaphore>,
    stats: Arc<Stats>,
    access_log: AccessLog,
}

impl Clients {
    fn new(
        limits: &Arc<Limits>,
        counters: &Arc<Counters>,
        stats: &Arc<Stats>,
        access_log: &AccessLog,
        max_connections: usize,
    ) -> Self {
        let (limits, counters) = (Arc::clone(limits), Arc::clone(counters));
        let (stats, access_log) = (Arc::clone(stats), access_log.clone());
        let addresses = ConnectionLimit::new(limits.config().fixed.max_connections_per_address.value);
        let requests = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        let upstream = Arc::new(UpstreamClients::new(Arc::clone(&limits)));
        Self { upstream, limits, counters, addresses, requests, stats, access_log }
    }

    fn tls(&self, config: &Config, peer: SocketAddr) -> Option<Tls> {
        let is_counted = !config.keys.proxies.trust(peer.ip());
        let own = is_counted.then(|| (self.addresses.clone(), peer.ip()));
        let permits = || StreamPermits::new(Arc::clone(&self.requests), own);
        config.tls.clone().map(|config| Tls { config, permits: permits() })
    }

    /// The session of a connection, unless its address has too many.
    fn make_session(&self, peer: SocketAddr, is_limited: bool) -> Option<Session<impl HttpService + use<>>> {
        let config = self.limits.config();
        let counted = if config.keys.proxies.trust(peer.ip()) {
            None
        } else if let Some(counted) = self.addresses.try_acquire(peer.ip()) {
            Some(counted)
        } else {
            connection_counts::refused_connection();
            log::CONNECTIONS.line(format_args!("{} has as many connections as one address may have", peer.ip()));
            return None;
        };
        let (limits, counters) = (Arc::clone(&self.limits), Arc::clone(&self.counters));
        let connection = Connection {
            peer,
            limits,
            counters,
            proxy: self.upstream.proxy(peer, config.scheme()),
            stats: Arc::clone(&self.stats),
            access_log: self.access_log.clone(),
            is_limited,
            _counted: counted,
        };
        Some(Session { service: handler(connection), timeouts: config.timeouts, tls: self.tls(&config, peer) })
    }
}
