//! The last denial, kept so that the same call can be denied again without the lock.
//!
//! A denial depends on four things: the state under the lock, the tail, the count of releases, and the time. It may be
//! repeated unchanged while the first three are unchanged and the time is before [`Denial::until`], the instant from
//! which on time may change the answer. Every change of the state [forgets](LastDenial::forget) the denial, under the
//! same lock.
//!
//! This is a sequence lock. It is written only under the owner's lock. Any thread may read it; the reader trusts the
//! values only if it saw the same even version before and after it read them. (After Boehm, "Can seqlocks get along
//! with programming language memory models?", 2012.)

use crate::error::{Bound, Denied};
use crate::name::Name;
use crate::sync::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// An answer, and the conditions under which it stays the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denial {
    pub(crate) cost: u64,
    /// The tail and the count of releases at which it applies.
    pub(crate) tail: u64,
    pub(crate) released: u64,
    /// The instant from which on time may have changed the answer.
    pub(crate) until: u64,
    /// When to retry; 0 if that depends only on other callers, not on time. `None` if no clock can tell.
    pub(crate) at: Option<u64>,
    pub(crate) remaining: u64,
    pub(crate) by: Bound,
    /// The name of the quota that denied.
    pub(crate) name: Name,
}

impl Denial {
    /// The answer to a caller that asks at `now`, before [`until`](Self::until).
    #[inline]
    pub(crate) fn as_of(&self, now: u64) -> Denied {
        let wait = |at: u64| Duration::from_nanos(at.saturating_sub(now));
        Denied { retry_after: self.at.map(wait), remaining: self.remaining, by: self.by, name: self.name }
    }

    /// As words: first what it is about, at last the name in the upper half of a word, and below it [`Bound`] as a number
    /// and whether `at` is `Some`.
    fn to_words(self) -> [u64; WORDS] {
        let by = u64::from(self.name.number()) << 32 | self.by.to_number() << 1 | u64::from(self.at.is_some());
        [self.cost, self.tail, self.released, self.until, self.at.unwrap_or(0), self.remaining, by]
    }
}

/// How many words a denial takes.
const WORDS: usize = 7;

#[derive(Debug)]
pub(crate) struct LastDenial {
    /// Odd while there is no denial to read.
    version: AtomicU64,
    /// The denial, as [`Denial::to_words`] writes it. Written under the owner's lock, and valid only with an even version.
    words: [AtomicU64; WORDS],
}

impl LastDenial {
    pub(crate) fn new() -> Self {
        Self { version: AtomicU64::new(1), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Drops the denial because the state changes and the answer may change with it. Call it under the owner's lock.
    #[inline]
    pub(crate) fn forget(&self) {
        let version = self.version.load(Ordering::Relaxed);
        if version % 2 == 0 {
            self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Keeps `denial` until it is forgotten. Call it under the owner's lock.
    pub(crate) fn keep(&self, denial: &Denial) {
        self.forget();
        // A reader that sees one of the values stored below also sees the odd version. Paired with the fence in
        // `about`.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(denial.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        let version = self.version.load(Ordering::Relaxed);
        // A reader that sees this even version also sees all of these values.
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }

    /// The last denial, if it is about this cost, this tail and these releases.
    #[inline]
    pub(crate) fn about(&self, cost: u64, tail: u64, released: u64) -> Option<Denial> {
        let version = self.version.load(Ordering::Acquire);
        let word = |index: usize| self.words[index].load(Ordering::Relaxed);
        let fits = version % 2 == 0 && word(0) == cost && word(1) == tail && word(2) == released;
        if !fits {
            return None;
        }
        let (until, at, remaining, by) = (word(3), word(4), word(5), word(6));
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        let at = (by % 2 == 1).then_some(at);
        let name = Name::of_number((by >> 32) as u32);
        let by = Bound::from_number((by & u64::from(u32::MAX)) >> 1);
        Some(Denial { cost, tail, released, until, at, remaining, by, name })
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
