//! An adaptive limiter learns from the responses to a client.

use super::*;

use std::sync::atomic::AtomicU16;
use tollgate::Adaptive;

fn adaptive() -> (Adaptive, ManualClock) {
    let (limiter, clock) = by_hand(Quota::per_second(10));
    (Adaptive::between("1/s", "1000/s").start("10/s").drive(&limiter).unwrap(), clock)
}

/// Sends a request, to which the server responds with these fields. Returns how many were accepted and refused so far.
fn sent(adaptive: &Adaptive, status: u16, fields: &[(&str, &str)]) -> (u64, u64) {
    let service = service_fn(move |_: Request<()>| {
        let mut response = Response::new(());
        *response.status_mut() = status.try_into().unwrap();
        *response.headers_mut() = headers(fields);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let client = LimitLayer::adaptive(adaptive).layer(service);
    let response = tokio_test::block_on(client.oneshot(Request::new(()))).unwrap();
    assert_eq!(response.status().as_u16(), status);
    (adaptive.snapshot().accepted, adaptive.snapshot().refused)
}

#[test]
fn the_status_of_a_response_is_reported() {
    let limit = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "2")];
    for (status, fields, expected) in [
        (200, &[][..], (1, 0)),
        (404, &[], (1, 0)),
        (403, &[], (1, 0)),
        (403, &limit[..], (0, 1)),
        (403, &[("retry-after", "3")], (0, 1)),
        (429, &[], (0, 1)),
        (503, &[], (0, 1)),
        (500, &[], (0, 0)),
        (502, &[("retry-after", "3")], (0, 0)),
        (529, &[], (0, 0)),
    ] {
        let (adaptive, _clock) = adaptive();
        assert_eq!(sent(&adaptive, status, fields), expected, "{status}");
        assert_eq!(adaptive.tokens_per_second() < 10.0, expected.1 > 0, "{status}");
    }
}

#[test]
fn a_refusal_pauses_for_as_long_as_the_response_says() {
    let limit = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1m30s")];
    for (fields, seconds) in [(&[][..], None), (&[("retry-after", "3")], Some(3)), (&limit, Some(90))] {
        let (adaptive, _clock) = adaptive();
        sent(&adaptive, 429, fields);
        assert_eq!(adaptive.limiter().snapshot().paused_for, seconds.map(Duration::from_secs));
    }
}

#[test]
fn a_request_without_a_response_reports_nothing() {
    let (adaptive, clock) = adaptive();
    let fails = service_fn(async |_: Request<()>| Err::<Response<()>, _>("connection refused"));
    let call = LimitLayer::adaptive(&adaptive).layer(fails).oneshot(Request::new(()));
    assert_eq!(tokio_test::block_on(call).unwrap_err(), LimitError::Inner("connection refused"));
    clock.advance(SECOND);
    let hangs = service_fn(async |_: Request<()>| std::future::pending::<Result<Response<()>, Infallible>>().await);
    let mut call = spawn(LimitLayer::adaptive(&adaptive).layer(hangs).oneshot(Request::new(())));
    assert!(call.poll().is_pending());
    drop(call);
    assert_eq!((adaptive.snapshot().accepted, adaptive.snapshot().refused), (0, 0));
    assert_eq!(adaptive.limiter().snapshot().granted, 2);
}

#[test]
fn requests_wait_no_longer_than_they_may() {
    let (adaptive, clock) = adaptive();
    let answers = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let layer = LimitLayer::adaptive(&adaptive);
    while adaptive.limiter().try_acquire(1).is_ok() {}
    let refused = |layer: LimitLayer<_, _, _>| tokio_test::block_on(layer.layer(answers).oneshot(Request::new(())));
    for layer in [layer.clone().refuse(), layer.clone().within(50 * MILLI)] {
        let error = refused(layer).unwrap_err();
        assert!(matches!(error, LimitError::Refused(Refused::InLine(ConsumeError::TooLate { .. }))), "{error}");
    }
    let mut waits = spawn(layer.within(100 * MILLI).layer(answers).oneshot(Request::new(())));
    assert!(waits.poll().is_pending());
    clock.advance(100 * MILLI);
    adaptive.limiter().tick();
    assert!(waits.is_woken() && waits.poll().is_ready());
}

/// A client that never waits, in front of a server with 40 requests per second: it climbs from 10 to more than 30.
#[tokio::test(start_paused = true)]
async fn requests_that_are_refused_at_once_show_that_the_limiter_is_the_bottleneck() {
    let theirs = Limiter::new(Quota::per_second(40).burst(4)).unwrap();
    let status = Arc::new(AtomicU16::new(0));
    let seen = Arc::clone(&status);
    let server = service_fn(move |_: Request<()>| {
        let status = if theirs.try_acquire(1).is_ok() { 200 } else { 429 };
        seen.store(status, Ordering::Relaxed);
        std::future::ready(Response::builder().status(status).body(()))
    });
    let adaptive = Adaptive::between("1/s", "1000/s").start("10/s").build().unwrap();
    let client = LimitLayer::adaptive(&adaptive).refuse().layer(server);
    for _ in 0..20_000 {
        let _ = client.clone().oneshot(Request::new(())).await;
        tokio::time::sleep(MILLI).await;
    }
    let rate = adaptive.tokens_per_second();
    assert!((30.0..60.0).contains(&rate), "{rate}");
}
