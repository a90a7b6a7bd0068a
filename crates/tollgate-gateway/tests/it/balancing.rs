//! Several upstreams: the choice, the checks of their health, and what happens when connections fail.
//!
//! Checks run all the time here, so the tests wait until a check has had its effect.

use super::app::config::Config;
use super::fixture::*;
use super::raw::{Raw, RawUpstream, responding};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use reqwest::StatusCode;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const LIMITS: &str = "quota = \"100000/s\"\nin_flight = 5\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\n\
                      quota = \"100000/s\"\n";
/// The time-out is longer than a check takes on any machine.
const HEALTH: &str = "[health]\npath = \"/health?deep=1\"\nevery = \"2ms\"\ntimeout = \"3m\"\nfailures = 2\n";
/// Checks that never come, after the first one.
const RARELY: &str = "[health]\npath = \"/health\"\nevery = \"1h\"\nfailures = 2\n";

fn text(upstreams: &[SocketAddr], tables: &str) -> String {
    let urls: Vec<_> = upstreams.iter().map(|address| format!("http://{address}")).collect();
    let one = file(upstreams[0], &format!("{LIMITS}{tables}"));
    one.replace(&format!("{:?}", urls[0]), &format!("{urls:?}"))
}

async fn fixture(upstreams: &[SocketAddr], tables: &str) -> TestGateway {
    TestGateway::of(&text(upstreams, tables)).await
}

fn change(fixture: &TestGateway, upstreams: &[SocketAddr], tables: &str) {
    let path = Path::new("gateway.toml");
    fixture.gateway.limits.change(Config::parse(path, &text(upstreams, tables)).unwrap(), path).unwrap();
}

/// Whether each upstream is healthy, and its requests in flight.
fn statuses(fixture: &TestGateway) -> Vec<(bool, usize)> {
    let seen = fixture.gateway.limits.config().upstreams.statuses();
    seen.into_iter().map(|seen| (seen.is_healthy, seen.in_flight)).collect()
}

