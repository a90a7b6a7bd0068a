//! Counters of the requests and of their outcomes.
//!
//! Threads that increment the same counter slow each other down. So each thread writes to a shard that few other threads
//! write to, and a reader adds up all shards.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use crate::request::outcome::Outcome;

/// The number of shards. Up to this many threads each write to a shard of their own.
pub(crate) const SHARDS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Counters([CachePadded<Shard>; SHARDS]);

#[derive(Debug, Default)]
struct Shard {
    came: AtomicU64,
    outcomes: [AtomicU64; Outcome::ALL.len()],
}

/// The sums over all shards. Each of them only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) came: u64,
    pub(crate) answered: u64,
    pub(crate) refused_each: u64,
    pub(crate) refused_all: u64,
    pub(crate) refused_rule: u64,
    pub(crate) unknown: u64,
    pub(crate) invalid: u64,
    pub(crate) failed: u64,
    pub(crate) left: u64,
}

impl Counts {
    pub(crate) fn of(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Answered => self.answered,
            Outcome::RefusedEach => self.refused_each,
            Outcome::RefusedAll => self.refused_all,
            Outcome::RefusedRule => self.refused_rule,
            Outcome::Unknown => self.unknown,
            Outcome::Invalid => self.invalid,
            Outcome::Failed => self.failed,
            Outcome::Left => self.left,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { came, answered, refused_each, refused_all, refused_rule, unknown, invalid, failed, left } = self;
        write!(
            f,
            "came={came} answered={answered} refused_each={refused_each} refused_all={refused_all} \
             refused_rule={refused_rule} unknown={unknown} invalid={invalid} failed={failed} left={left}"
        )
    }
}

impl Counters {
    /// Counts a new request. Its outcome is counted when the `RequestGuard` is dropped, whatever happens.
    pub(crate) fn open(&self) -> RequestGuard<'_> {
        self.own_shard().came.fetch_add(1, Ordering::Relaxed);
        RequestGuard { counters: self, outcome: Outcome::Left }
    }

    pub(crate) fn counts(&self) -> Counts {
        // The outcomes first: a request that arrives meanwhile has no outcome yet.
        let of = |outcome: Outcome| self.sum(|shard| &shard.outcomes[outcome as usize]);
        Counts {
            answered: of(Outcome::Answered),
            refused_each: of(Outcome::RefusedEach),
            refused_all: of(Outcome::RefusedAll),
            refused_rule: of(Outcome::RefusedRule),
            unknown: of(Outcome::Unknown),
            invalid: of(Outcome::Invalid),
            failed: of(Outcome::Failed),
            left: of(Outcome::Left),
            came: self.sum(|shard| &shard.came),
        }
    }

    fn sum(&self, word: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.0.iter().map(|shard| word(shard).load(Ordering::Relaxed)).sum()
    }

    fn own_shard(&self) -> &Shard {
        &self.0[own_shard()]
    }
}

/// The number of the shard that this thread writes to.
pub(crate) fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    let number = OWN.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.set(Some(number));
        number
    });
    number % SHARDS
}

/// One request, until the head of its response is there.
pub(crate) struct RequestGuard<'a> {
    counters: &'a Counters,
    outcome: Outcome,
}

impl RequestGuard<'_> {
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.counters.own_shard().outcomes[self.outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}
