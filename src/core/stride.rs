//! The stride: how far the fast path may go between two readings of the time.

use crate::core::rovers::ahead;

/// The value of `now` if the stride is fixed: later than any reading of the time.
const FIXED: u64 = u64::MAX;

/// How far beyond the tail claims may go without a reading of the time.
///
/// The stride is 0, which makes every call exact, unless calls consume a whole stride at over a token per microsecond.
/// Then it doubles, up to a 64th of the smallest burst. A clock that stood still between two readings makes it 0 again:
/// that is a test's clock, and tests must see exact numbers.
#[derive(Debug, Default)]
pub(crate) struct Stride {
    /// The present stride, in tokens.
    pub(crate) tokens: u64,
    /// The end of all claims when the time was last read, and that reading: `FIXED` if the stride must not adapt.
    tail: u64,
    now: u64,
}

impl Stride {
    pub(crate) fn new(tail: u64) -> Self {
        Self { tokens: 0, tail, now: 0 }
    }

    /// Sets the stride to `tokens` for good.
    pub(crate) fn fix(&mut self, tokens: u64) {
        (self.tokens, self.now) = (tokens, FIXED);
    }

    /// Limits the current stride to `most`.
    pub(crate) fn shorten(&mut self, most: u64) {
        if self.now != FIXED {
            self.tokens = self.tokens.min(most);
        }
    }

    /// Adjusts to a move of all positions by `n`.
    pub(crate) fn shift(&mut self, n: u64) {
        self.tail = self.tail.wrapping_add(n);
    }

    /// Adapts the stride to a reading of the time, `now`, with claims up to `tail` then or since. `most` is the longest
    /// stride.
    pub(crate) fn adapt(&mut self, tail: u64, now: u64, most: u64) {
        // The stride was adapted to a later reading, or to this one, before: nothing is known about the pace since
        // then.
        if self.now == FIXED || now < self.now || (tail, now) == (self.tail, self.now) {
            return;
        }
        let consumed = ahead(tail, self.tail).max(0) as u64;
        let elapsed = now - self.now;
        // 1,000 ns per token. Up to a token per microsecond, a clock reading per call is a small part of the caller's
        // time, so exactness costs almost nothing. Above that pace, clock readings begin to dominate.
        let stood_still = elapsed == 0;
        let fast = consumed.saturating_mul(1_000) >= elapsed && !stood_still;
        if !fast {
            self.tokens = 0;
        } else if consumed >= self.tokens {
            self.tokens = (self.tokens * 2).max(1).min(most);
        } // Otherwise two callers reached the end of one stride and this is the second: the pace is unchanged.
        (self.tail, self.now) = (tail, now);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
