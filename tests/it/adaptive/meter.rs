//! The meter of an adaptive rate.

use crate::metrics::scrape;
use tollgate::Adaptive;

#[test]
fn the_meter_publishes_the_rate_and_the_reasons() {
    let adaptive = Adaptive::between("1/s", "100/s").start("10/s").build().unwrap();
    let meter = tollgate::metrics::AdaptiveMeter::new("api", &adaptive);
    adaptive.attempt(1, true).throttled(None);
    adaptive.attempt(1, false).succeeded();
    let seen = scrape(|| meter.publish());
    assert_eq!(seen.gauge("adaptive_rate_per_second{key=api}"), adaptive.tokens_per_second());
    let answers = |result: &str| seen.counter(&format!("adaptive_answers_total{{key=api,result={result}}}"));
    assert_eq!((answers("accepted"), answers("refused")), (1, 1));
    let changes = |reason: &str| seen.counter(&format!("adaptive_changes_total{{key=api,reason={reason}}}"));
    assert_eq!((changes("limit_fell"), changes("probe_refused")), (1, 0));
}
