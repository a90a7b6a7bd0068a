//! The metrics as OpenMetrics text. Those of the reference have its names.

use crate::bucket::Reason;
use crate::meter::{Meter, Name, read};
use crate::service::Service;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::AtomicU64;

/// A counter of the reference: its name, what it counts, and where it is. The names of counters in OpenMetrics end with
/// `_total`, and these do not, so they are of the type `unknown`.
type Known = (&'static str, &'static str, fn(&Meter) -> &AtomicU64);

const KNOWN: [Known; 5] = [
    ("total_hits", "Tokens that were asked for", |meter| &meter.total_hits),
    ("over_limit", "Tokens above the limit", |meter| &meter.over_limit),
    ("near_limit", "Tokens near the limit", |meter| &meter.near_limit),
    ("within_limit", "Tokens that were granted", |meter| &meter.within_limit),
    ("shadow_mode", "Tokens above the limit of a rule in shadow mode", |meter| &meter.shadow_mode),
];

const ERROR: &str = "ratelimit_service_should_rate_limit_error";
const PROBLEMS: &str = "tollgate_service_config_problems";

/// Returns all metrics of a service.
pub fn text(service: &Service) -> String {
    let mut text = Text(String::with_capacity(4_096));
    let meters = service.meters.all();
    for (name, help, counter) in KNOWN {
        let family = format!("ratelimit_service_rate_limit_{name}");
        text.family(&family, "unknown", help);
        for (labels, meter) in &meters {
            text.sample(&family, &labels_of(labels), read(counter(meter)));
        }
    }
    let totals = &service.totals;
    for (name, kind, help, counter) in [
        ("ratelimit_service_config_load_success", "unknown", "Configurations that were loaded", &totals.loads),
        ("ratelimit_service_config_load_error", "unknown", "Configurations that were refused", &totals.load_errors),
        (
            "ratelimit_service_global_shadow_mode",
            "unknown",
            "Refused requests that passed by SHADOW_MODE",
            &totals.shadowed,
        ),
        ("ratelimit_service_domain_not_found", "unknown", "Requests to domains without rules", &totals.unknown_domains),
        (ERROR, "unknown", "Requests without a decision", &totals.errors),
        (PROBLEMS, "gauge", "Problems of the configuration on disk, which has no effect", &totals.problems),
        ("tollgate_service_requests", "counter", "Requests that were decided", &totals.requests),
        ("tollgate_service_store_away", "counter", "Descriptors for which the store was away", &totals.store_away),
    ] {
        text.family(name, kind, help);
        let labels = if name == ERROR { "err_type=\"service_error\"" } else { "" };
        let end = if kind == "counter" { "_total" } else { "" };
        text.sample(&format!("{name}{end}"), labels, read(counter));
    }
    text.waits(&meters);
    text.gauges(service);
    text.0.push_str("# EOF\n");
    text.0
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}.");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            _ => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    fn waits(&mut self, meters: &[(Name, std::sync::Arc<Meter>)]) {
        self.family("tollgate_service_refused", "counter", "Requests that a rule refused");
        for (labels, meter) in meters {
            for reason in Reason::ALL {
                let count = read(&meter.refused[reason as usize]);
                if count > 0 {
                    let labels = format!("{},reason=\"{}\"", labels_of(labels), reason.name());
                    self.sample("tollgate_service_refused_total", &labels, count);
                }
            }
        }
        self.family("tollgate_service_waited_seconds", "summary", "How long requests waited that were granted");
        for (labels, meter) in meters.iter().filter(|(_, meter)| read(&meter.waits) > 0) {
            let labels = labels_of(labels);
            self.sample("tollgate_service_waited_seconds_count", &labels, read(&meter.waits));
            let seconds = read(&meter.waited) as f64 / 1e9;
            self.sample("tollgate_service_waited_seconds_sum", &labels, seconds);
        }
    }

    fn gauges(&mut self, service: &Service) {
        let rules = service.rules.load();
        let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for rule in &rules.all {
            if let Some(bucket) = rule.made_bucket() {
                // A key with `_` can read like another key with a value.
                let (values, waiting) = counts.entry(labels_of(&rule.metric_name(None))).or_default();
                let (more_values, more_waiting) = bucket.counts();
                *values += more_values;
                *waiting += more_waiting;
            }
        }
        self.family("tollgate_service_waiting", "gauge", "Requests that wait");
        for (labels, (_, waiting)) in &counts {
            self.sample("tollgate_service_waiting", labels, waiting);
        }
        self.family("tollgate_service_values", "gauge", "Values that a rule keeps");
        for (labels, (values, _)) in &counts {
            self.sample("tollgate_service_values", labels, values);
        }
    }
}

/// The domain, and the levels of a rule as `key1`, `key2` and so on.
fn labels_of(name: &[String]) -> String {
    let mut labels = String::new();
    for (index, part) in name.iter().enumerate() {
        let _ = match index {
            0 => write!(labels, "domain=\""),
            _ => write!(labels, ",key{index}=\""),
        };
        for c in part.chars() {
            match c {
                '\\' => labels.push_str("\\\\"),
                '"' => labels.push_str("\\\""),
                '\n' => labels.push_str("\\n"),
                c => labels.push(c),
            }
        }
        labels.push('"');
    }
    labels
}
