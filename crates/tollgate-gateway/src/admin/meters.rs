//! The metrics for Prometheus: the limiters' own series, and the outcomes of the requests.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tollgate::metrics::{AlreadyMetered, Meter, describe};

use super::status::Status;
use crate::limits::Limits;
use crate::limits::builders::KeyedLimiter;
use crate::limits::rule_client_limits::RuleKey;
use crate::request::client::Client;
use crate::request::outcome::Outcome;
use crate::telemetry::connection_counts;
use crate::telemetry::counters::Counters;
use crate::telemetry::stats::{self, Stats};
use crate::upstream::backends::{BackendStatus, Backends};

/// The upper bounds of the histogram buckets of waits, in seconds.
const WAITS: [f64; 11] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// The most names of keys that become labels: Prometheus keeps every label for good.
const NAMES: usize = 200;
/// How often recorded values are moved into their buckets when no scrape does it.
const UPKEEP: Duration = Duration::from_secs(5);

/// A process has one recorder.
static PROMETHEUS: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let mut builder = PrometheusBuilder::new();
    for waits in ["rate_limit_acquire_duration", "rate_limit_class_acquire_duration", "rate_limit_would_wait"] {
        let waits = Matcher::Prefix(waits.to_owned());
        builder = builder.set_buckets_for_metric(waits, &WAITS).expect("there are some");
    }
    let handle = builder.install_recorder().expect("no other recorder is installed");
    describe();
    stats::describe();
    connection_counts::describe();
    describe_counter!("gateway_received_total", Unit::Count, "Requests received.");
    describe_counter!("gateway_requests_total", Unit::Count, "Requests by outcome.");
    describe_counter!("gateway_loads_total", Unit::Count, "Files of limits read, by whether they were applied.");
    describe_gauge!("gateway_up_seconds", Unit::Seconds, "Time since the start.");
    describe_gauge!("gateway_ending", Unit::Count, "1 from the moment a shutdown begins.");
    handle
});

#[derive(Clone)]
pub(crate) struct Meters {
    all: Meter,
    each: [Meter<KeyedLimiter<Client>>; 2],
    /// The same clients where they share the limit of all.
    fair_queue: [Meter<KeyedLimiter<Client>>; 2],
    /// The limits of each client within a rule.
    parts: [Meter<KeyedLimiter<RuleKey>>; 2],
}

impl Meters {
    pub(crate) fn new(limits: &Limits) -> Result<Self, AlreadyMetered> {
        LazyLock::force(&PROMETHEUS);
        let each = |name, limiter| Ok(Meter::new(name, limiter)?.naming(NAMES, Client::to_string));
        let each = [each("listed", &limits.clients.listed)?, each("unlisted", &limits.clients.unlisted)?];
        let [listed, unlisted] = limits.fair_queue.clients();
        let fair_queue = [Meter::new("all-listed", listed)?, Meter::new("all-unlisted", unlisted)?];
        let parts = limits.rules.meters()?;
        Ok(Self { all: Meter::new("all", &limits.all)?, each, fair_queue, parts })
    }

    pub(crate) fn render(&self, limits: &Limits, counters: &Counters, status: &Status, stats: &Stats) -> String {
        self.all.publish();
        self.each.iter().chain(&self.fair_queue).for_each(Meter::publish);
        self.parts.iter().for_each(Meter::publish);
        limits.rules.publish();
        limits.distributed.publish();
        let (counts, now) = (counters.counts(), status.now());
        counter!("gateway_received_total").absolute(counts.came);
        for (outcome, name) in Outcome::ALL {
            counter!("gateway_requests_total", "outcome" => name).absolute(counts.of(outcome));
        }
        counter!("gateway_loads_total", "result" => "ok").absolute(now.loads);
        counter!("gateway_loads_total", "result" => "refused").absolute(now.refused_loads);
        gauge!("gateway_up_seconds").set(status.up_for().as_secs_f64());
        gauge!("gateway_ending").set(u8::from(now.is_ending));
        stats.publish();
        let mut text = PROMETHEUS.render();
        stats.write(&mut text).expect("a string takes all text");
        text
    }
}

/// The series of the upstreams, if there is a choice or a check. They are not kept in the recorder, which would go on with
/// those of upstreams that are no longer in the file.
pub(crate) fn of_upstreams(upstreams: &Backends) -> String {
    let seen = upstreams.statuses();
    let mut text = String::new();
    let mut series = |name, what, value: fn(&BackendStatus) -> usize| {
        let of = |seen: &BackendStatus| format!("{name}{{upstream=\"{}\"}} {}\n", seen.url, value(seen));
        let lines: String = seen.iter().map(of).collect();
        if !lines.is_empty() {
            text += &format!("# HELP {name} {what}\n# TYPE {name} gauge\n{lines}\n");
        }
    };
    let healthy = "1 if the upstream gets requests, 0 if its checks fail.";
    series("gateway_upstream_healthy", healthy, |seen| usize::from(seen.is_healthy));
    series("gateway_upstream_in_flight", "Requests in flight at the upstream.", |seen| seen.in_flight);
    text
}

/// Runs until it is dropped.
pub(crate) async fn upkeep() {
    loop {
        tokio::time::sleep(UPKEEP).await;
        PROMETHEUS.run_upkeep();
    }
}
