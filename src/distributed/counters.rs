//! The counters of a store.

use super::StoreError;
use super::replies::{ErrorReplies, ReplyCounts, ReplyKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The counters of a [`Store`](super::Store). The refill tasks of its nodes write them; callers never do.
#[derive(Debug, Default)]
pub struct StoreCounters {
    pub(super) round_trips: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) granted: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) outages: AtomicU64,
    pub(super) outage_nanos: AtomicU64,
    pub(super) lease: AtomicU64,
    pub(super) allowance: AtomicU64,
    pub(super) nodes: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(crate) round_trip_nanos: AtomicU64,
    pub(super) out: AtomicU64,
    pub(super) is_lost: AtomicBool,
    replies: ReplyCounts,
    pub(super) error: Mutex<Option<String>>,
}

/// A store as seen from this process; from [`StoreCounters::snapshot`]. Counters add up
/// all limiters of this process that use the store and its clones. Sizes are those of the limiter
/// that was answered last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StoreSnapshot {
    /// Requests that were answered.
    pub round_trips: u64,
    /// Tokens requested.
    pub asked: u64,
    /// Tokens leased to this process.
    pub granted: u64,
    /// Tokens returned to the store. Those that came while it owed tokens are lost.
    pub returned: u64,
    /// Tokens in the last lease.
    pub lease: u64,
    /// The allowance: how many tokens may be kept here unused.
    pub allowance: u64,
    /// How many nodes share the store.
    pub nodes: u64,
    /// How many of those nodes had waiters recently.
    pub busy: u64,
    /// The duration of a round trip, averaged over the last few.
    pub round_trip: Duration,
    /// How many times the store became unreachable.
    pub outages: u64,
    /// The total duration of all outages. An outage that still lasts is counted up to the last attempt.
    pub outage: Duration,
    /// True while the store cannot be reached.
    pub is_out: bool,
    /// How many error replies of each kind the server has sent.
    pub error_replies: ErrorReplies,
    /// The text of the last error.
    pub error: Option<String>,
}

impl StoreCounters {
    /// Reads all counters.
    pub fn snapshot(&self) -> StoreSnapshot {
        StoreSnapshot {
            round_trips: self.round_trips.load(Relaxed),
            asked: self.asked.load(Relaxed),
            granted: self.granted.load(Relaxed),
            returned: self.returned.load(Relaxed),
            lease: self.lease.load(Relaxed),
            allowance: self.allowance.load(Relaxed),
            nodes: self.nodes.load(Relaxed),
            busy: self.busy.load(Relaxed),
            round_trip: Duration::from_nanos(self.round_trip_nanos.load(Relaxed)),
            outages: self.outages.load(Relaxed),
            outage: Duration::from_nanos(self.outage_nanos.load(Relaxed)),
            is_out: self.out.load(Relaxed) > 0 || self.is_lost.load(Relaxed),
            error_replies: self.replies.snapshot(),
            error: self.error().clone(),
        }
    }

    /// Counts an error reply of the server. Each implementation of [`Store`](super::Store) whose server can reply with
    /// errors counts them itself; the reports of everything else are made for it.
    pub fn count_error_reply(&self, kind: ReplyKind) {
        self.replies.count(kind);
    }

    /// Records `error` as the last error. Errors that [`Store::ask`](super::Store::ask) returns are recorded without
    /// this: it is for errors that the store deals with itself.
    pub fn note_error(&self, error: &StoreError) {
        *self.error() = Some(error.to_string());
    }

    /// Records the failure of a request that is not repeated. `unanswered` is the nanoseconds it took, if it failed
    /// without an answer.
    #[cfg(feature = "keyed")]
    pub(crate) fn lose(&self, error: &StoreError, unanswered: Option<u64>) {
        self.note_error(error);
        let Some(took) = unanswered else { return };
        self.outage_nanos.fetch_add(took, Relaxed);
        if !self.is_lost.swap(true, Relaxed) {
            self.outages.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn error(&self) -> MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
