//! What is counted at a line.

#[cfg(feature = "keyed")]
use super::StoreError;
use super::replies::{ErrorReplies, ReplyCounts};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The counters of a [`Store`](super::Line): written by the tasks of its nodes, never by callers.
#[derive(Debug, Default)]
pub struct Tally {
    pub(super) round_trips: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) granted: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) outages: AtomicU64,
    pub(super) outage_nanos: AtomicU64,
    pub(super) lease: AtomicU64,
    pub(super) hold: AtomicU64,
    pub(super) nodes: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(crate) round_trip_nanos: AtomicU64,
    pub(super) out: AtomicU64,
    pub(super) is_lost: AtomicBool,
    pub(crate) replies: ReplyCounts,
    pub(super) error: Mutex<Option<String>>,
}

/// What a line looks like from here; from `RedisStore::snapshot` and [`Tally::snapshot`]. Counters are those of all limiters of
/// this process that share the line and its clones; the sizes are those of the limiter that asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StoreSnapshot {
    /// Asks that were answered.
    pub round_trips: u64,
    /// Tokens asked for.
    pub asked: u64,
    /// Tokens leased.
    pub granted: u64,
    /// Tokens given back.
    pub returned: u64,
    /// Tokens of the last lease.
    pub lease: u64,
    /// How many tokens may be kept here unused.
    pub hold: u64,
    /// How many nodes share the line.
    pub nodes: u64,
    /// How many of them had waiters lately.
    pub busy: u64,
    /// How long a round trip takes, on average of the last few.
    pub round_trip: Duration,
    /// How often the line could not be reached.
    pub outages: u64,
    /// For how long, in all. An outage that lasts is counted as far as the last attempt.
    pub outage: Duration,
    /// True while it cannot be reached.
    pub is_out: bool,
    /// How often the server answered with which kind of error.
    pub error_replies: ErrorReplies,
    /// What was wrong the last time.
    pub error: Option<String>,
}

impl Tally {
    /// All counters.
    pub fn snapshot(&self) -> StoreSnapshot {
        StoreSnapshot {
            round_trips: self.round_trips.load(Relaxed),
            asked: self.asked.load(Relaxed),
            granted: self.granted.load(Relaxed),
            returned: self.returned.load(Relaxed),
            lease: self.lease.load(Relaxed),
            hold: self.hold.load(Relaxed),
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

    /// An ask that nobody repeats failed; after so many nanoseconds, if that was since nobody answered.
    #[cfg(feature = "keyed")]
    pub(crate) fn lose(&self, error: &StoreError, unanswered: Option<u64>) {
        *self.error() = Some(error.to_string());
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
