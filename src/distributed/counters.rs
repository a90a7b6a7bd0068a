//! The counters of a store.

use super::replies::{ErrorReplies, ReplyCounts, ReplyKind};
use super::{Lease, LeaseGrant, LeaseRequest, Pace, Store, StoreError};
use crate::clock::time::wall_micros;
use crate::observe::{StoreEvent, report};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// The counters of a [`Store`](super::Store). The refill tasks of its nodes write them; callers never do.
#[derive(Debug, Default)]
pub struct StoreCounters {
    round_trips: AtomicU64,
    asked: AtomicU64,
    granted: AtomicU64,
    returned: AtomicU64,
    sent_away: AtomicU64,
    pub(super) places: AtomicU64,
    pub(super) outages: AtomicU64,
    pub(super) outage_nanos: AtomicU64,
    /// How many round trips took up to each of [`StoreSnapshot::ROUND_TRIPS`], and longer.
    round_trip_counts: [AtomicU64; StoreSnapshot::ROUND_TRIPS.len() + 1],
    answered: Mutex<Option<Answered>>,
    pub(super) out: AtomicU64,
    pub(super) is_lost: AtomicBool,
    /// Whether an outage was reported that has not ended.
    is_reported: AtomicBool,
    replies: ReplyCounts,
    error: Mutex<Option<(String, Instant)>>,
    losses: AtomicU64,
    excess: AtomicU64,
    warning: Mutex<Option<String>>,
    /// How far the store's clock is ahead of that of this process, in microseconds, as far as it is known.
    clock_ahead: AtomicI64,
}

