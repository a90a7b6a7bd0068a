//! Dry run of all keys: whether it is on, and its counts.
//!
//! A key that gets its tokens at once is the same with and without dry run: its levels are packed. A call that would
//! wait or be refused makes a [live entry](super::live), with a core that simulates the queue of the key; see
//! [`core::dry_run`](crate::core::dry_run). The entry stays until the last claim would have been granted. Then its
//! levels are those of a key without waiters, and it is packed again, exactly.

use super::rate::Left;
use crate::observe::Verdict;
use crate::sync::{AtomicU64, Ordering};
use std::sync::atomic::AtomicBool;

/// The dry run of a keyed limiter.
#[derive(Debug)]
pub(super) struct KeyedDryRun {
    is_on: AtomicBool,
    /// Calls that passed and would have waited.
    would_wait: AtomicU64,
    /// Calls that passed and would have been refused.
    would_refuse: AtomicU64,
}

impl KeyedDryRun {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on: AtomicBool::new(is_on), would_wait: AtomicU64::new(0), would_refuse: AtomicU64::new(0) }
    }

    // Acquire, as for the cap: a call that learns under a shard's lock that a change has visited the shard sees the
    // change.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Release);
    }

    /// Counts the verdict of a grant that left this, and returns it with the verdict.
    #[inline(never)]
    pub(super) fn counted(&self, left: Left) -> Left {
        let left = left.in_dry_run();
        let counter = match left.word().verdict() {
            None | Some(Verdict::AtOnce { .. } | Verdict::Waits { nanos: Some(0) }) => return left,
            Some(Verdict::Waits { .. }) => &self.would_wait,
            Some(Verdict::Refused { .. }) => &self.would_refuse,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        left
    }

    /// How many calls would have waited, and how many would have been refused.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.would_wait.load(Ordering::Relaxed), self.would_refuse.load(Ordering::Relaxed))
    }
}
