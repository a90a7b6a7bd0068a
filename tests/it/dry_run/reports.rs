//! What meters and tracing say about a dry run.

use crate::fixture::*;

use crate::observed_events::MILLI;

fn limiter() -> Limiter {
    let builder = Limiter::builder().quota_named("fast", Quota::new(1, MILLI).burst(2)).clock(ManualClock::new());
    builder.quota_named("slow", Quota::per_hour(1_000)).dry_run().build().unwrap()
}

/// Two grants at once, a wait of a millisecond, and two refusals.
fn calls(limiter: &Limiter) {
    drop(limiter.try_acquire(2).unwrap());
    drop(limiter.try_acquire(1).unwrap());
    drop(assert_ready_ok!(spawn(limiter.consume(1)).poll()));
    drop(limiter.try_acquire(1).unwrap());
}

#[test]
fn a_meter_counts_waits_and_refusals_that_would_have_been() {
    use metrics::with_local_recorder;
    use metrics_util::debugging::DebugValue;
    use tollgate::metrics::Meter;

    let recorder = crate::metrics::TestRecorder::new();
    with_local_recorder(&recorder.inner, || {
        let limiter = limiter();
        let meter = Meter::new("api", &limiter).unwrap();
        calls(&limiter);
        meter.publish();
        let values = recorder.read();
        let would_refuse = |reason| values.counter(&format!("would_refuse_total{{key=api,reason={reason}}}"));
        assert_eq!(["quota", "queue", "too_late"].map(would_refuse), [1, 1, 0]);
        let by = |quota| values.counter(&format!("quota_would_refuse_total{{key=api,quota={quota}}}"));
        assert_eq!(["fast", "slow"].map(by), [1, 0]);
        let Some(DebugValue::Histogram(waits)) = values.get("would_wait_seconds{key=api}") else {
            panic!("{values:#?}")
        };
        assert_eq!(waits.iter().map(|wait| wait.0).collect::<Vec<_>>(), [0.001]);
        assert_eq!(values.counter("acquire_total{key=api,result=deny}"), 0);
        limiter.set_dry_run("fast", false).unwrap();
        limiter.set_dry_run("slow", false).unwrap();
        meter.publish();
        let values = recorder.read();
        assert_eq!(values.counter("would_refuse_total{key=api,reason=quota}"), 1, "a counter does not go away");
    });
}

#[test]
fn a_meter_of_a_keyed_limiter_counts_all_keys() {
    use metrics::with_local_recorder;
    use tollgate::metrics::Meter;

    let recorder = crate::metrics::TestRecorder::new();
    with_local_recorder(&recorder.inner, || {
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1)).clock(ManualClock::new());
        let users = builder.dry_run().build().unwrap();
        let meter = Meter::new("users", &users).unwrap();
        for user in 0..3 {
            drop(assert_ready_ok!(spawn(users.consume(&user, 1)).poll()));
            drop(assert_ready_ok!(spawn(users.consume(&user, 1)).poll()));
            drop(users.try_acquire(&user, 1).unwrap());
        }
        meter.publish();
        let values = recorder.read();
        assert_eq!(values.counter("would_refuse_total{key=users,reason=queue}"), 3);
        assert!(values.get("would_wait_seconds{key=users}").is_some(), "{values:#?}");
    });
}

#[test]
fn tracing_has_an_event_for_each_call_that_would_have_waited_or_been_refused() {
    let subscriber = crate::tracing::RecordingSubscriber::default();
    subscriber.listen(|| calls(&limiter()));
    let lines = subscriber.read();
    assert_eq!(
        lines,
        [
            "DEBUG event in 0: .cost=1 .reason=quota message=dry run: would have been refused by quota 0",
            "DEBUG event in 0: .cost=1 .would_wait=0.001 message=dry run: would have waited",
            "DEBUG event in 0: .cost=1 .reason=queue message=dry run: would have been refused by the queue of waiters",
        ]
    );
}
