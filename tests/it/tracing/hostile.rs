//! Subscribers are user code: one that panics, or calls the limiter, does no harm.

use crate::fixture::*;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::observed_events::{MILLI, by_hand, empty_with_cap, every_event};

/// Calls `act` in every callback.
#[derive(Clone)]
struct Wild<F> {
    act: F,
    calls: Arc<AtomicU64>,
}

impl<F: Fn()> Wild<F> {
    fn new(act: F) -> Self {
        Self { act, calls: Arc::new(AtomicU64::new(0)) }
    }

    fn go(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
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

/// In every callback: entering the queue, the grant, the end of the span, a refusal.
#[test]
fn a_panicking_subscriber_costs_no_grant_place_or_token() {
    let subscriber = Wild::new(|| panic!("a hostile subscriber"));
    let calls = Arc::clone(&subscriber.calls);
    let (limiter, clock) = empty_with_cap();
    super::keep_a_subscriber();
    tracing::subscriber::with_default(subscriber, || every_event(&limiter, &clock));
    assert_eq!(calls.load(Ordering::Relaxed), 7, "five entered queues, and two refusals");
}

/// It accepts the spans and panics when they end.
#[test]
fn a_subscriber_that_panics_at_the_end_has_no_effect_either() {
    let armed = Arc::new(AtomicBool::new(false));
    let fuse = Arc::clone(&armed);
    let subscriber = Wild::new(move || assert!(!fuse.load(Ordering::Relaxed), "a hostile subscriber"));
    let calls = Arc::clone(&subscriber.calls);
    let (limiter, clock) = empty_with_cap();
    super::keep_a_subscriber();
    tracing::subscriber::with_default(subscriber, || {
        every_event(&limiter, &clock);
        let calm = calls.swap(0, Ordering::Relaxed);
        // For each of five spans its creation, its result and its end; three more fields of the one that was refused;
        // and two refusals.
        assert_eq!(calm, 20);
        let mut waits: Vec<_> = (0..3).map(|_| pending(limiter.consume(10))).collect();
        armed.store(true, Ordering::Relaxed);
        // Recording and closing both panic; and once more during another panic.
        drop(waits.pop());
        let wait = waits.pop();
        let task = || {
            let _wait = wait;
            panic!("the task's own");
        };
        assert_eq!(catch_unwind(AssertUnwindSafe(task)).unwrap_err().downcast_ref(), Some(&"the task's own"));
        tick_after(&clock, &limiter, 10 * MILLI);
        let _ = assert_ready_ok!(waits[0].poll());
    });
    assert_eq!(calls.load(Ordering::Relaxed), 3 + 3 * 2);
}

/// No lock is held during the callback: otherwise this would hang.
#[test]
fn a_subscriber_may_call_the_limiter() {
    let (limiter, clock) = empty_with_cap();
    let (own, is_at_it) = (limiter.clone(), AtomicBool::new(false));
    let subscriber = Wild::new(move || {
        // Its own waits are reported too; without this check it would recurse for ever.
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
    let calls = Arc::clone(&subscriber.calls);
    super::keep_a_subscriber();
    tracing::subscriber::with_default(subscriber, || every_event(&limiter, &clock));
    assert!(calls.load(Ordering::Relaxed) >= 17);
}

/// Threads beside each other, each with a subscriber of its own, and claims that move between them.
#[test]
fn a_span_is_ended_by_whichever_thread_ends_the_wait() {
    let (limiter, clock) = by_hand(1);
    let subscriber = Wild::new(|| {});
    let calls = Arc::clone(&subscriber.calls);
    let mut waiting = Box::pin(limiter.clone().consume_owned(3));
    super::keep_a_subscriber();
    tracing::subscriber::with_default(subscriber, || {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    tick_after(&clock, &limiter, 2 * MILLI);
    std::thread::spawn(move || {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
    })
    .join()
    .unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3, "created, result, closed");
}
