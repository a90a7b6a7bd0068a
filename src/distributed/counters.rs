//! The counters of a store.

use super::replies::{ErrorReplies, ReplyKind};
use super::{LeaseGrant, LeaseRequest, Pace, Store, StoreError};
use crate::clock::time::wall_micros;
use crate::observe::{StoreEvent, report};
use std::mem::{replace, take};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// The counters of a [`Store`](super::Store). The refill tasks of its nodes write them; callers never do.
#[derive(Debug, Default)]
pub struct StoreCounters(Mutex<Counters>);

#[derive(Debug, Default)]
struct Counters {
    /// All figures but those that depend on when a snapshot is made: ages, the next token, and whether there is an outage.
    seen: StoreSnapshot,
    answered_at: Option<Instant>,
    /// From when on the store has a token that is not promised.
    next_at: Option<Instant>,
    failed_at: Option<Instant>,
    /// How many limiters are in an outage, and 1 if `is_lost`.
    out: u64,
    /// The last request that is not repeated has failed.
    is_lost: bool,
    /// How far the store's clock is ahead of that of this process, in microseconds, as far as it is known.
    clock_ahead: i64,
}

impl Counters {
    fn note_error(&mut self, error: &StoreError) {
        (self.seen.error, self.failed_at) = (Some(error.to_string()), Some(Instant::now()));
    }

    /// Counts an outage. Returns whether to report it: limiters notice it one after the other.
    fn begin(&mut self) -> bool {
        self.seen.outages += 1;
        self.out += 1;
        self.out == 1
    }

    /// The outage of one limiter is over. Returns whether to report that: no limiter is in one any more.
    fn end(&mut self) -> bool {
        self.out -= 1;
        self.out == 0
    }
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
    /// Tokens leased to this process.
    pub granted: u64,
    /// Tokens that were leased and never used here, and returned to the store.
    pub returned: u64,
    /// Requests for waiters that got no tokens: the store keeps a place for them, or has no tokens in time.
    pub sent_away: u64,
    /// Limiters for whose waiters the store may hold tokens back from others, by its last answer.
    pub places: u64,
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
    #[cfg_attr(feature = "serde", serde(serialize_with = "super::replies::by_name"))]
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
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        [us(500), ms(1), us(2_500), ms(5), ms(10), ms(25), ms(50), ms(100), ms(250), ms(1_000)]
    };

    /// Returns how many error replies of this kind the server has sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::distributed::{ReplyKind, StoreSnapshot};
    /// fn errors(store: &StoreSnapshot) -> u64 {
    ///     ReplyKind::all().into_iter().map(|kind| store.error_replies(kind)).sum()
    /// }
    /// # let _ = errors;
    /// ```
    pub fn error_replies(&self, kind: ReplyKind) -> u64 {
        self.error_replies[kind as usize]
    }
}

