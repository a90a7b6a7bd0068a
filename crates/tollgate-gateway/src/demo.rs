//! The demo: an upstream, several clients that keep their quota, each in its own way, and one that does not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::IntoFuture;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use axum::routing::get;
use http_body_util::BodyExt;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Failure;
use crate::config::Config;
use crate::config::problem::Problem;
use crate::gateway::{Gateway, ListenConfig};
use crate::limits::Limits;
use crate::upstream::backends::Backends;

const ABUSER: &str = "scraper";
/// The number of requests that the scraper has open at any time.
const FLOOD: usize = 56;
/// The pause of the scraper after a refusal.
const ABUSER_RETRY: Duration = Duration::from_millis(250);

/// Runs for `seconds`, or until a signal. Returns whether all checks passed.
pub(crate) async fn run(
    seconds: Option<u64>,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
) -> Result<bool, Failure> {
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let config = config(upstream.local_addr()?)?;
    tokio::spawn(axum::serve(upstream, api()).into_future());
    let listen_config = ListenConfig {
        listen: listen.unwrap_or(config.fixed.listen.value),
        admin: admin.unwrap_or(config.fixed.admin.value),
        max_connections: crate::downstream::open_files::raise_limit(config.fixed.max_connections.value)?,
    };
    let ending = super::ShutdownSignal::new(seconds)?;
    let gateway = Gateway::start(Limits::new(config)?, listen_config, true).await?;
    gateway.announce();
    let limits = Arc::clone(&gateway.limits);
    let clients = Clients::start(gateway.address);
    ending.received().await;
    let tally = clients.stop().await;
    let (took, config) = (tally.began.elapsed(), limits.config());
    let is_answered = super::end(gateway).await;
    Ok(tally.is_right(took + limits.clients.listed.snapshot().lateness, config.keys.quota) && is_answered)
}

fn config(upstream: SocketAddr) -> Result<Config, Problem> {
    let mut config = Config::parse(Path::new("demo.toml"), include_str!("../demo.toml"))?;
    let upstream = format!("http://{upstream}").parse().expect("an address is an authority");
    config.upstreams = Backends::new([upstream], None);
    Ok(config)
}

/// The upstream: a fast path, an expensive one and a slow one.
fn api() -> Router {
    let some = |least: u64, most: u64| Duration::from_millis(fastrand::u64(least..most));
    let search = async move || {
        tokio::time::sleep(some(20, 140)).await;
        "[]\n"
    };
    let report = async move || {
        tokio::time::sleep(some(150, 400)).await;
        "a report\n"
    };
    Router::new()
        .route("/search", get(search))
        .route("/reports", get(report))
        .route("/export", get(async || export()))
        .route("/status", get(async || "ok\n"))
}

/// A body that is sent slowly.
fn export() -> Response {
    let rows = futures::stream::unfold(0, async |row| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        (row < 20).then(|| (Ok::<_, Infallible>(Bytes::from(format!("row {row}\n"))), row + 1))
    });
    Response::new(Body::from_stream(rows))
}

/// An upstream that responds at once.
pub(crate) async fn echo(address: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    println!("gateway: an upstream at http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, Router::new().fallback(async || "hello\n")).await?)
}

/// The responses that the clients received, by key.
struct Tally {
    began: Instant,
    answers: Mutex<BTreeMap<&'static str, BTreeMap<u16, u64>>>,
    /// Errors of requests without a response.
    lost: Mutex<Vec<String>>,
}

impl Tally {
    fn note(&self, key: &'static str, answer: Result<StatusCode, Failure>) {
        match answer {
            Ok(status) => {
                let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
                *answers.entry(key).or_default().entry(status.as_u16()).or_default() += 1;
            }
            Err(error) => self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string()),
        }
    }

    /// Checks that every request got a response, that the scraper got no more than its quota, and that the others were
    /// served.
    fn is_right(&self, took: Duration, quota: tollgate::Quota) -> bool {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{:16} {:>8} {:>8}  others", "key", "served", "refused");
        let of = |key: &str, status: u16| answers.get(key).and_then(|seen| seen.get(&status)).copied().unwrap_or(0);
        for (key, seen) in answers.iter() {
            let others: Vec<_> = seen.iter().filter(|(status, _)| ![200, 429].contains(*status)).collect();
            println!("{key:16} {:8} {:8}  {others:?}", of(key, 200), of(key, 429));
        }
        let others = answers.values().flatten().filter(|(status, _)| ![200, 429, 503].contains(*status)).count();
        let allowed = quota.capacity() + (quota.amount() as f64 * took.as_secs_f64()).ceil() as u64;
        let is_right = lost.is_empty()
            && others == 0
            && of(ABUSER, 200) <= allowed
            && of(ABUSER, 429) > 0
            && of("mobile-app", 200) > 0;
        println!(
            "result={} seconds={:.1} scraper_served={} scraper_allowed={allowed} scraper_refused={} lost={}{}",
            if is_right { "pass" } else { "fail" },
            took.as_secs_f64(),
            of(ABUSER, 200),
            of(ABUSER, 429),
            lost.len(),
            lost.first().map(|first| format!(" ({first})")).unwrap_or_default()
        );
        is_right
    }
}