/// An upstream that answers with the body of the request, and fails its checks when it is told to.
#[derive(Clone, Default)]
struct Switch {
    is_ill: Arc<AtomicBool>,
    checks: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Switch {
    async fn start() -> (Self, SocketAddr) {
        let switch = Self::default();
        let own = switch.clone();
        let address = serve(Router::new().fallback(move |request: Request| std::future::ready(own.answer(request))));
        (switch, address.await)
    }

    fn answer(&self, request: Request) -> Response {
        if request.uri().path() != "/health" {
            self.requests.fetch_add(1, Ordering::SeqCst);
            return request.into_body().into_response();
        }
        self.checks.fetch_add(1, Ordering::SeqCst);
        if self.is_ill.load(Ordering::SeqCst) { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
            .into_response()
    }

    fn set_ill(&self, is_ill: bool) {
        self.is_ill.store(is_ill, Ordering::SeqCst);
    }

    fn checks(&self) -> usize {
        self.checks.load(Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn post(fixture: &TestGateway) -> (StatusCode, String) {
    let request = fixture.client.post(format!("http://{}/", fixture.address)).header("x-api-key", "k").body("a body");
    let answer = request.send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test]
async fn an_upstream_whose_checks_fail_is_left_and_returns() {
    let ((ill, a), (well, b)) = (Switch::start().await, Switch::start().await);
    let fixture = fixture(&[a, b], HEALTH).await;
    ill.set_ill(true);
    until("left", || !statuses(&fixture)[0].0).await;
    for _ in 0..20 {
        assert_eq!(post(&fixture).await, (StatusCode::OK, "a body".to_owned()));
    }
    assert_eq!((ill.requests(), well.requests()), (0, 20));
    let page = fixture.page("/metrics").await;
    for (address, healthy) in [(a, 0), (b, 1)] {
        let line = format!("\ngateway_upstream_healthy{{upstream=\"http://{address}\"}} {healthy}\n");
        assert!(page.contains(&line), "{line}: {page}");
        assert!(page.contains(&format!("\ngateway_upstream_in_flight{{upstream=\"http://{address}\"}} ")), "{page}");
    }
    let mut events = fixture.client.get(format!("http://{}/events", fixture.gateway.admin)).send().await.unwrap();
    let (mut said, line) = (String::new(), format!("{{\"url\":\"http://{a}\",\"is_healthy\":false,\"in_flight\":0}}"));
    while !said.contains(&line) {
        said += &String::from_utf8_lossy(&events.chunk().await.unwrap().expect("events go on"));
    }
    ill.set_ill(false);
    until("returned", || statuses(&fixture)[0].0).await;
    while ill.requests() == 0 {
        assert_eq!(post(&fixture).await.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn an_upstream_that_dies_is_left_and_returns_when_it_listens_again() {
    let (_well, well) = Switch::start().await;
    let port = reserved_port();
    let dead = port.local_addr().unwrap();
    let fixture = fixture(&[dead, well], HEALTH).await;
    until("left", || !statuses(&fixture)[0].0).await;
    let listener = port.listen(16).unwrap();
    let router = Router::new().fallback(async || "alive");
    tokio::spawn(std::future::IntoFuture::into_future(axum::serve(listener, router)));
    until("returned", || statuses(&fixture)[0].0).await;
    while post(&fixture).await.1 != "alive" {}
}

#[tokio::test]
async fn a_request_for_which_there_is_no_connection_goes_to_another_upstream_with_its_body() {
    let (well, address) = Switch::start().await;
    let fixture = fixture(&[nowhere(), address], "").await;
    // Half of them go to the dead upstream first.
    for count in 1..=40 {
        assert_eq!(post(&fixture).await, (StatusCode::OK, "a body".to_owned()));
        assert_eq!(well.requests(), count);
    }
    // A longer body, of which a part has not come yet.
    let long = "long ".repeat(50_000);
    for _ in 0..10 {
        let request = fixture.client.post(format!("http://{}/", fixture.address)).body(long.clone());
        assert!(request.send().await.unwrap().text().await.unwrap() == long);
    }
    assert_eq!(fixture.gateway.counters.counts().answered, 50);
}

#[tokio::test]
async fn a_request_that_may_have_been_sent_is_not_sent_again() {
    // These read the head, and close the connection.
    let ((a, heads_a), (b, heads_b)) = (responding("").await, responding("").await);
    let fixture = fixture(&[a, b], "").await;
    for count in 1..=10 {
        assert_eq!(post(&fixture).await.0, StatusCode::BAD_GATEWAY);
        assert_eq!(heads_a.lock().unwrap().len() + heads_b.lock().unwrap().len(), count);
    }
}

#[tokio::test]
async fn failed_connections_count_as_failures_between_checks() {
    let ((first, a), (_well, b)) = (Switch::start().await, Switch::start().await);
    let dead = nowhere();
    let fixture = fixture(&[a, b], RARELY).await;
    until("checked", || first.checks() == 1).await;
    // Without the checks at the start, which would count too.
    change(&fixture, &[dead, b], &RARELY.replace("failures = 2", "failures = 3"));
    while statuses(&fixture)[0].0 {
        assert_eq!(post(&fixture).await.0, StatusCode::OK);
    }
    assert_eq!(fixture.gateway.counters.counts().failed, 0);
}

#[tokio::test]
async fn without_checks_dead_upstreams_are_502() {
    let fixture = fixture(&[nowhere(), nowhere()], "").await;
    assert_eq!(post(&fixture).await.0, StatusCode::BAD_GATEWAY);
    assert_eq!(statuses(&fixture), [(true, 0), (true, 0)]);
}

#[tokio::test]
async fn without_a_healthy_upstream_the_answer_is_503_at_once() {
    let fixture = fixture(&[nowhere(), nowhere()], &HEALTH.replace("2ms", "1500ms")).await;
    // The first checks fail, and then connections.
    while statuses(&fixture).iter().any(|seen| seen.0) {
        assert!([StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE].contains(&post(&fixture).await.0));
    }
    let before = fixture.gateway.counters.counts();
    let tokens = fixture.gateway.limits.all.snapshot().granted;
    let answer = fixture.get("/", "k").send().await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"2".parse().unwrap())
    );
    assert!(answer.text().await.unwrap().contains("no upstream is healthy"));
    assert_eq!(fixture.gateway.limits.all.snapshot().granted, tokens, "it does not wait for tokens");
    let counts = fixture.gateway.counters.counts();
    assert_eq!((counts.failed, counts.refused_all, counts.refused_each), (before.failed + 1, 0, 0));
}

#[tokio::test]
async fn the_upstream_with_fewer_requests_in_flight_is_chosen_until_a_response_ends() {
    let ((one, a), (two, b)) = (Upstream::start().await, Upstream::start().await);
    let fixture = fixture(&[a, b], "").await;
    let streams = [one.stream(), two.stream()];
    let mut response = fixture.get("/stream", "k").send().await.unwrap();
    let busy = statuses(&fixture).iter().position(|seen| seen.1 == 1).expect("one is busy");
    for count in 1..=20 {
        assert_eq!(fixture.get("/", "k").send().await.unwrap().text().await.unwrap(), "hello");
        assert_eq!([one.count(), two.count()][1 - busy], count);
        until("the response has ended", || statuses(&fixture)[1 - busy].1 == 0).await;
    }
    assert_eq!(statuses(&fixture)[busy].1, 1);
    streams[busy].close_channel();
    assert!(response.chunk().await.unwrap().is_none());
    until("the stream has ended", || statuses(&fixture)[busy].1 == 0).await;
}

#[tokio::test]
async fn a_websocket_keeps_its_upstream_busy() {
    let (upstream, address) = RawUpstream::start().await;
    let fixture = fixture(&[nowhere(), address], "[[routes]]\npath = \"/\"\nwebsockets = true\n").await;
    let ask = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let mut client = Raw::sent(fixture.address, ask).await;
    let mut other = upstream.accept().await;
    assert!(other.head().await.contains(&format!("\r\nhost: {address}\r\n")));
    other.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 101 "));
    other.send("down").await;
    assert_eq!((client.bytes(4).await, statuses(&fixture)[1].1), ("down".to_owned(), 1));
    drop((client, other));
    until("ended", || statuses(&fixture)[1].1 == 0).await;
}

#[tokio::test]
async fn a_change_of_the_file_keeps_the_state_of_upstreams_and_their_requests() {
    let ((ill, a), (_well, b)) = (Switch::start().await, Switch::start().await);
    let (streaming, c) = Upstream::start().await;
    let stream = streaming.stream();
    let fixture = fixture(&[a, c], HEALTH).await;
    ill.set_ill(true);
    until("left", || !statuses(&fixture)[0].0).await;
    let _response = fixture.get("/stream", "k").send().await.unwrap();
    change(&fixture, &[b, c, a], HEALTH);
    assert_eq!(statuses(&fixture), [(true, 0), (true, 1), (false, 0)]);
    // The new configuration is checked too.
    ill.set_ill(false);
    until("returned", || statuses(&fixture)[2].0).await;
    stream.close_channel();
    until("ended", || statuses(&fixture)[1].1 == 0).await;
    // One upstream without checks has no state.
    change(&fixture, &[b], "");
    assert!(statuses(&fixture).is_empty() && !fixture.page("/metrics").await.contains("gateway_upstream_healthy"));
    assert_eq!(post(&fixture).await.0, StatusCode::OK);
}

#[test]
fn mistakes_are_shown_with_their_place() {
    let right = text(&["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()], HEALTH);
    for (old, new, line, what, mark) in [
        ("http://127.0.0.1:2", "127.0.0.1:2", 3, "is not an upstream", "\"127.0.0.1:2\""),
        ("http://127.0.0.1:2", "http://me:pass@127.0.0.1:2", 3, "is not an upstream", "\"http://me:pass@127.0.0.1:2\""),
        ("127.0.0.1:2", "127.0.0.1:1", 3, "is in the list twice", "\"http://127.0.0.1:1\""),
        ("\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"", "", 3, "no upstream: write at least one", "[]"),
        ("\"http://127.0.0.1:2\"", "7", 3, "`7` is not in quotes", "7"),
        ("[\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]", "7", 3, "or a list of them", "7"),
        ("/health?deep=1", "health", 11, "`health` is not a path", "\"health\""),
        ("/health?deep=1", "/#x", 11, "`/#x` is not a path", "\"/#x\""),
        ("2ms", "0s", 12, "`health.every` is 0s", "\"0s\""),
        ("3m", "soon", 13, "`soon` is not a duration", "\"soon\""),
        ("failures = 2", "failures = 0", 14, "`health.failures` is 0", "0"),
        ("failures = 2", "successes = 0", 14, "`health.successes` is 0", "0"),
        ("failures = 2", "failure = 2", 14, "there is no setting `failure` here", "failure"),
        ("path = \"/health?deep=1\"\n", "", 10, "`path` is missing", "["),
    ] {
        let wrong = right.replacen(old, new, 1);
        assert_ne!(wrong, right, "{old}");
        let problem = Config::parse(Path::new("gateway.toml"), &wrong).unwrap_err();
        let said = format!("{problem:#}");
        assert_eq!(problem.line, Some(line), "{said}");
        assert!(said.contains(what), "{said}");
        let (shown, carets) = said.rsplit_once('\n').unwrap();
        let shown = shown.rsplit_once('\n').unwrap().1;
        let (from, count) = (carets.find('^').unwrap(), carets.matches('^').count());
        assert!(shown[from..from + count].starts_with(mark), "{said}");
    }
}
