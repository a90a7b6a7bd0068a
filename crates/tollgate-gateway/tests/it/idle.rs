//! Idle connections give up their buffers within a second. On a slow machine they may not have done so yet; then these tests
//! show less, and fail as little.

use super::app::downstream::handler::handler;
use super::app::downstream::http_service::HttpService;
use super::app::downstream::session::Session;
use super::fixture::*;
use super::raw::Raw;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use std::time::Duration;

const LIMITS: &str = "quota = \"1000/s\"\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1000/s\"\n";
/// Longer than a connection without requests keeps its buffers.
const IDLE: Duration = Duration::from_millis(2_500);

async fn hello(raw: &mut Raw) {
    let head = raw.head().await;
    assert!(head.starts_with("HTTP/1.1 200") && !head.contains("connection: close"), "{head}");
    assert_eq!(raw.bytes(5).await, "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_goes_on_after_it_was_idle() {
    let fixture = TestGateway::by_the_clock(LIMITS).await;
    let request = "GET / HTTP/1.1\r\nHost: gateway\r\n\r\n";
    let mut raw = Raw::sent(fixture.address, request).await;
    hello(&mut raw).await;
    for _ in 0..2 {
        tokio::time::sleep(IDLE).await;
        raw.send(request).await;
        hello(&mut raw).await;
    }
    // A part of the next head that came with a request is not lost.
    raw.send(format!("{request}GET /next HTTP/1.1\r\nHo")).await;
    hello(&mut raw).await;
    tokio::time::sleep(IDLE).await;
    raw.send("st: gateway\r\n\r\n").await;
    hello(&mut raw).await;
    let last = fixture.upstream.came.lock().unwrap().last().cloned();
    assert_eq!(last.unwrap().1, "/next");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_its_client_does_not_take_is_not_cut_off() {
    const LENGTH: usize = 20 << 20;
    let body = || async { Body::from(vec![b'x'; LENGTH]) };
    let address = serve(Router::new().route("/", get(body))).await;
    let fixture = TestGateway::of(&file(address, LIMITS)).await;
    let mut raw = Raw::sent(fixture.address, "GET / HTTP/1.1\r\nHost: gateway\r\n\r\n").await;
    tokio::time::sleep(IDLE).await;
    assert!(raw.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(raw.bytes(LENGTH).await.len(), LENGTH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_of_a_request_is_no_request_of_its_own() {
    // Its body comes after the response, and looks like a request.
    let early = || async { "hello" };
    let address = serve(Router::new().route("/", axum::routing::post(early).get(early))).await;
    let fixture = TestGateway::of(&file(address, &format!("body_buffer = 0\n{LIMITS}"))).await;
    let inner = "GET /smuggled HTTP/1.1\r\nHost: gateway\r\n\r\n";
    let head = format!("POST / HTTP/1.1\r\nHost: gateway\r\nContent-Length: {}\r\n\r\n", inner.len());
    let mut raw = Raw::sent(fixture.address, head).await;
    assert!(raw.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(raw.bytes(5).await, "hello");
    tokio::time::sleep(IDLE).await;
    // The connection may have ended.
    if raw.try_send(inner).await {
        assert_eq!(raw.bytes_to_end().await, b"");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_ends_after_its_time_out_and_at_the_shutdown() {
    let fixture = TestGateway::by_the_clock(&format!("idle_timeout = \"3s\"\n{LIMITS}")).await;
    let request = "GET / HTTP/1.1\r\nHost: gateway\r\n\r\n";
    let mut raw = Raw::sent(fixture.address, request).await;
    hello(&mut raw).await;
    assert_eq!(raw.bytes_to_end().await, b"");
    let fixture = TestGateway::by_the_clock(LIMITS).await;
    let mut raw = Raw::sent(fixture.address, request).await;
    hello(&mut raw).await;
    tokio::time::sleep(IDLE).await;
    assert!(fixture.gateway.shut_down().await);
    assert_eq!(raw.bytes_to_end().await, b"");
}

/// The size of the future that `run` returns.
fn future_size<Start, Stream, Address, Stop, Running>(
    _run: impl FnOnce(Start, Stream, Address, Stop) -> Running,
) -> usize {
    size_of::<Running>()
}

/// Each idle connection takes this much, besides its task and what it has in boxes.
#[tokio::test]
async fn the_future_of_a_connection_is_small() {
    fn of_session<S: HttpService>(_service: &S) -> usize {
        future_size(Session::<S>::run)
    }
    let size = of_session(&handler(super::overload::connection("")));
    assert!(size <= 2_048, "{size} bytes");
}
