//! Recorders are user code: one that panics, or calls the limiter, does no harm.

use crate::fixture::*;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder};
use tollgate::metrics::Meter;

use crate::observed_events::{MILLI, by_hand, empty_with_cap, every_event};

/// Calls this in every call that registers a series, and says whether that is a histogram.
struct Wild<F>(F);

impl<F: Fn(bool)> Recorder for Wild<F> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        (self.0)(false);
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        (self.0)(false);
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        (self.0)(true);
        Histogram::noop()
    }
}

/// Counts each call, and panics in it.
fn panicking(calls: &AtomicU64) -> Wild<impl Fn(bool)> {
    Wild(|_| {
        calls.fetch_add(1, Ordering::Relaxed);
        panic!("a hostile recorder");
    })
}

#[test]
fn a_panicking_recorder_costs_no_grant_place_or_token() {
    let (limiter, clock) = empty_with_cap();
    let meter = Meter::new("api", &limiter).unwrap();
    let panics = AtomicU64::new(0);
    with_local_recorder(&panicking(&panics), || {
        every_event(&limiter, &clock);
        assert_eq!(panics.load(Ordering::Relaxed), 5, "each of the five calls was made");
        // A scrape may panic: only the scraping thread is affected.
        assert!(catch_unwind(AssertUnwindSafe(|| meter.publish())).is_err());
    });
}

/// A wait that is dropped during unwinding must not panic again: that would abort.
#[test]
fn a_wait_ended_by_a_panic_is_recorded() {
    let (limiter, _clock) = by_hand(1);
    let _meter = Meter::new("api", &limiter).unwrap();
    let panics = AtomicU64::new(0);
    let task = || {
        let _waiting = pending(limiter.consume(2));
        panic!("the task's own");
    };
    let result = with_local_recorder(&panicking(&panics), || catch_unwind(AssertUnwindSafe(task)));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"the task's own"));
    assert_eq!((panics.load(Ordering::Relaxed), limiter.snapshot().waiting_tasks), (1, 0));
}

/// When a wait is reported, the limiter already shows its result.
#[test]
fn a_reported_wait_has_left_the_queue() {
    let (limiter, clock) = by_hand(1);
    let _meter = Meter::new("api", &limiter).unwrap();
    let seen = AtomicU64::new(0);
    let onlooker = Wild(|is_histogram| {
        if is_histogram {
            seen.fetch_add(1 + 10 * limiter.snapshot().waiting_tokens, Ordering::Relaxed);
        }
    });
    with_local_recorder(&onlooker, || {
        let left = pending(limiter.consume(2));
        drop(left);
        let mut late = pending(limiter.consume(3).within(5 * MILLI));
        limiter.pause_for(10 * MILLI);
        clock.advance(5 * MILLI);
        assert_ready_err!(late.poll());
        let joint = pending(join([(&limiter, 4)]));
        drop(joint);
    });
    assert_eq!(seen.load(Ordering::Relaxed), 3, "three waits, and an empty queue each time");
}

/// No lock is held during the report: otherwise this would hang.
#[test]
fn a_recorder_may_call_the_limiter() {
    let (limiter, clock) = by_hand(1);
    let meter = Meter::new("api", &limiter).unwrap();
    let mut waiting = pending(limiter.consume(3));
    tick_after(&clock, &limiter, 2 * MILLI);
    let calls = AtomicU64::new(0);
    let recorder = Wild(|_| {
        // Its own waits are reported too; without this check it would recurse for ever.
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            let _ = limiter.try_acquire(1);
            assert_pending!(spawn(limiter.consume(1_000)).poll());
            limiter.tick();
        }
        let _ = limiter.snapshot();
    });
    with_local_recorder(&recorder, || {
        let _ = assert_ready_ok!(waiting.poll());
        meter.publish();
    });
    assert!(calls.load(Ordering::Relaxed) > 10);
    let seen = limiter.snapshot();
    assert_eq!((seen.waiting_tasks, seen.granted), (0, 3));
}
