//! Tower's contract: what is taken, when and in which order, and what is returned wherever a future is dropped.

use super::*;

use std::future::{Ready, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio_test::assert_ready_ok;
use tollgate_tower::Limit;
use tower_test::mock::{self, Mock};

type Limited = Limit<Mock<u32, u32>, Limiter, tollgate_tower::ToHead>;

fn mocked(limiter: &Limiter) -> (mock::Spawn<Limited>, mock::Handle<u32, u32>) {
    mock::spawn_layer(LimitLayer::new(limiter).release_at_head())
}

#[test]
fn being_ready_takes_no_token_and_no_place_in_the_queue() {
    let (limiter, _clock) = by_hand(1);
    let (mut service, mut handle) = mocked(&limiter);
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert!(service.is_woken(), "the inner service wakes it when it is ready");
    for _ in 0..10 {
        assert_ready_ok!(service.poll_ready());
    }
    drop(service);
    assert_eq!((limiter.available(), limiter.snapshot().waiting_tasks), (1, 0));

    let (mut service, _handle) = mocked(&limiter);
    assert_ready_ok!(service.poll_ready());
    let call = service.call(1);
    assert_eq!(limiter.available(), 1, "a call that is not polled takes nothing either");
    drop(call);
    assert_eq!(limiter.available(), 1);
}

/// Ready for a call only after it has reported so. What it reserves then is released with the call.
#[derive(Default)]
struct Reserving {
    is_ready: bool,
    reserved: Arc<AtomicUsize>,
}

impl Clone for Reserving {
    fn clone(&self) -> Self {
        Self { is_ready: false, reserved: Arc::clone(&self.reserved) }
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        self.reserved.fetch_sub(usize::from(self.is_ready), Ordering::Relaxed);
    }
}

impl Service<u32> for Reserving {
    type Response = u32;
    type Error = Infallible;
    type Future = Ready<Result<u32, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.reserved.fetch_add(usize::from(!self.is_ready), Ordering::Relaxed);
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, n: u32) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been ready");
        self.reserved.fetch_sub(1, Ordering::Relaxed);
        ready(Ok(n))
    }
}

#[test]
fn a_reservation_of_the_inner_service_is_released_with_the_call() {
    let (limiter, clock) = by_hand(1);
    let inner = Reserving::default();
    let reserved = Arc::clone(&inner.reserved);
    let reserved = || reserved.load(Ordering::Relaxed);
    let mut service = spawn(LimitLayer::new(&limiter).release_at_head().layer(inner));
    let mut call = |n| {
        let ready = service.enter(|cx, mut service| service.poll_ready(cx));
        assert!(ready.is_ready());
        spawn(service.call(n))
    };
    assert_eq!(assert_ready_ok!(call(1).poll()), 1);
    assert_eq!(reserved(), 0);
    let (mut second, mut third) = (call(2), call(3));
    assert_pending!(second.poll());
    assert_pending!(third.poll());
    assert_eq!(reserved(), 2, "reserved while the calls wait");
    drop(second);
    assert_eq!((reserved(), limiter.snapshot().waiting_tasks), (1, 1));
    let mut fourth = call(4);
    assert_pending!(fourth.poll());
    clock.advance(MILLI);
    limiter.tick();
    assert_eq!(assert_ready_ok!(third.poll()), 3);
    assert_eq!(reserved(), 1);
    clock.advance(MILLI);
    limiter.tick();
    assert!(fourth.is_woken());
    drop(fourth);
    assert_eq!((limiter.available(), paid(&limiter)), (1, 2), "granted, and its service has not seen it");
    assert_eq!(reserved(), 0);
    // A refusal releases the reservation too.
    limiter.close();
    assert!(assert_ready!(call(5).poll()).is_err());
    assert_eq!(reserved(), 0);
}
