//! Real clients and a real axum server, on loopback. The limiter has a manual clock, so that the test knows exactly
//! which requests pass, however slow the machine is.

use super::*;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::{Router, routing::get};
use http::StatusCode;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tollgate::Refused;
use tollgate_tower::LimitLayer;

/// Waits until the condition is true, for effects that travel through sockets.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    // This only ends a hang.
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < 180 * SECOND, "never happened: {what}");
        tokio::time::sleep(MILLI).await;
    }
}

async fn serve(app: Router) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }))
}

fn too_many(refused: Refused) -> axum::response::Response {
    (StatusCode::TOO_MANY_REQUESTS, refused.to_string()).into_response()
}

fn five_per_second() -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::per_second(5).burst(20)))
}

/// Connections with many requests at once on each.
fn connections(count: usize) -> Vec<reqwest::Client> {
    (0..count).map(|_| reqwest::Client::builder().http2_prior_knowledge().build().unwrap()).collect()
}

#[tokio::test]
async fn of_fifteen_hundred_refusable_requests_exactly_the_burst_passes() {
    let (limiter, clock) = five_per_second();
    let layer = LimitLayer::new(&limiter).refuse().on_refusal(too_many);
    let (address, server) = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    let clients = connections(15);
    let rush = async || {
        let mut requests = JoinSet::new();
        for client in clients.iter().cycle().take(1_500) {
            requests.spawn(client.get(format!("http://{address}/")).send());
        }
        let statuses = requests.join_all().await.into_iter().map(|response| response.unwrap().status());
        let statuses = statuses.collect::<Vec<_>>();
        let of = |status| statuses.iter().filter(|seen| **seen == status).count();
        (of(StatusCode::OK), of(StatusCode::TOO_MANY_REQUESTS))
    };
    assert_eq!(rush().await, (20, 1_480));
    clock.advance(SECOND * 17 / 10);
    assert_eq!(rush().await, (8, 1_492));
    assert_eq!((limiter.snapshot().granted, limiter.snapshot().waiting_tasks), (28, 0));
    server.abort();
}

/// A server with responses that continue until they are told to end, two at a time.
async fn streaming() -> (Limiter, SocketAddr, Vec<futures::channel::mpsc::UnboundedSender<&'static str>>) {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(2));
    let (ends, streams): (Vec<_>, Vec<_>) = (0..4).map(|_| futures::channel::mpsc::unbounded()).unzip();
    let streams = Arc::new(std::sync::Mutex::new(streams.into_iter()));
    let stream = get(move || {
        let stream = streams.lock().unwrap().next().unwrap();
        let stream = futures::StreamExt::map(stream, Ok::<_, std::convert::Infallible>);
        std::future::ready(Body::from_stream(stream))
    });
    let layer = LimitLayer::new(&limiter).on_refusal(too_many);
    let (address, _server) = serve(Router::new().route("/", stream).layer(layer)).await;
    (limiter, address, ends)
}

#[tokio::test]
async fn a_slow_streaming_body_is_in_flight_until_its_last_byte() {
    let (limiter, address, ends) = streaming().await;
    let client = reqwest::Client::new();
    let url = format!("http://{address}/");
    let mut first = client.get(&url).send().await.unwrap();
    let _second = client.get(&url).send().await.unwrap();
    let third = tokio::spawn(client.get(&url).send());
    until("it waits", || limiter.snapshot().waiting_tasks == 1).await;
    for _ in 0..3 {
        ends[0].unbounded_send("more").unwrap();
        assert_eq!(first.chunk().await.unwrap().unwrap(), "more");
        let seen = limiter.snapshot();
        assert_eq!((seen.in_flight, seen.waiting_tasks, third.is_finished()), (Some(2), 1, false));
    }
    ends[0].close_channel();
    assert!(first.chunk().await.unwrap().is_none());
    // The third request now has the place in flight.
    assert_eq!(third.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!((limiter.snapshot().in_flight, limiter.snapshot().waiting_tasks), (Some(2), 0));
    drop(ends);
    until("landed", || limiter.snapshot().in_flight == Some(0)).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_the_queue_or_releases_its_tokens_at_once() {
    let (limiter, address, _ends) = streaming().await;
    // HTTP/1: one connection per request, which ends with it.
    let get = || tokio::spawn(reqwest::Client::new().get(format!("http://{address}/")).send());
    let first = get().await.unwrap().unwrap();
    let _second = get().await.unwrap().unwrap();
    let third = get();
    until("it waits", || limiter.snapshot().waiting_tasks == 1).await;
    let fourth = get();
    until("both wait", || limiter.snapshot().waiting_tasks == 2).await;
    third.abort();
    until("gone", || limiter.snapshot().waiting_tasks == 1).await;
    assert!(!fourth.is_finished());
    drop(first);
    assert_eq!(fourth.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!((paid(&limiter), limiter.snapshot().in_flight), (3, Some(2)));
}
