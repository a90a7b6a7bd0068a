//! The observer that reports to tracing: a span for each wait, an event for each refusal.
//!
//! The fields are attributes in the sense of OpenTelemetry, see docs/metrics.md: names in the namespace `rate_limit`,
//! durations in seconds, and `error.type` and the status where the conventions have them.

use super::{ClassLabel, Ending, ObservedWait, Observer, QueueInfo, Reason, Verdict};
use crate::error::Refused;
use std::sync::Arc;
use std::time::Duration;
use tracing::field::{Empty, display};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

const TARGET: &str = "tollgate";

/// Reports to the subscriber of the current thread.
#[derive(Debug)]
pub(super) struct Spans;

impl Observer for Spans {
    fn name(&self) -> &str {
        "tracing"
    }

    /// Whether any subscriber may record events of refusals.
    fn records_refusals(&self) -> bool {
        LevelFilter::current() >= Level::DEBUG
    }

    /// Whether any subscriber may record spans of waits.
    fn uses_estimates(&self) -> bool {
        LevelFilter::current() >= Level::INFO
    }

    fn refused(&self, class: Option<&ClassLabel>, cost: u64, refusal: Refused) {
        tracing::debug!(
            target: TARGET,
            {
                rate_limit.cost = cost,
                rate_limit.class.name = class.map(|class| &*class.path),
                error.type = Reason::of(&refusal).name(),
                rate_limit.quota.name = refusal.quota_name(),
                rate_limit.retry_after = refusal.retry_after().as_ref().map(Duration::as_secs_f64),
            },
            "refused: {refusal}"
        );
    }

    #[cfg(feature = "distributed")]
    fn store_event(&self, event: &super::StoreEvent<'_>) {
        use super::StoreEvent::{Lost, OutageBegan, OutageEnded, Warned};
        match event {
            OutageBegan { store, error } => {
                tracing::warn!(
                    target: TARGET,
                    { rate_limit.store.name = ?store, error.type = error.name() },
                    "outage of the store begins: {error}"
                );
            }
            OutageEnded { store } => {
                tracing::info!(target: TARGET, { rate_limit.store.name = ?store }, "outage of the store is over");
            }
            Warned { store, warning } => {
                tracing::warn!(target: TARGET, { rate_limit.store.name = ?store }, "{warning}")
            }
            Lost { store, excess } => tracing::warn!(
                target: TARGET,
                { rate_limit.store.name = ?store, rate_limit.store.excess_tokens = excess },
                "store has lost its state: it was flushed, evicted, restarted or failed over"
            ),
        }
    }

    fn would(&self, cost: u64, verdict: Verdict) {
        match verdict {
            Verdict::Refused { reason, by } => tracing::debug!(
                target: TARGET,
                { rate_limit.cost = cost, rate_limit.reason = reason.name() },
                "dry run: would have been refused by {by}"
            ),
            Verdict::AtOnce { .. } | Verdict::Waits { .. } => tracing::debug!(
                target: TARGET,
                { rate_limit.cost = cost, rate_limit.would_wait = verdict.wait().as_ref().map(Duration::as_secs_f64) },
                "dry run: would have waited"
            ),
        }
    }

    fn wait(&self, class: Option<&ClassLabel>, cost: u64, queue_info: QueueInfo) -> Option<Arc<dyn ObservedWait>> {
        let QueueInfo { ahead, estimate, .. } = queue_info;
        let span = tracing::info_span!(
            target: TARGET,
            "rate_limit.wait",
            rate_limit.cost = cost,
            rate_limit.class.name = class.map(|class| &*class.path),
            rate_limit.queue.ahead = ahead,
            rate_limit.estimate = estimate.as_ref().map(Duration::as_secs_f64),
            rate_limit.result = Empty,
            error.type = Empty,
            otel.status_code = Empty,
            otel.status_description = Empty,
        );
        if span.is_disabled() { None } else { Some(Arc::new(Wait(span))) }
    }
}

/// A span that is open while a claim waits in the queue.
#[derive(Debug)]
struct Wait(Span);

impl ObservedWait for Wait {
    fn end(&self, class: Option<&ClassLabel>, _lasted: &dyn Fn() -> u64, ending: Ending) {
        let Self(span) = self;
        let result = match ending {
            Ending::Granted => "allow",
            Ending::Left => "left",
            Ending::Refused { .. } => "deny",
        };
        span.record("rate_limit.result", result);
        if let Ending::Refused { cost, refusal } = ending {
            span.record("error.type", Reason::of(&refusal).name());
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", display(&refusal));
            span.in_scope(|| Spans.refused(class, cost, refusal));
        }
    }
}
