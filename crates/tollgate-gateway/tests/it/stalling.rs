//! Clients and upstreams that stop in the middle: each gives its place in flight back.
//!
//! Time is paused: it moves on when all that could happen has happened.

use super::fixture::*;
use super::raw::{Raw, RawUpstream};

use reqwest::StatusCode;

const LIMITS: &str = "quota = \"100000/s\"\nin_flight = 2\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\n\
                      quota = \"100000/s\"\n";

fn in_flight(fixture: &TestGateway) -> Option<u64> {
    fixture.gateway.limits.all.snapshot().in_flight
}

#[tokio::test(start_paused = true)]
async fn a_response_that_stalls_after_its_head_gives_its_place_back() {
    let fixture = TestGateway::new(LIMITS).await;
    let stream = fixture.upstream.stream();
    let mut response = fixture.get("/stream", "a").send().await.unwrap();
    stream.unbounded_send("first").unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "first");
    assert_eq!(in_flight(&fixture), Some(1));
    until("released", || in_flight(&fixture) == Some(0)).await;
    assert!(response.chunk().await.is_err(), "what is incomplete does not look complete");
}

#[tokio::test(start_paused = true)]
async fn a_response_with_pauses_goes_through() {
    let fixture = TestGateway::new(LIMITS).await;
    let stream = fixture.upstream.stream();
    let mut response = fixture.get("/stream", "a").send().await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(SECOND * 20).await;
        stream.unbounded_send("more").unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "more");
    }
    stream.close_channel();
    assert!(response.chunk().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_of_its_response_gives_its_place_back() {
    let fixture = TestGateway::new(LIMITS).await;
    let stream = fixture.upstream.stream();
    let client = Raw::sent(fixture.address, "GET /stream HTTP/1.1\r\nhost: a\r\n\r\n").await;
    until("in flight", || in_flight(&fixture) == Some(1)).await;
    let much = &*Box::leak("more".repeat(100_000).into_boxed_str());
    for _ in 0..100 {
        stream.unbounded_send(much).unwrap();
    }
    until("released", || in_flight(&fixture) == Some(0)).await;
    drop((client, stream));
}

#[tokio::test(start_paused = true)]
async fn uploads_that_do_not_come_take_no_place() {
    let fixture = TestGateway::new(LIMITS).await;
    let mut uploads = Vec::new();
    for framing in ["content-length: 9", "transfer-encoding: chunked", "content-length: 9\r\nexpect: 100-continue"] {
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n");
        uploads.push(Raw::sent(fixture.address, head).await);
    }
    until("come", || fixture.gateway.counters.counts().came == 3).await;
    assert_eq!((in_flight(&fixture), fixture.get("/", "a").send().await.unwrap().status()), (Some(0), StatusCode::OK));
    for mut upload in uploads {
        let mut answer = upload.rest().await;
        answer = answer.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n").to_owned();
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("connection: close"), "{answer}");
    }
    let counts = fixture.gateway.counters.counts();
    assert_eq!((fixture.upstream.count(), counts.failed, counts.answered), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_small_upload_takes_its_place_when_it_is_complete() {
    let (upstream, address) = RawUpstream::start().await;
    let fixture = TestGateway::before(Upstream::default(), address, LIMITS).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut client = Raw::sent(fixture.address, format!("{head}3\r\none\r\n")).await;
    until("come", || fixture.gateway.counters.counts().came == 1).await;
    short_pause().await;
    assert_eq!(in_flight(&fixture), Some(0));
    client.send("3\r\ntwo\r\n0\r\n\r\n").await;
    let mut seen = upstream.accept().await;
    let head = seen.head().await;
    assert!(head.contains("content-length: 6\r\n"), "{head}");
    assert_eq!((seen.bytes(6).await.as_str(), in_flight(&fixture)), ("onetwo", Some(1)));
    seen.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test(start_paused = true)]
async fn a_large_upload_that_stalls_is_the_clients_fault_and_gives_its_place_back() {
    let (upstream, address) = RawUpstream::start().await;
    let fixture = TestGateway::before(Upstream::default(), address, LIMITS).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 300000\r\n\r\n";
    let mut client = Raw::sent(fixture.address, head.to_owned() + &"x".repeat(100_000)).await;
    let mut seen = upstream.accept().await;
    assert!(seen.head().await.contains("content-length: 300000\r\n"));
    seen.bytes(100_000).await;
    assert_eq!(in_flight(&fixture), Some(1));
    until("released", || in_flight(&fixture) == Some(0)).await;
    let answer = client.head().await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!((seen.rest().await.as_str(), fixture.gateway.counters.counts().failed), ("", 0));
}

/// A slow upload is not a slow upstream, whose time starts with the last part of the request.
#[tokio::test(start_paused = true)]
async fn a_large_upload_with_pauses_goes_through() {
    let (upstream, address) = RawUpstream::start().await;
    let fixture = TestGateway::before(Upstream::default(), address, LIMITS).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100060\r\n\r\n";
    let mut client = Raw::sent(fixture.address, head.to_owned() + &"x".repeat(100_000)).await;
    let mut seen = upstream.accept().await;
    seen.head().await;
    seen.bytes(100_000).await;
    for _ in 0..6 {
        tokio::time::sleep(SECOND * 10).await;
        client.send("0123456789").await;
        assert_eq!(seen.bytes(10).await, "0123456789");
    }
    tokio::time::sleep(SECOND * 10).await;
    seen.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
}
