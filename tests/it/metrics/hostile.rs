//! Recorders are user code: one that panics, or calls the limiter, does no harm.

use crate::fixture::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task::spawn};
use tollgate::metrics::Meter;
use tollgate::{Limiter, join};

use crate::observed_events::{MILLI, by_hand, empty_with_cap, every_event};

/// Panics in every call.
#[derive(Debug, Default)]
struct PanickingRecorder {
    panics: AtomicU64,
}

impl PanickingRecorder {
    fn burst(&self) -> ! {
        self.panics.fetch_add(1, Ordering::Relaxed);
        panic!("a hostile recorder");
    }
}

impl Recorder for PanickingRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.burst()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.burst()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.burst()
    }
}

#[test]
fn a_panicking_recorder_costs_no_grant_place_or_token() {
    let (limiter, clock) = empty_with_cap();
    let meter = Meter::new("api", &limiter).unwrap();
    let recorder = PanickingRecorder::default();
    with_local_recorder(&recorder, || {
        every_event(&limiter, &clock);
        assert_eq!(recorder.panics.load(Ordering::Relaxed), 5, "each of the five calls was made");
        // A scrape may panic: only the scraping thread is affected.
        assert!(catch_unwind(AssertUnwindSafe(|| meter.publish())).is_err());
    });
}

/// A wait that is dropped during unwinding must not panic again: that would abort.
#[test]
fn a_wait_ended_by_a_panic_is_recorded() {
    let (limiter, _clock) = by_hand(1);
    let _meter = Meter::new("api", &limiter).unwrap();
    let recorder = PanickingRecorder::default();
    let task = || {
        let _waiting = pending(limiter.consume(2));
        panic!("the task's own");
    };
    let result = with_local_recorder(&recorder, || catch_unwind(AssertUnwindSafe(task)));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"the task's own"));
    assert_eq!((recorder.panics.load(Ordering::Relaxed), limiter.snapshot().waiting_tasks), (1, 0));
}

/// Calls every method of the limiter that it observes.
struct ReentrantRecorder {
    limiter: Limiter,
    calls: AtomicU64,
}

impl ReentrantRecorder {
    fn call_limiter(&self) {
        // Its own waits are reported too; without this check it would recurse for ever.
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            let _ = self.limiter.try_acquire(1);
            assert_pending!(spawn(self.limiter.consume(1_000)).poll());
            self.limiter.tick();
        }
        let _ = self.limiter.snapshot();
    }
}

impl Recorder for ReentrantRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.call_limiter();
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.call_limiter();
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.call_limiter();
        Histogram::noop()
    }
}

/// When a wait is reported, the limiter already shows its result.
#[test]
fn a_reported_wait_has_left_the_queue() {
    struct Onlooker(Limiter, AtomicU64);

    impl Recorder for Onlooker {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            self.1.fetch_add(1 + 10 * self.0.snapshot().waiting_tokens, Ordering::Relaxed);
            Histogram::noop()
        }
    }

    let (limiter, clock) = by_hand(1);
    let _meter = Meter::new("api", &limiter).unwrap();
    let onlooker = Onlooker(limiter.clone(), AtomicU64::new(0));
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
    assert_eq!(onlooker.1.load(Ordering::Relaxed), 3, "three waits, and an empty queue each time");
}

/// No lock is held during the report: otherwise this would hang.
#[test]
fn a_recorder_may_call_the_limiter() {
    let (limiter, clock) = by_hand(1);
    let meter = Meter::new("api", &limiter).unwrap();
    let mut waiting = pending(limiter.consume(3));
    clock.advance(2 * MILLI);
    limiter.tick();
    let recorder = ReentrantRecorder { limiter: limiter.clone(), calls: AtomicU64::new(0) };
    with_local_recorder(&recorder, || {
        let _ = assert_ready_ok!(waiting.poll());
        meter.publish();
    });
    assert!(recorder.calls.load(Ordering::Relaxed) > 10);
    let seen = limiter.snapshot();
    assert_eq!((seen.waiting_tasks, seen.granted), (0, 3));
}
