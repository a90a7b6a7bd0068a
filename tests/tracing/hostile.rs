//! Subscribers are user code: one that panics, or calls the limiter, harms nobody.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task::spawn};
use tollgate::{Limiter, Quota, join};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{MILLI, built, by_hand};

/// Does `act` whatever it is told.
#[derive(Clone)]
struct Wild<F> {
    act: F,
    told: Arc<AtomicU64>,
}

impl<F: Fn()> Wild<F> {
    fn new(act: F) -> Self {
        Self { act, told: Arc::new(AtomicU64::new(0)) }
    }

    fn go(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
        (self.act)();
    }
}

impl<F: Fn() + Send + Sync + 'static> Subscriber for Wild<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tollgate"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.go();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.go();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.go();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, _: Id) -> bool {
        self.go();
        true
    }
}

/// The same day for everybody, whatever the subscriber does: some are granted, some leave, some are refused.
fn a_day(limiter: &Limiter, pass: impl Fn(u64)) {
    let (mut first, mut second) = (spawn(limiter.consume(1)), spawn(limiter.consume(2).within(100 * MILLI)));
    let (mut left, mut joint) = (spawn(limiter.consume(1)), spawn(join([(limiter, 1)])));
    let mut late = spawn(limiter.consume(1).within(5 * MILLI));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_pending!(left.poll());
    assert_pending!(joint.poll());
    assert_pending!(late.poll());
    assert_pending!(first.poll());
    assert!(limiter.try_acquire(1).is_err());
    drop(left);
    pass(4);
    limiter.tick();
    assert!(first.is_woken() && second.is_woken() && joint.is_woken());
    let grants = (assert_ready_ok!(first.poll()), assert_ready_ok!(second.poll()), assert_ready_ok!(joint.poll()));
    limiter.pause_for(100 * MILLI);
    pass(1);
    assert_ready_err!(late.poll());
    assert_eq!(limiter.snapshot().in_flight, Some(4));
    drop(grants);
    pass(100);
    let seen = limiter.snapshot();
    assert_eq!((seen.in_flight, seen.waiting_tasks, seen.granted), (Some(0), 0, 4));
    assert!(limiter.try_acquire(1).is_ok());
}

/// In whatever it is told: of the line, of the grant, of the end of the span, of a refusal.
#[test]
fn a_subscriber_that_panics_costs_nobody_a_grant_a_place_or_a_token() {
    let subscriber = Wild::new(|| panic!("a subscriber of ill will"));
    let told = Arc::clone(&subscriber.told);
    let (limiter, clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).initial(0)).max_in_flight(10));
    tracing::subscriber::with_default(subscriber, || a_day(&limiter, |millis| clock.advance(MILLI * millis as u32)));
    assert_eq!(told.load(Ordering::Relaxed), 7, "five lines entered, and two refusals");
}

/// It takes the spans and panics when they end.
#[test]
fn a_subscriber_that_panics_at_the_end_costs_nobody_anything_either() {
    let armed = Arc::new(AtomicBool::new(false));
    let fuse = Arc::clone(&armed);
    let subscriber = Wild::new(move || assert!(!fuse.load(Ordering::Relaxed), "a subscriber of ill will"));
    let told = Arc::clone(&subscriber.told);
    let (limiter, clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).initial(0)).max_in_flight(10));
    tracing::subscriber::with_default(subscriber, || {
        a_day(&limiter, |millis| clock.advance(MILLI * millis as u32));
        let calm = told.swap(0, Ordering::Relaxed);
        // For each of five spans its making, its outcome and its end, and two refusals.
        assert_eq!(calm, 17);
        let mut waits: Vec<_> = (0..3).map(|_| spawn(limiter.consume(10))).collect();
        waits.iter_mut().for_each(|wait| assert_pending!(wait.poll()));
        armed.store(true, Ordering::Relaxed);
        // Both what is recorded and the closing panic; and once more while another panic is on its way.
        drop(waits.pop());
        let wait = waits.pop();
        let task = || {
            let _wait = wait;
            panic!("the task's own");
        };
        assert_eq!(catch_unwind(AssertUnwindSafe(task)).unwrap_err().downcast_ref(), Some(&"the task's own"));
        clock.advance(10 * MILLI);
        limiter.tick();
        let _ = assert_ready_ok!(waits[0].poll());
    });
    assert_eq!(told.load(Ordering::Relaxed), 3 + 3 * 2);
}

/// No lock is held while it is told: else this would hang.
#[test]
fn a_subscriber_may_call_the_limiter() {
    let (limiter, clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).initial(0)).max_in_flight(10));
    let (own, is_at_it) = (limiter.clone(), AtomicBool::new(false));
    let subscriber = Wild::new(move || {
        // Its own waits are told too: it would never come to an end.
        if is_at_it.swap(true, Ordering::Relaxed) {
            return;
        }
        let _ = own.try_acquire(11);
        let _ = own.snapshot();
        own.tick();
        drop(own.consume(0));
        assert_pending!(spawn(own.consume(10)).poll());
        is_at_it.store(false, Ordering::Relaxed);
    });
    let told = Arc::clone(&subscriber.told);
    tracing::subscriber::with_default(subscriber, || a_day(&limiter, |millis| clock.advance(MILLI * millis as u32)));
    assert!(told.load(Ordering::Relaxed) >= 17);
}

/// Threads beside each other, each with a subscriber of its own, and claims that move between them.
#[test]
fn a_span_is_ended_by_whichever_thread_ends_the_wait() {
    let (limiter, clock) = by_hand(1);
    let subscriber = Wild::new(|| {});
    let told = Arc::clone(&subscriber.told);
    let mut waiting = Box::pin(limiter.clone().consume_owned(3));
    tracing::subscriber::with_default(subscriber, || {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
    });
    assert_eq!(told.load(Ordering::Relaxed), 1);
    clock.advance(2 * MILLI);
    limiter.tick();
    std::thread::spawn(move || {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
    })
    .join()
    .unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 3, "made, outcome, closed");
}