/// What the last answer said.
#[derive(Clone, Debug)]
struct Answered {
    at: Instant,
    round_trip: Duration,
    answer: LeaseGrant,
    version: u32,
    level: i64,
    /// From when on the store has a token that is not promised.
    next_at: Instant,
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
    /// Tokens that were leased and never used here, and returned to the store.
    pub returned: u64,
    /// Requests for waiters that got no tokens: the store keeps a place for them, or has no tokens in time.
    pub sent_away: u64,
    /// Limiters that have a place in the store by their last answer: it keeps the next tokens for their waiters.
    pub places: u64,
    /// Tokens in the last lease.
    pub lease: u64,
    /// The allowance: how many tokens may be kept here unused.
    pub allowance: u64,
    /// How many nodes the store remembers: those that asked in the last two seconds.
    pub nodes: u64,
    /// Tokens in the store by the last answer. Below 0: tokens that it has promised and not minted yet.
    pub level: i64,
    /// The time until the store has a token that it has not promised, by the last answer.
    pub next_token: Duration,
    /// The version of the quota in force, by the last answer.
    pub quota_version: u32,
    /// The duration of the last round trip.
    pub round_trip: Duration,
    /// How many round trips took up to each of [`ROUND_TRIPS`](Self::ROUND_TRIPS) and longer than the one before, and how many
    /// took longer than all of these.
    pub round_trip_counts: [u64; Self::ROUND_TRIPS.len() + 1],
    /// The time since the last answer.
    pub answer_age: Option<Duration>,
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
    /// The bounds of the histogram of round trips.
    pub const ROUND_TRIPS: [Duration; 10] = {
        let micros = Duration::from_micros;
        [
            micros(500),
            micros(1_000),
            micros(2_500),
            micros(5_000),
            micros(10_000),
            micros(25_000),
            micros(50_000),
            micros(100_000),
            micros(250_000),
            micros(1_000_000),
        ]
    };

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
        let answered = self.answered().clone();
        let last = answered.as_ref().map(|last| last.answer.clone()).unwrap_or_default();
        StoreSnapshot {
            round_trips: self.round_trips.load(Relaxed),
            asked: self.asked.load(Relaxed),
            granted: self.granted.load(Relaxed),
            returned: self.returned.load(Relaxed),
            sent_away: self.sent_away.load(Relaxed),
            places: self.places.load(Relaxed),
            lease: last.now + last.promised,
            allowance: last.allowance,
            nodes: last.nodes,
            level: answered.as_ref().map_or(0, |last| last.level),
            next_token: answered
                .as_ref()
                .map_or(Duration::ZERO, |last| last.next_at.saturating_duration_since(Instant::now())),
            quota_version: answered.as_ref().map_or(0, |last| last.version),
            round_trip: answered.as_ref().map_or(Duration::ZERO, |last| last.round_trip),
            round_trip_counts: self.round_trip_counts.each_ref().map(|count| count.load(Relaxed)),
            answer_age: answered.as_ref().map(|last| last.at.elapsed()),
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

    /// Records an answer of `store` that came now to a request that was sent at `sent`.
    pub(crate) fn note_answer(&self, store: &dyn Store, ask: &LeaseRequest, answer: &LeaseGrant, sent: Instant) {
        self.end_lost(store);
        let (tokens, at) = (answer.now + answer.promised, Instant::now());
        self.round_trips.fetch_add(1, Relaxed);
        self.asked.fetch_add(ask.want + ask.ahead, Relaxed);
        self.granted.fetch_add(tokens, Relaxed);
        self.returned.fetch_add(ask.back + ask.unused, Relaxed);
        self.sent_away.fetch_add(u64::from(ask.want > 0 && tokens == 0), Relaxed);
        let round_trip = at - sent;
        let bucket = StoreSnapshot::ROUND_TRIPS.partition_point(|bound| *bound < round_trip);
        self.round_trip_counts[bucket].fetch_add(1, Relaxed);
        let terms = answer.terms.unwrap_or(ask.terms);
        let owed = if answer.remaining > 0 { 0 } else { answer.queued_before + answer.promised };
        let lease = Lease::new(0, Pace::of(&terms, answer.phase), owed, 1);
        let wait = if answer.remaining > 0 { 0 } else { lease.instant(1).unwrap_or(u64::MAX) };
        // The phase of a period of a calendar begins when no more is left of it than of others.
        let is_longer = wait > 0 && terms.is_calendar() && answer.phase == 0;
        let rest = if is_longer { terms.ends.saturating_sub(self.clock()) * 1_000 } else { 0 };
        let wait = wait.max(rest);
        let next_at = at.checked_add(Duration::from_nanos(wait)).unwrap_or(at);
        let (answer, version) = (answer.clone(), terms.version());
        let level = if owed > 0 { -(owed as i64) } else { answer.remaining as i64 };
        *self.answered() = Some(Answered { at, round_trip, answer, version, level, next_at });
    }

    /// Counts an error reply of the server. Each implementation of [`Store`](super::Store) whose server can reply with
    /// errors counts them itself; the reports of everything else are made for it.
    pub fn count_error_reply(&self, kind: ReplyKind) {
        self.replies.count(kind);
    }

    /// Records and reports that something on `store`'s server puts the quota at risk, or makes requests slow. Each
    /// implementation of [`Store`] checks its server itself.
    pub fn warn(&self, store: &dyn Store, warning: String) {
        report(&StoreEvent::Warned { store: &store, warning: &warning });
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
    fn end_lost(&self, store: &dyn Store) {
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
            report(&StoreEvent::OutageBegan { store: &store, error });
        }
    }

    /// Reports the end of an outage, if no limiter is in one any more.
    fn report_return(&self, store: &dyn Store) {
        if !self.is_out() && self.is_reported.swap(false, Relaxed) {
            report(&StoreEvent::OutageEnded { store: &store });
        }
    }

    /// Counts and reports that the store has lost its state.
    pub(super) fn note_loss(&self, store: &dyn Store, excess: u64) {
        self.losses.fetch_add(1, Relaxed);
        self.excess.fetch_add(excess, Relaxed);
        report(&StoreEvent::Lost { store: &store, excess });
    }

    /// The time by the store's clock, in microseconds since 1970.
    pub(super) fn clock(&self) -> u64 {
        wall_micros().saturating_add_signed(self.clock_ahead.load(Relaxed))
    }

    /// A request that was sent when the clock of this process showed `sent` arrived when the store's clock showed `clock`.
    pub(super) fn set_clock(&self, clock: u64, sent: u64) {
        self.clock_ahead.store(clock.wrapping_sub(sent) as i64, Relaxed);
    }

    fn is_out(&self) -> bool {
        self.out.load(Relaxed) > 0 || self.is_lost.load(Relaxed)
    }

    fn answered(&self) -> MutexGuard<'_, Option<Answered>> {
        self.answered.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn error(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.error.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
