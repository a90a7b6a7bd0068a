//! Bytes become requests, as protocol buffers or as JSON; whatever they ask, the service gives an answer for each
//! descriptor, and its metrics and its page stay valid and small.
//!
//! `scripts/prove fuzz` runs it.
#![no_main]

use prost::Message;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tollgate::clock::TokioClock;
use tollgate_service::bucket::Maker;
use tollgate_service::config::{self, Options};
use tollgate_service::health::Health;
use tollgate_service::meter::Meters;
use tollgate_service::metrics;
use tollgate_service::page::Page;
use tollgate_service::problem::Source;
use tollgate_service::proto::RateLimitRequest;
use tollgate_service::reload::Reloader;
use tollgate_service::service::{Manner, Service};

/// The domain `a` charges each descriptor, `b` all or none.
const FILES: [&str; 2] = [
    "
domain: a
descriptors:
  - {key: k, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: k, value: v, detailed_metric: true, rate_limit: {name: n, unit: minute, requests_per_unit: 2, burst: 4}}
  - {key: k, value: a*b*, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: u, rate_limit: {unlimited: true}}
  - {key: z, rate_limit: {replaces: [{name: n}], unit: day, requests_per_unit: 0}}
  - key: d
    descriptors:
      - {key: e, value_to_metric: true, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
",
    "
domain: b
descriptors:
  - {key: k, rate_limit: {unit: second, requests_per_unit: 3, burst: 3, wait: 2s, max_waiting: 4}}
  - {key: z, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: d, rate_limit: [{unit: second, requests_per_unit: 2}, {unit: minute, requests_per_unit: 9, burst: 1}]}
",
];

async fn answer(requests: Vec<RateLimitRequest>) {
    let source =
        |(index, text): (usize, &&str)| Arc::new(Source { name: format!("{index}.yaml"), text: (*text).into() });
    let sources: Vec<_> = FILES.iter().enumerate().map(source).collect();
    let meters = Arc::<Meters>::default();
    let rules = config::load(&sources, Options::default(), &meters).unwrap().rules;
    let maker = Maker { clock: TokioClock::at(UNIX_EPOCH + Duration::from_secs(1 << 30)), ..Maker::default() };
    let service = Arc::new(Service::new(rules, meters, Manner::default(), maker));
    let health = Health::default();
    let reloader = Reloader::new(Arc::clone(&service), health.clone(), Vec::new(), Options::default(), false, sources);
    let page = Page::new(Arc::clone(&service), health, Arc::new(reloader));
    for request in &requests {
        if let Ok(answer) = service.decide(request).await {
            assert_eq!(answer.response.statuses.len(), request.descriptors.len());
            assert_eq!(answer.passes(), answer.reason.is_none());
            serde_json::to_string(&answer.response).unwrap();
        }
    }
    let metrics = metrics::text(&service);
    assert!(
        metrics.lines().all(|line| line.starts_with("# ") || line.rsplit_once(' ').unwrap().1.parse::<f64>().is_ok())
    );
    let page = page.data();
    assert!(page.len() < 100_000 && !page.contains(|c: char| c.is_control()));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Each line of JSON is a request; everything that is no JSON is one as protocol buffers.
    let lines = || bytes.split(|byte| *byte == b'\n');
    let mut requests: Vec<_> = lines().filter_map(|line| serde_json::from_slice::<RateLimitRequest>(line).ok()).collect();
    requests.extend(RateLimitRequest::decode(bytes));
    if !requests.is_empty() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(answer(requests));
    }
});
