//! The counters of a store.

use super::replies::{ErrorReplies, ReplyCounts, ReplyKind};
use super::{Store, StoreError};
use crate::observe::{StoreEvent, report};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

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
    pub(crate) round_trip_nanos: AtomicU64,
    pub(super) out: AtomicU64,
    pub(super) is_lost: AtomicBool,
    /// Whether an outage was reported that has not ended.
    is_reported: AtomicBool,
    replies: ReplyCounts,
    error: Mutex<Option<(String, Instant)>>,
    losses: AtomicU64,
    excess: AtomicU64,
    warning: Mutex<Option<String>>,
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
    /// The duration of a round trip, averaged over the last few.
    pub round_trip: Duration,
    /// How many outages have begun: a limiter could not reach the store, or got an error for an answer. Errors that concern
    /// one key of a keyed limiter count if the key is used often.
    pub outages: u64,
    /// The total duration of all outages. An outage that still lasts is counted up to the last attempt.
    pub outage: Duration,
    /// True during an outage; of a keyed limiter, during one of any key.
    pub is_out: bool,
    /// How many times a limiter found that the store had lost its state: it was flushed or restarted empty, the key was
    /// evicted or deleted, or a replica took over without the last writes. Each limiter that was running counts once.
    pub losses: u64,
    /// By how many tokens these losses may have exceeded the quota: the tokens granted here that the store does not know
    /// of, as far as the bucket would not have filled up since. The sum over all processes bounds the excess of limiters
    /// that were running. (Requests of a keyed limiter for a single claim, and limiters at rest, cannot tell.)
    pub excess_estimate: u64,
    /// See [`error_replies`](Self::error_replies).
    error_replies: ErrorReplies,
    /// The text of the last error. `None` if the store has answered since then.
    pub error: Option<String>,
    /// The time since that error.
    pub error_age: Option<Duration>,
    /// What on the server puts the quota at risk or makes requests slow, such as a `maxmemory-policy` by which the key may
    /// be evicted.
    pub warning: Option<String>,
}

impl StoreSnapshot {
    /// Returns how many error replies of this kind the server has sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::distributed::{ReplyKind, StoreSnapshot};
    /// fn errors(store: &StoreSnapshot) -> u64 {
    ///     ReplyKind::ALL.into_iter().map(|kind| store.error_replies(kind)).sum()
    /// }
    /// # let _ = errors;
    /// ```
    pub fn error_replies(&self, kind: ReplyKind) -> u64 {
        self.error_replies.of(kind)
    }
}

impl StoreCounters {
    /// Reads all counters.
    pub fn snapshot(&self) -> StoreSnapshot {
        let (error, failed) = self.error().clone().unzip();
        StoreSnapshot {
            round_trips: self.round_trips.load(Relaxed),
            asked: self.asked.load(Relaxed),
            granted: self.granted.load(Relaxed),
            returned: self.returned.load(Relaxed),
            lease: self.lease.load(Relaxed),
            allowance: self.allowance.load(Relaxed),
            nodes: self.nodes.load(Relaxed),
            round_trip: Duration::from_nanos(self.round_trip_nanos.load(Relaxed)),
            outages: self.outages.load(Relaxed),
            outage: Duration::from_nanos(self.outage_nanos.load(Relaxed)),
            is_out: self.is_out(),
            losses: self.losses.load(Relaxed),
            excess_estimate: self.excess.load(Relaxed),
            error_replies: self.replies.snapshot(),
            error,
            error_age: failed.map(|failed| failed.elapsed()),
            warning: self.warning.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone(),
        }
    }

    /// Counts an error reply of the server. Each implementation of [`Store`](super::Store) whose server can reply with
    /// errors counts them itself; the reports of everything else are made for it.
    pub fn count_error_reply(&self, kind: ReplyKind) {
        self.replies.count(kind);
    }

    /// Records and reports that something on `store`'s server puts the quota at risk, or makes requests slow. Each
    /// implementation of [`Store`] checks its server itself.
    pub fn warn(&self, store: &dyn Store, warning: String) {
        report(&StoreEvent::Warned { store, warning: &warning });
        *self.warning.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(warning);
    }

    /// Records the last error that [`Store::ask`](super::Store::ask) has returned.
    pub(super) fn note_error(&self, error: &StoreError) {
        *self.error() = Some((error.to_string(), Instant::now()));
    }

    /// A request was answered after failures: the error is over, unless a limiter is in an outage still.
    pub(super) fn clear_error(&self) {
        if !self.is_out() {
            *self.error() = None;
        }
    }

    /// Records the failure of a request that is not repeated and took so many nanoseconds.
    #[cfg(feature = "keyed")]
    pub(crate) fn lose(&self, store: &dyn Store, error: &StoreError, took: u64) {
        self.note_error(error);
        // Otherwise outages of all keys would begin and end with each claim for one key.
        if error.is_of_one_store() {
            return;
        }
        self.outage_nanos.fetch_add(took, Relaxed);
        if !self.is_lost.swap(true, Relaxed) {
            self.outages.fetch_add(1, Relaxed);
            self.report_outage(store, error);
        }
    }

    /// A request that is not repeated was answered.
    pub(super) fn end_lost(&self, store: &dyn Store) {
        if self.is_lost.load(Relaxed) && self.is_lost.swap(false, Relaxed) {
            self.clear_error();
            self.report_return(store);
        }
    }

    /// Counts an outage of one limiter.
    pub(super) fn begin_outage(&self, store: &dyn Store, error: &StoreError) {
        self.outages.fetch_add(1, Relaxed);
        self.out.fetch_add(1, Relaxed);
        self.report_outage(store, error);
    }

    /// The outage of one limiter is over.
    pub(super) fn end_outage(&self, store: &dyn Store) {
        self.out.fetch_sub(1, Relaxed);
        self.report_return(store);
    }

    /// Reports an outage, unless one is reported already: limiters notice it one after the other.
    fn report_outage(&self, store: &dyn Store, error: &StoreError) {
        if !self.is_reported.swap(true, Relaxed) {
            report(&StoreEvent::OutageBegan { store, error });
        }
    }

    /// Reports the end of an outage, if no limiter is in one any more.
    fn report_return(&self, store: &dyn Store) {
        if !self.is_out() && self.is_reported.swap(false, Relaxed) {
            report(&StoreEvent::OutageEnded { store });
        }
    }

    /// Counts and reports that the store has lost its state.
    pub(super) fn note_loss(&self, store: &dyn Store, excess: u64) {
        self.losses.fetch_add(1, Relaxed);
        self.excess.fetch_add(excess, Relaxed);
        report(&StoreEvent::Lost { store, excess });
    }

    fn is_out(&self) -> bool {
        self.out.load(Relaxed) > 0 || self.is_lost.load(Relaxed)
    }

    fn error(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.error.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
