//! The pattern of the documentation: the Prometheus text is rendered on request.

use crate::fixture::*;

use metrics::with_local_recorder;
use metrics_exporter_prometheus::PrometheusBuilder;
use tollgate::metrics::{Meter, describe};

use crate::observed_events::{MILLI, built};

/// The names of all series of the text, without the suffixes of histograms.
fn names(page: &str) -> BTreeSet<&str> {
    let series = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    series
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .map(|name| name.strip_suffix("_sum").or(name.strip_suffix("_count")).unwrap_or(name))
        .collect()
}

#[test]
fn every_series_has_a_name_that_prometheus_takes_and_a_description() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    with_local_recorder(&recorder, || {
        describe();
        let builder = Limiter::builder().quota(Quota::new(1, MILLI).burst(1)).quota(Quota::per_hour(1_000_000));
        let (limiter, clock) = built(builder.max_in_flight(10));
        let meter = Meter::new("the \"api\"", &limiter).unwrap();
        let mut waiting = pending(limiter.consume(2));
        tick_after(&clock, &limiter, 2 * MILLI);
        let _ = assert_ready_ok!(waiting.poll());
        meter.publish();
        {
            let users = tollgate::KeyedLimiter::builder().quota(Quota::per_second(1)).max_in_flight(1).build().unwrap();
            let meter =
                tollgate::metrics::Meter::new("users", &users).unwrap().naming(5, |user: &u64| user.to_string());
            assert!(users.try_acquire(&17, 2).is_err());
            meter.publish();
        }
    });
    let page = handle.render();
    let described: BTreeSet<_> =
        page.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
    assert_eq!(names(&page), described, "{page}");
    assert!(described.len() >= 12, "{page}");
    for name in described {
        assert!(name.starts_with("rate_limit_"), "{name}");
    }
    assert!(
        page.contains(r#"rate_limit_acquire_duration_seconds_sum{key="the \"api\"",result="allow"} 0.002"#),
        "{page}"
    );
    assert!(page.contains(r#"rate_limit_quota_tokens{key="the \"api\"",quota="1"} 999998"#), "{page}");
}
