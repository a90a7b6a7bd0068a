//! The meter of an adaptive rate.

use tollgate::Adaptive;

#[test]
fn the_meter_publishes_the_rate_and_the_reasons() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    let adaptive = Adaptive::between("1/s", "100/s").start("10/s").build().unwrap();
    let meter = tollgate::metrics::AdaptiveMeter::new("api", &adaptive);
    adaptive.attempt(1, true).throttled(None);
    adaptive.attempt(1, false).succeeded();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || meter.publish());
    let seen: Vec<_> =
        snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| (key.key().clone(), value)).collect();
    let value = |name: &str, label: &str| {
        let found = seen.iter().find(|(key, _)| key.name() == name && key.labels().any(|it| it.value() == label));
        match found.map(|(_, value)| value) {
            Some(DebugValue::Counter(count)) => *count as f64,
            Some(DebugValue::Gauge(value)) => value.0,
            other => panic!("{name}: {other:?}"),
        }
    };
    assert_eq!(value("rate_limit_adaptive_rate_per_second", "api"), adaptive.tokens_per_second());
    assert_eq!(value("rate_limit_adaptive_answers_total", "accepted"), 1.0);
    assert_eq!(value("rate_limit_adaptive_answers_total", "refused"), 1.0);
    assert_eq!(value("rate_limit_adaptive_changes_total", "limit_fell"), 1.0);
    assert_eq!(value("rate_limit_adaptive_changes_total", "probe_refused"), 0.0);
}
