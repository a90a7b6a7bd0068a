//! A gateway in this process, with a clock moved by hand, in front of an upstream that records the requests.

use super::app::config::Config;
use super::app::gateway::{Gateway, ListenConfig};
use super::app::limits::Limits;
use super::app::limits::builders::Builders;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures::channel::mpsc;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tollgate::ManualClock;

pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Longer than any test takes on any machine: it only stops a test that hangs.
pub(crate) const HANG_LIMIT: Duration = Duration::from_secs(180);

/// A port at which nothing listens yet. No other test gets it while the socket lives.
pub(crate) fn reserved_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    socket
}

/// An address at which nothing listens until the process ends.
pub(crate) fn nowhere() -> SocketAddr {
    let socket = reserved_port();
    let address = socket.local_addr().unwrap();
    std::mem::forget(socket);
    address
}

/// The bodies for requests below `/stream`, one each, chunk by chunk.
type Streams = Arc<Mutex<VecDeque<mpsc::UnboundedReceiver<&'static str>>>>;

#[derive(Clone, Default)]
pub(crate) struct Upstream {
    /// The keys and paths of the requests, in the order of their arrival.
    pub(crate) came: Arc<Mutex<Vec<(String, String)>>>,
    streams: Streams,
}

impl Upstream {
    pub(crate) async fn start() -> (Self, SocketAddr) {
        let upstream = Self::default();
        let router = Router::new().fallback({
            let upstream = upstream.clone();
            move |request: Request| std::future::ready(upstream.answer(&request))
        });
        (upstream, serve(router).await)
    }

    fn answer(&self, request: &Request) -> Response {
        let key = request.headers().get("x-api-key").map_or("", |key| key.to_str().unwrap());
        self.came.lock().unwrap().push((key.to_owned(), request.uri().to_string()));
        if !request.uri().path().starts_with("/stream") {
            return "hello".into_response();
        }
        let stream = self.streams.lock().unwrap().pop_front().expect("a stream for it");
        Body::from_stream(futures::StreamExt::map(stream, Ok::<_, Infallible>)).into_response()
    }

    /// The sender of the next streaming response's chunks. Closing it ends the response.
    pub(crate) fn stream(&self) -> mpsc::UnboundedSender<&'static str> {
        let (send, receive) = mpsc::unbounded();
        self.streams.lock().unwrap().push_back(receive);
        send
    }

    pub(crate) fn count(&self) -> usize {
        self.came.lock().unwrap().len()
    }

    pub(crate) fn count_of(&self, key: &str) -> usize {
        self.came.lock().unwrap().iter().filter(|(came, _)| came == key).count()
    }
}

/// Serves `router` on an address of its own until the test ends.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    address
}

/// A configuration file: addresses for this test, then `limits`.
pub(crate) fn file(upstream: SocketAddr, limits: &str) -> String {
    format!("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\n{limits}")
}

pub(crate) struct TestGateway {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
    pub(crate) address: SocketAddr,
    pub(crate) client: reqwest::Client,
    clock: ManualClock,
}

impl TestGateway {
    pub(crate) async fn new(limits: &str) -> Self {
        let (upstream, address) = Upstream::start().await;
        Self::before(upstream, address, limits).await
    }

    /// Runs on tokio's clock instead of a manual one.
    pub(crate) async fn by_the_clock(limits: &str) -> Self {
        let (upstream, address) = Upstream::start().await;
        let config = Config::parse(Path::new("gateway.toml"), &file(address, limits)).unwrap();
        Self::within(upstream, Limits::new(config).unwrap(), ManualClock::new()).await
    }

    /// Runs with this file, on tokio's clock.
    pub(crate) async fn of(text: &str) -> Self {
        let config = Config::parse(Path::new("gateway.toml"), text).unwrap();
        Self::within(Upstream::default(), Limits::new(config).unwrap(), ManualClock::new()).await
    }

    pub(crate) async fn before(upstream: Upstream, address: SocketAddr, limits: &str) -> Self {
        Self::by_hand(upstream, &file(address, limits)).await
    }

    /// Runs with this file, on the manual clock.
    pub(crate) async fn by_hand(upstream: Upstream, text: &str) -> Self {
        let config = Config::parse(Path::new("gateway.toml"), text).unwrap();
        let clock = ManualClock::new();
        let limits = Limits::with(config, &Builders { clock: Some(clock.clone()) }).unwrap();
        let fixture = Self::within(upstream, limits, clock).await;
        // Full buckets: a key that gets a larger burst than the others would have to fill up to it first.
        fixture.advance(SECOND * 3_600);
        fixture
    }

    async fn within(upstream: Upstream, limits: Limits, clock: ManualClock) -> Self {
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let gateway =
            Gateway::start(limits, ListenConfig { listen: anywhere, admin: anywhere, max_connections: 1_000 }, true)
                .await
                .unwrap();
        let address = gateway.address;
        Self { gateway, upstream, address, client: reqwest::Client::new(), clock }
    }

    pub(crate) fn get(&self, path: &str, key: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("http://{}{path}", self.address)).header("x-api-key", key)
    }

    /// Sends a request on a connection of its own, which closes when the task is aborted.
    pub(crate) fn send(&self, path: &str, key: &str) -> tokio::task::JoinHandle<reqwest::Response> {
        let request = reqwest::Client::new().get(format!("http://{}{path}", self.address)).header("x-api-key", key);
        tokio::spawn(async move { request.send().await.unwrap() })
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.gateway.limits.clients.listed.tick();
        self.gateway.limits.clients.unlisted.tick();
        let rules = &self.gateway.limits.rules;
        rules.client_limiters().iter().for_each(|limiter| limiter.tick());
        rules.all_shared().values().for_each(|shared| shared.limiter.tick());
        self.gateway.limits.all.tick();
    }

    /// The numbers of requests that wait for their own keys' limits, and for the limit of all.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let limits = &self.gateway.limits;
        (limits.clients.snapshots().iter().map(|each| each.waiting_tasks).sum(), limits.fair_queue.waiting())
    }

    pub(crate) async fn page(&self, path: &str) -> String {
        let response = self.client.get(format!("http://{}{path}", self.gateway.admin)).send().await.unwrap();
        response.text().await.unwrap()
    }
}

/// Waits until the condition is true, for effects that travel through sockets.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG_LIMIT, "never happened: {what}");
        tokio::time::sleep(MILLI).await;
    }
}

/// Waits long enough that a request admitted by mistake would have arrived.
pub(crate) async fn short_pause() {
    tokio::time::sleep(50 * MILLI).await;
}

/// What `check` says about a file with these limits.
pub(crate) fn problem(limits: &str) -> String {
    let text = file("127.0.0.1:1".parse().unwrap(), limits);
    let problem = Config::parse(Path::new("gateway.toml"), &text).expect_err("it is wrong");
    format!("{problem:#}")
}

/// Applies another file to a running gateway.
pub(crate) fn change(fixture: &TestGateway, limits: &str) -> Result<(), String> {
    let path = Path::new("gateway.toml");
    let upstream = fixture.gateway.limits.config().upstreams.all()[0].target.authority.as_str().parse().unwrap();
    let config = Config::parse(path, &file(upstream, limits)).map_err(|problem| problem.to_string())?;
    fixture.gateway.limits.change(config, path).map_err(|problem| problem.to_string())
}
