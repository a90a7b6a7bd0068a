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
mod tests {
    use super::*;

    const MOST: u64 = 64;

    /// A stride that was consumed whole, `times` times, at a token per 100 ns.
    fn grown(times: u32) -> Stride {
        let mut stride = Stride::new(0);
        for _ in 0..times {
            let consumed = stride.tokens.max(1);
            stride.adapt(stride.tail + consumed, stride.now + 100 * consumed, MOST);
        }
        stride
    }

    #[test]
    fn the_stride_doubles_while_whole_strides_are_consumed_fast_up_to_its_limit() {
        let tokens: Vec<u64> = (0..9).map(|times| grown(times).tokens).collect();
        assert_eq!(tokens, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn slow_calls_and_a_clock_that_stands_still_reset_the_stride() {
        let mut slow = grown(5);
        slow.adapt(slow.tail + 16, slow.now + 16_001, MOST);
        assert_eq!(slow.tokens, 0, "less than a token per microsecond");
        let mut just = grown(5);
        just.adapt(just.tail + 16, just.now + 16_000, MOST);
        assert_eq!(just.tokens, 32);
        let mut still = grown(5);
        still.adapt(still.tail + 16, still.now, MOST);
        assert_eq!(still.tokens, 0);
    }

    #[test]
    fn the_second_of_two_callers_at_the_end_of_a_stride_keeps_the_stride() {
        let mut stride = grown(5);
        stride.adapt(stride.tail + 1, stride.now + 50, MOST);
        assert_eq!(stride.tokens, 16, "not a whole stride, but at the same pace");
    }

    #[test]
    fn an_older_reading_that_arrives_late_changes_nothing() {
        let mut stride = grown(5);
        let (tail, now) = (stride.tail, stride.now);
        stride.adapt(tail + 1, now - 1, MOST);
        assert_eq!((stride.tokens, stride.tail, stride.now), (16, tail, now));
    }

    #[test]
    fn the_same_reading_twice_changes_nothing() {
        let mut stride = grown(5);
        stride.adapt(stride.tail, stride.now, MOST);
        assert_eq!(stride.tokens, 16);
    }

    #[test]
    fn retracted_tokens_do_not_count_as_consumed() {
        let mut slow = grown(5);
        slow.shift(1_000);
        slow.adapt(slow.tail + 16, slow.now + 16_001, MOST);
        assert_eq!(slow.tokens, 0);
        let mut shifted = Stride::new(0);
        shifted.shift(1_000);
        shifted.adapt(1_001, 100_000, MOST);
        assert_eq!(shifted.tokens, 0, "one token in 100 microseconds");
    }

    #[test]
    fn a_fixed_stride_does_not_adapt() {
        let mut stride = Stride::new(0);
        stride.fix(7);
        stride.shorten(3);
        for (tail, now) in [(0, 0), (1, 1_000_000), (9, 1_000_001), (9, 5)] {
            stride.adapt(tail, now, MOST);
            assert_eq!(stride.tokens, 7);
        }
    }
}
