//! Reports to a subscriber: a span for each wait, an event for each refusal.

use super::super::QueueInfo;
use super::refusal::Reason;
use super::{Ending, quietly};
use crate::error::Refused;
use tracing::field::{Empty, debug};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

const TARGET: &str = "tollgate";

/// True if any subscriber may record spans of waits. Calls no subscriber.
pub(super) fn records_waits() -> bool {
    LevelFilter::current() >= Level::INFO
}

/// True if any subscriber may record events of refusals. Calls no subscriber.
pub(super) fn records_refusals() -> bool {
    LevelFilter::current() >= Level::DEBUG
}

pub(super) fn refused(cost: u64, refusal: Refused) {
    let by = Reason::of(&refusal).name();
    let retry_after = refusal.retry_after().map(debug);
    tracing::debug!(target: TARGET, cost, by, retry_after, "refused: {refusal}");
}

/// A span that is open while a claim waits in the queue.
#[derive(Debug)]
pub(super) struct Wait(Span);

impl Wait {
    pub(super) fn begin(cost: u64, queue_info: QueueInfo) -> Option<Self> {
        let QueueInfo { ahead, estimate, .. } = queue_info;
        let estimate = estimate.map(debug);
        let span = tracing::info_span!(target: TARGET, "wait", cost, ahead, estimate, outcome = Empty);
        (!span.is_disabled()).then_some(Self(span))
    }

    pub(super) fn end(self, ending: Ending) {
        let Self(span) = self;
        // Drop the span in any case, but not while a panic unwinds.
        quietly(|| {
            let outcome = match ending {
                Ending::Granted => "granted",
                Ending::Left => "left",
                Ending::Refused { refusal, .. } => Reason::of(&refusal).name(),
            };
            span.record("outcome", outcome);
            if let Ending::Refused { cost, refusal } = ending {
                span.in_scope(|| refused(cost, refusal));
            }
        });
        drop(span);
    }
}
