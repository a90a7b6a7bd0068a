//! The series of classes: a part of the series of their limiter, with bounded cardinality.

use crate::fixture::*;
use metrics::with_local_recorder;
use metrics_util::debugging::DebugValue;
use tollgate::metrics::Meter;

use super::{TestRecorder, Values, scrape};
use crate::observed_events::{MILLI, built};

/// A token each millisecond, from an empty bucket.
fn divided() -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::new(1, MILLI).burst(10).initial(0)).classes())
}

/// The waits of a class in milliseconds, by result.
fn waits(values: &Values, class: &str, result: &str) -> Vec<u64> {
    match values.get(&format!("class_acquire_duration_seconds{{key=api,class={class},result={result}}}")) {
        Some(DebugValue::Histogram(values)) => values.iter().map(|value| (value.0 * 1e3).round() as u64).collect(),
        None => Vec::new(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_class_is_counted_under_its_path() {
    let (recorder, (limiter, clock)) = (TestRecorder::new(), divided());
    let batch = limiter.class("batch", Share::weight(1)).unwrap();
    let tenant = batch.class("tenant", Share::weight(1)).unwrap();
    let meter = Meter::new("api", &limiter).unwrap();
    let values = with_local_recorder(&recorder.inner, || {
        let mut granted = pending(tenant.consume(3));
        let dropped = pending(tenant.clone().consume_owned(2));
        let mut late = spawn(batch.consume(5).within(6 * MILLI));
        let mut outside = pending(limiter.consume(1));
        assert_ready_err!(late.poll(), "it would have to wait for more than 6 ms");
        assert!(tenant.try_acquire(1).is_err());
        meter.publish();
        let values = recorder.read();
        assert_eq!(values.gauge("class_waiting{key=api,class=batch/tenant}"), 2.0);
        assert_eq!(values.gauge("class_waiting_tokens{key=api,class=batch/tenant}"), 5.0);
        assert_eq!(values.gauge("waiting{key=api}"), 3.0);
        for _ in 0..4 {
            tick_after(&clock, &limiter, MILLI);
        }
        let _ = assert_ready_ok!(granted.poll());
        drop(dropped);
        let _ = assert_ready_ok!(outside.poll());
        clock.advance(2 * MILLI);
        let _ = assert_ready_ok!(spawn(tenant.consume(1)).poll());
        meter.publish();
        recorder.read()
    });
    assert_eq!(values.refusals(), "queue 1, too_late 1");
    assert_eq!(values.counter("class_refusals_total{key=api,class=batch}"), 1);
    assert_eq!(values.counter("class_refusals_total{key=api,class=batch/tenant}"), 1);
    assert_eq!(values.counter("class_served_total{key=api,class=batch/tenant}"), 3, "without what was granted at once");
    assert_eq!(values.gauge("class_waiting{key=api,class=batch/tenant}"), 0.0);
    assert_eq!((waits(&values, "batch/tenant", "allow"), waits(&values, "batch/tenant", "left")), (vec![4], vec![4]));
    assert_eq!(values.waits("allow").len(), 2, "the waits of all classes and of the limiter itself");
}

#[test]
fn a_class_that_is_made_again_continues_its_series() {
    let (limiter, clock) = divided();
    let meter = Meter::new("api", &limiter).unwrap();
    let served = |expected| {
        assert_eq!(scrape(|| meter.publish()).counter("class_served_total{key=api,class=a}"), expected);
    };
    for round in 1..=3 {
        let class = limiter.class("a", Share::weight(1)).unwrap();
        served((round - 1) * 5);
        let mut claims = [3, 2].map(|cost| pending(class.clone().consume_owned(cost)));
        tick_after(&clock, &limiter, 3 * MILLI);
        served((round - 1) * 5 + 3);
        tick_after(&clock, &limiter, 2 * MILLI);
        claims.iter_mut().for_each(|claim| drop(assert_ready_ok!(claim.poll())));
        served(round * 5);
        class.remove();
        assert!(class.try_acquire(1).is_err());
    }
    served(15);
    assert_eq!(scrape(|| meter.publish()).counter("class_refusals_total{key=api,class=a}"), 3);
}

#[test]
fn classes_whose_paths_read_alike_are_counted_together_and_once() {
    let (limiter, clock) = divided();
    let around = limiter.class("a", Share::weight(1)).unwrap();
    let alike = [around.class("b", Share::weight(1)).unwrap(), limiter.class("a/b", Share::weight(1)).unwrap()];
    let meter = Meter::new("api", &limiter).unwrap();
    let mut claims = alike.clone().map(|class| pending(class.consume_owned(2)));
    tick_after(&clock, &limiter, 4 * MILLI);
    claims.iter_mut().for_each(|claim| drop(assert_ready_ok!(claim.poll())));
    for _ in 0..3 {
        assert_eq!(scrape(|| meter.publish()).counter("class_served_total{key=api,class=a/b}"), 4);
    }
}

#[test]
fn a_meter_names_64_classes_and_adds_up_the_others() {
    let (recorder, (limiter, clock)) = (TestRecorder::new(), divided());
    let meter = Meter::new("api", &limiter).unwrap();
    let classes: Vec<_> = (0..100).map(|n| limiter.class(format!("class-{n:03}"), Share::weight(1)).unwrap()).collect();
    let mut claims: Vec<_> = classes.iter().map(|class| spawn(class.consume(1))).collect();
    let values = with_local_recorder(&recorder.inner, || {
        claims.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
        classes.iter().for_each(|class| assert!(class.try_acquire(1).is_err()));
        meter.publish();
        for _ in 0..100 {
            tick_after(&clock, &limiter, MILLI);
        }
        claims.iter_mut().for_each(|claim| drop(assert_ready_ok!(claim.poll())));
        recorder.read()
    });
    let named = |prefix: &str| values.0.keys().filter(|series| series.starts_with(prefix)).count();
    assert_eq!(named("rate_limit_class_waiting{"), 65);
    assert_eq!(named("rate_limit_class_served_total{"), 64);
    assert_eq!(values.gauge("class_waiting{key=api,class=class-000}"), 1.0);
    assert_eq!(values.gauge("class_waiting{key=api,class=(others)}"), 36.0);
    assert_eq!(values.gauge("class_waiting_tokens{key=api,class=(others)}"), 36.0);
    assert_eq!(values.counter("class_refusals_total{key=api,class=(others)}"), 36);
    assert_eq!(waits(&values, "(others)", "allow").len(), 36);
    assert_eq!(waits(&values, "class-063", "allow").len(), 1);
}