impl StoreCounters {
    /// Reads all counters.
    pub fn snapshot(&self) -> StoreSnapshot {
        let (counters, now) = (self.lock(), Instant::now());
        let age = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        StoreSnapshot {
            next_token: counters.next_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now)),
            answer_age: age(counters.answered_at),
            error_age: age(counters.failed_at),
            is_out: counters.out > 0,
            ..counters.seen.clone()
        }
    }

    /// Changes what snapshots say.
    pub(super) fn count(&self, change: impl FnOnce(&mut StoreSnapshot)) {
        change(&mut self.lock().seen);
    }

    /// Records an answer of `store` that came now, so long after the request.
    pub(super) fn note_answer(&self, store: &dyn Store, ask: &LeaseRequest, answer: &LeaseGrant, took: Duration) {
        let (tokens, at) = (answer.now + answer.promised, Instant::now());
        let terms = answer.terms.unwrap_or(ask.terms);
        let owed = if answer.remaining > 0 { 0 } else { answer.queued_before + answer.promised };
        let wait = Pace::of(&terms, answer.phase).wait(owed + 1).unwrap_or(u64::MAX);
        let wait = if answer.remaining > 0 { 0 } else { wait };
        // The phase of a period of a calendar begins when no more is left of it than of others.
        let is_longer = wait > 0 && terms.is_calendar() && answer.phase == 0;
        let rest = if is_longer { terms.ends.saturating_sub(self.clock()) * 1_000 } else { 0 };
        let mut counters = self.lock();
        let seen = &mut counters.seen;
        seen.round_trips += 1;
        seen.granted += tokens;
        seen.returned += ask.back + ask.unused;
        seen.sent_away += u64::from(ask.want > 0 && tokens == 0);
        seen.round_trip = took;
        seen.round_trip_counts[StoreSnapshot::ROUND_TRIPS.partition_point(|bound| *bound < took)] += 1;
        (seen.allowance, seen.nodes, seen.quota_version) = (answer.allowance, answer.nodes, terms.version());
        seen.level = if owed > 0 { -(owed as i64) } else { answer.remaining as i64 };
        counters.answered_at = Some(at);
        counters.next_at = at.checked_add(Duration::from_nanos(wait.max(rest)));
        // A request that is not repeated was answered.
        let has_returned = take(&mut counters.is_lost) && counters.end();
        drop(counters);
        if has_returned {
            self.clear_error();
            report(&StoreEvent::OutageEnded { store: &store });
        }
    }

    /// Counts an error reply of the server. Each implementation of [`Store`](super::Store) whose server can reply with
    /// errors counts them itself; the reports of everything else are made for it.
    pub fn count_error_reply(&self, kind: ReplyKind) {
        self.count(|seen| seen.error_replies[kind as usize] += 1);
    }

    /// Records and reports that something on `store`'s server puts the quota at risk, or makes requests slow. Each
    /// implementation of [`Store`] checks its server itself.
    pub fn warn(&self, store: &dyn Store, warning: String) {
        report(&StoreEvent::Warned { store: &store, warning: &warning });
        self.count(|seen| seen.warning = Some(warning));
    }

    /// Records the last error that [`Store::ask`](super::Store::ask) has returned.
    pub(super) fn note_error(&self, error: &StoreError) {
        self.lock().note_error(error);
    }

    /// A request was answered after failures: the error is over, unless a limiter is in an outage still.
    pub(super) fn clear_error(&self) {
        let mut counters = self.lock();
        if counters.out == 0 {
            (counters.seen.error, counters.failed_at) = (None, None);
        }
    }

    /// Records the failure of a request that is not repeated and took so long.
    #[cfg(feature = "keyed")]
    pub(crate) fn lose(&self, store: &dyn Store, error: &StoreError, took: Duration) {
        self.report_if(&StoreEvent::OutageBegan { store: &store, error }, |counters| {
            counters.note_error(error);
            // Otherwise outages of all keys would begin and end with each claim for one key.
            if error.is_of_one_store() {
                return false;
            }
            counters.seen.outage += took;
            !replace(&mut counters.is_lost, true) && counters.begin()
        });
    }

    /// Changes the counters, and reports the event if that returns true.
    fn report_if(&self, event: &StoreEvent<'_>, change: impl FnOnce(&mut Counters) -> bool) {
        // The lock is free when user code observes the event.
        let is_new = change(&mut self.lock());
        if is_new {
            report(event);
        }
    }

    /// Counts an outage of one limiter.
    pub(super) fn begin_outage(&self, store: &dyn Store, error: &StoreError) {
        self.report_if(&StoreEvent::OutageBegan { store: &store, error }, Counters::begin);
    }

    /// The outage of one limiter is over.
    pub(super) fn end_outage(&self, store: &dyn Store) {
        self.report_if(&StoreEvent::OutageEnded { store: &store }, Counters::end);
    }

    /// Counts and reports that the store has lost its state.
    pub(super) fn note_loss(&self, store: &dyn Store, excess: u64) {
        self.count(|seen| (seen.losses, seen.excess_estimate) = (seen.losses + 1, seen.excess_estimate + excess));
        report(&StoreEvent::Lost { store: &store, excess });
    }

    /// The time by the store's clock, in microseconds since 1970.
    pub(super) fn clock(&self) -> u64 {
        wall_micros().saturating_add_signed(self.lock().clock_ahead)
    }

    /// A request that was sent when the clock of this process showed `sent` arrived when the store's clock showed `clock`.
    pub(super) fn set_clock(&self, clock: u64, sent: u64) {
        self.lock().clock_ahead = clock.wrapping_sub(sent) as i64;
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