#[derive(Clone)]
struct Clients {
    gateway: SocketAddr,
    client: Client<HttpConnector, Body>,
    tally: Arc<Tally>,
    stop: tokio::sync::watch::Sender<bool>,
}

struct Running {
    clients: Clients,
    tasks: JoinSet<()>,
}

impl Clients {
    fn start(gateway: SocketAddr) -> Running {
        let tally = Tally { began: Instant::now(), answers: Mutex::default(), lost: Mutex::default() };
        let client = Client::builder(TokioExecutor::new()).build_http();
        let clients = Self { gateway, client, tally: Arc::new(tally), stop: tokio::sync::watch::Sender::new(false) };
        let mut tasks = JoinSet::new();
        let mut spawn = |client: Clients, behaviour: Behaviour| tasks.spawn(client.behave(behaviour));
        // The traffic of the shop rises and falls as between day and night.
        spawn(clients.clone(), Behaviour { key: "storefront", path: "/search", every: Every::Tide(70.0, 60.0, 14.0) });
        spawn(clients.clone(), Behaviour { key: "mobile-app", path: "/search", every: Every::Tide(30.0, 15.0, 5.0) });
        spawn(clients.clone(), Behaviour { key: "mobile-app", path: "/status", every: Every::Tide(2.0, 0.0, 1.0) });
        spawn(clients.clone(), Behaviour { key: "partner-feed", path: "/search", every: Every::Burst(45, 6.0) });
        spawn(
            clients.clone(),
            Behaviour { key: "nightly-reports", path: "/reports", every: Every::Tide(1.2, 0.0, 1.0) },
        );
        spawn(clients.clone(), Behaviour { key: "storefront", path: "/export", every: Every::Tide(1.0, 0.0, 1.0) });
        for _ in 0..FLOOD {
            tasks.spawn(clients.clone().flood());
        }
        Running { clients, tasks }
    }

    fn is_over(&self) -> bool {
        *self.stop.borrow()
    }

    async fn ask(&self, key: &'static str, path: &str) -> Result<StatusCode, Failure> {
        let uri = format!("http://{}{path}", self.gateway);
        let request = Request::get(uri).header("x-api-key", format!("demo-{key}")).body(Body::empty())?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok(status)
    }

    async fn behave(self, Behaviour { key, path, every }: Behaviour) {
        let mut requests = JoinSet::new();
        let mut stop = self.stop.subscribe();
        loop {
            let (count, wait) = every.next(self.tally.began.elapsed());
            for _ in 0..count {
                let client = self.clone();
                requests.spawn(async move { client.tally.note(key, client.ask(key, path).await) });
            }
            while requests.try_join_next().is_some() {}
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stop.wait_for(|over| *over) => break,
            }
        }
        while requests.join_next().await.is_some() {}
    }

    /// Sends the next request as soon as the last was answered, whatever the response.
    async fn flood(self) {
        tokio::time::sleep(ABUSER_RETRY.mul_f64(fastrand::f64())).await;
        while !self.is_over() {
            let answer = self.ask(ABUSER, "/search").await;
            let is_refused = !matches!(answer, Ok(StatusCode::OK));
            self.tally.note(ABUSER, answer);
            if is_refused {
                tokio::time::sleep(ABUSER_RETRY).await;
            }
        }
    }
}

impl Running {
    /// Waits until every request has its response.
    async fn stop(self) -> Arc<Tally> {
        self.clients.stop.send_replace(true);
        self.tasks.join_all().await;
        self.clients.tally
    }
}

struct Behaviour {
    key: &'static str,
    path: &'static str,
    every: Every,
}

enum Every {
    /// Requests at random instants. The fields are the mean rate per second, its amplitude and its period in seconds.
    Tide(f64, f64, f64),
    /// This many requests at once, and the period in seconds.
    Burst(u32, f64),
}

impl Every {
    /// The number of requests to send now, and the time until the next ones.
    fn next(&self, since: Duration) -> (u32, Duration) {
        match *self {
            Self::Tide(mean, swing, period) => {
                let rate = mean + swing * (since.as_secs_f64() / period * std::f64::consts::TAU).sin();
                // The time between independent arrivals has an exponential distribution.
                (1, Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() / rate.max(0.1)).min(Duration::from_secs(2)))
            }
            Self::Burst(count, period) => (count, Duration::from_secs_f64(period)),
        }
    }
}
