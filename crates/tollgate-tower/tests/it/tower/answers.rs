//! The response to a refusal, the cost of a request, and the limiter it uses.

use super::*;

use std::io;
use tower::BoxError;

/// Fails for 0.
async fn picky(n: u32) -> Result<u32, io::Error> {
    if n == 0 { Err(io::Error::other("nothing")) } else { Ok(n) }
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let (limiter, clock) = by_hand(1);
    let service = LimitLayer::new(&limiter).release_at_head().refuse().layer(service_fn(picky));
    assert_eq!(assert_ready!(spawn(service.clone().oneshot(7)).poll()).unwrap(), 7);
    let LimitError::Refused(refused) = assert_ready!(spawn(service.clone().oneshot(7)).poll()).unwrap_err() else {
        panic!("the inner service got the request")
    };
    assert!(matches!(refused, Refused::AtOnce(TryAcquireError::Denied(denied)) if denied.remaining == 0));
    assert_eq!(refused.retry_after(), Some(MILLI));
    clock.advance(MILLI);
    assert!(assert_ready!(spawn(service.clone().oneshot(7)).poll()).is_ok());
    limiter.close();
    let error = assert_ready!(spawn(service.oneshot(7)).poll()).unwrap_err();
    assert!(matches!(error, LimitError::Refused(Refused::AtOnce(TryAcquireError::Closed))));
}

#[test]
fn the_inner_error_is_unchanged() {
    let (limiter, _clock) = by_hand(9);
    let service = LimitLayer::new(&limiter).release_at_head().layer(service_fn(picky));
    let error = assert_ready!(spawn(service.oneshot(0)).poll()).unwrap_err();
    assert_eq!(error.to_string(), "nothing");
    assert!(matches!(error, LimitError::Inner(inner) if inner.kind() == io::ErrorKind::Other));

    // Boxed, as tower's own layers do it, and with one of them in between.
    let inner = || ServiceBuilder::new().buffer(4).map_err(BoxError::from).service(service_fn(picky));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let service = LimitLayer::new(&limiter).release_at_head().box_errors().refuse().layer(inner());
        assert!(service.clone().oneshot(0).await.unwrap_err().is::<io::Error>());
        limiter.close();
        assert!(service.oneshot(1).await.unwrap_err().is::<Refused>());
    });
}

#[test]
fn a_refusal_can_be_a_response() {
    let (limiter, _clock) = by_hand(1);
    let layer = LimitLayer::new(&limiter).release_at_head().refuse().on_refusal(|_| 429);
    let service = layer.layer(service_fn(async |n: u32| Ok::<_, Infallible>(n)));
    let Ok(first) = assert_ready!(spawn(service.clone().oneshot(200)).poll());
    let Ok(second) = assert_ready!(spawn(service.oneshot(200)).poll());
    assert_eq!((first, second), (200, 429));
}

#[test]
fn by_default_a_request_waits_for_at_most_half_a_minute() {
    let (limiter, clock) = built(Limiter::builder().quota(Quota::per_second(1).burst(1)));
    let inner = service_fn(async |()| Ok::<_, std::io::Error>(()));
    let bounded = LimitLayer::new(&limiter).release_at_head().layer(inner);
    let unbounded = LimitLayer::new(&limiter).wait_without_limit().release_at_head().layer(inner);
    let mut calls: Vec<_> = (0..31).map(|_| spawn(bounded.clone().oneshot(()))).collect();
    assert!(calls[0].poll().is_ready());
    assert!(calls[1..].iter_mut().all(|call| call.poll().is_pending()), "the last of them for 30 s");
    let late = assert_ready!(spawn(bounded.clone().oneshot(())).poll()).unwrap_err();
    assert!(matches!(late, LimitError::Refused(Refused::InLine(ConsumeError::TooLate { .. }))), "{late:?}");
    let mut waiting = spawn(unbounded.clone().oneshot(()));
    assert!(waiting.poll().is_pending());
    clock.advance(31 * SECOND);
    limiter.tick();
    assert!(waiting.poll().is_ready());
}
