//! What the requests met: waits, the upstream's responses, refusals and lines of the access log.

use std::fmt::{self, Write};

use metrics::{Unit, counter, describe_counter};

use super::access_lines::Lines;
use super::histogram::Histogram;
use super::refusals::Refusals;
use super::upstream_stats::{CLASSES, UpstreamError, UpstreamStats};

pub(crate) struct Stats {
    /// Of the requests that were admitted, in both queues together.
    pub(crate) waits: Histogram,
    pub(crate) upstream: UpstreamStats,
    pub(crate) refusals: Refusals,
    pub(crate) lines: Lines,
}

impl Stats {
    pub(crate) fn new(lines: Lines) -> Self {
        Self { waits: Histogram::default(), upstream: UpstreamStats::default(), refusals: Refusals::new(), lines }
    }

    /// Sets the counters to their values of this moment.
    pub(crate) fn publish(&self) {
        let calls = self.upstream.counts();
        for (class, count) in CLASSES.into_iter().zip(calls.classes) {
            counter!("gateway_upstream_responses_total", "class" => class).absolute(count);
        }
        for (fault, name) in UpstreamError::ALL {
            counter!("gateway_upstream_errors_total", "reason" => name).absolute(calls.faults[fault as usize]);
        }
        for ((reason, limit), count) in self.refusals.totals() {
            let limit = limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
            counter!("gateway_refusals_total", "reason" => reason.name(), "limit" => limit).absolute(count);
        }
        for (result, count) in self.lines.counts() {
            counter!("gateway_access_lines_total", "result" => result).absolute(count);
        }
    }

    /// Writes the histograms. They have buckets of their own, so they do not pass through the recorder.
    pub(crate) fn write(&self, text: &mut String) -> fmt::Result {
        if !text.ends_with("\n\n") {
            writeln!(text)?;
        }
        let wait = "Time in the queues, of the requests that were admitted.";
        self.waits.snapshot().write(text, "gateway_wait_seconds", wait)?;
        let latency = "Time until the head of the upstream's response.";
        self.upstream.counts().latency.write(text, "gateway_upstream_duration_seconds", latency)
    }
}

pub(crate) fn describe() {
    let count = Unit::Count;
    describe_counter!("gateway_upstream_responses_total", count, "Responses of the upstream by class of their status.");
    describe_counter!("gateway_upstream_errors_total", count, "Forwarded requests without a response, by reason.");
    describe_counter!("gateway_upstream_cut_off_total", count, "Responses of the upstream that broke off or stalled.");
    describe_counter!("gateway_refusals_total", count, "Requests refused, by reason and limit.");
    describe_counter!("gateway_access_lines_total", count, "Lines of the access log: written, dropped or failed.");
}

/// Counts a response of the upstream that did not come to its end.
pub(crate) fn cut_off() {
    counter!("gateway_upstream_cut_off_total").increment(1);
}
