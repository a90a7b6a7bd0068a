//! Real clients and a real axum server, on loopback. The limiter has a manual clock, so that the test knows exactly
//! which requests pass, however slow the machine is.

use super::*;

use axum::response::IntoResponse;
use http::StatusCode;
use std::net::SocketAddr;

/// Waits until the condition is true, for effects that travel through sockets.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    // This only ends a hang.
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < 180 * SECOND, "never happened: {what}");
        tokio::time::sleep(MILLI).await;
    }
}

fn too_many(refused: Refused) -> axum::response::Response {
    (StatusCode::TOO_MANY_REQUESTS, refused.to_string()).into_response()
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
    let address = crate::serve(Router::new().route("/", stream).layer(layer)).await;
    (limiter, address, ends)
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
