//! The observer that reports to tracing: a span for each wait, an event for each refusal.

use super::{ClassLabel, Ending, ObservedWait, Observer, QueueInfo, Reason, Verdict};
use crate::error::Refused;
use std::sync::Arc;
use tracing::field::{Empty, debug};
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
        let by = Reason::of(&refusal).name();
        let class = class.map(|class| &*class.path);
        let retry_after = refusal.retry_after().map(debug);
        tracing::debug!(target: TARGET, cost, class, by, retry_after, "refused: {refusal}");
    }

    #[cfg(feature = "distributed")]
    fn store_event(&self, event: &super::StoreEvent<'_>) {
        use super::StoreEvent::{Lost, OutageBegan, OutageEnded, Warned};
        match event {
            OutageBegan { store, error } => tracing::warn!(target: TARGET, ?store, "store out of reach: {error}"),
            OutageEnded { store } => tracing::info!(target: TARGET, ?store, "store answers again"),
            Warned { store, warning } => tracing::warn!(target: TARGET, ?store, "{warning}"),
            Lost { store, excess } => tracing::warn!(
                target: TARGET,
                ?store,
                excess,
                "store has lost its state: it was flushed, evicted, restarted or failed over"
            ),
        }
    }

    fn would(&self, cost: u64, verdict: Verdict) {
        match verdict {
            Verdict::Refused { reason, by } => {
                let reason = reason.name();
                tracing::debug!(target: TARGET, cost, by = reason, "dry run: would have been refused by {by}");
            }
            Verdict::AtOnce { .. } | Verdict::Waits { .. } => {
                let wait = verdict.wait().map(debug);
                tracing::debug!(target: TARGET, cost, wait, "dry run: would have waited");
            }
        }
    }

    fn wait(&self, class: Option<&ClassLabel>, cost: u64, queue_info: QueueInfo) -> Option<Arc<dyn ObservedWait>> {
        let QueueInfo { ahead, estimate, .. } = queue_info;
        let estimate = estimate.map(debug);
        let class = class.map(|class| &*class.path);
        let span = tracing::info_span!(target: TARGET, "wait", cost, class, ahead, estimate, outcome = Empty);
        if span.is_disabled() { None } else { Some(Arc::new(Wait(span))) }
    }
}

/// A span that is open while a claim waits in the queue.
#[derive(Debug)]
struct Wait(Span);

impl ObservedWait for Wait {
    fn end(&self, class: Option<&ClassLabel>, _lasted: &dyn Fn() -> u64, ending: Ending) {
        let Self(span) = self;
        let outcome = match ending {
            Ending::Granted => "granted",
            Ending::Left => "left",
            Ending::Refused { refusal, .. } => Reason::of(&refusal).name(),
        };
        span.record("outcome", outcome);
        if let Ending::Refused { cost, refusal } = ending {
            span.in_scope(|| Spans.refused(class, cost, refusal));
        }
    }
}
