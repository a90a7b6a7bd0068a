//! What the meters and spans of a limiter look like in a collector: names, units, kinds, attributes and values.

mod collector;

use collector::{Collector, line_of};
use otlp::Telemetry;
use std::time::Duration;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task::spawn};
use tollgate::metrics::{INSTRUMENTS, Meter};
use tollgate::{Limiter, ManualClock, Quota};
use tracing::info_span;

const TENTH: Duration = Duration::from_millis(100);

/// One call passes, one waits, one waits in vain, one is refused; and of a dry run one would have waited.
fn calls() {
    let clock = ManualClock::new();
    let builder = || Limiter::builder().quota(Quota::per_second(10).burst(2)).clock(clock.clone());
    let limiter = builder().max_waiting(2).build().unwrap();
    let trial = builder().dry_run().build().unwrap();
    let meters = [Meter::new("api", &limiter).unwrap(), Meter::new("trial", &trial).unwrap()];

    drop(limiter.try_acquire(2).unwrap());
    let (mut granted, mut closed) = (spawn(limiter.consume(1)), spawn(limiter.consume(3)));
    let request = info_span!(target: "otlp", "request");
    request.in_scope(|| assert_pending!(granted.poll()));
    assert_pending!(closed.poll());
    request.in_scope(|| assert_ready_err!(spawn(limiter.consume(7)).poll()));
    meters[0].publish();
    clock.advance(TENTH);
    limiter.tick();
    drop(assert_ready_ok!(granted.poll()));
    limiter.close();
    assert_ready_err!(closed.poll());

    for _ in 0..3 {
        drop(assert_ready_ok!(spawn(trial.consume(1)).poll()));
    }
    meters.iter().for_each(Meter::publish);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_spans_arrive_at_a_collector_under_conventional_names() {
    let collector = Collector::start().await.unwrap();
    let telemetry = Telemetry::install("otlp", &collector.endpoint).unwrap();
    tokio::task::spawn_blocking(move || {
        calls();
        telemetry.shutdown().unwrap();
    })
    .await
    .unwrap();

    let points = collector.points();
    for (series, point) in &points {
        let name = series.split('{').next().unwrap();
        let instrument = INSTRUMENTS.iter().find(|instrument| instrument.otel_name == name);
        assert_eq!(instrument.unwrap_or_else(|| panic!("{series}")).unit, point.unit, "{series}");
    }
    let read = |series: &str| {
        let point = points.get(series).unwrap_or_else(|| panic!("no {series} in {points:#?}"));
        (point.kind, point.unit.as_str(), point.value, point.count)
    };
    let api = "rate_limit.limiter.name=api";
    assert_eq!(read(&format!("rate_limit.acquire{{{api},rate_limit.result=allow}}")), ("counter", "{token}", 3.0, 0));
    assert_eq!(read(&format!("rate_limit.acquire{{{api},rate_limit.result=deny}}")), ("counter", "{token}", 7.0, 0));
    assert_eq!(read(&format!("rate_limit.refusals{{error.type=queue_full,{api}}}")), ("counter", "{call}", 1.0, 0));
    assert_eq!(read(&format!("rate_limit.refusals{{error.type=closed,{api}}}")), ("counter", "{call}", 1.0, 0));
    assert_eq!(read(&format!("rate_limit.waiting{{{api}}}")), ("up-down counter", "{call}", 0.0, 0));
    assert_eq!(read(&format!("rate_limit.tokens{{{api}}}")), ("gauge", "{token}", 0.0, 0));
    for result in ["allow", "deny"] {
        let waits = format!("rate_limit.acquire.duration{{{api},rate_limit.result={result}}}");
        assert_eq!(read(&waits), ("histogram", "s", 0.1, 1));
    }
    assert_eq!(read("rate_limit.would_wait{rate_limit.limiter.name=trial}"), ("histogram", "s", 0.1, 1));

    let spans = collector.spans();
    let waits: Vec<_> = spans.iter().filter(|span| span.name == "rate_limit.wait").collect();
    let [granted, closed] = waits[..] else { panic!("two waits: {spans:#?}") };
    let request = spans.iter().find(|span| span.name == "request").unwrap();
    assert_eq!(granted.parent_span_id, request.span_id);
    assert_eq!(granted.trace_id, request.trace_id);
    assert!(
        line_of(request)
            .ends_with(", event: refused: 2 callers are waiting already: shed the load or raise max_waiting")
    );
    let line = line_of(granted);
    assert!(
        line.contains("rate_limit.cost=1,rate_limit.estimate=0.1,rate_limit.queue.ahead=0,rate_limit.result=allow"),
        "{line}"
    );
    assert!(!line.contains("error"), "{line}");
    let line = line_of(closed);
    assert!(line.contains("error.type=closed") && line.contains("rate_limit.result=deny"), "{line}");
    assert!(line.contains(", error: the limiter is closed: no more tokens will be granted"), "{line}");
}
