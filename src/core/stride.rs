//! The stride: how far the fast path may go between two readings of the time.

use crate::core::rovers::ahead;

/// As a reading: one that no other is later than.
const FIXED: u64 = u64::MAX;

/// How far beyond the tail claims may go without reading the time.
///
/// 0, which makes every call exact, unless calls come so fast that a whole stride is eaten at over a token per
/// microsecond: then it doubles, up to a 64th of the smallest burst. A clock that stood still between two readings is a
/// test's clock, and tests must see exact numbers.
#[derive(Debug)]
pub(crate) struct Stride {
    pub(crate) tokens: u64,
    /// How far claims had come when the time was last read, and that reading: `FIXED` if none shall count.
    tail: u64,
    now: u64,
}

impl Stride {
    pub(crate) fn new(tail: u64) -> Self {
        Self { tokens: 0, tail, now: 0 }
    }

    /// Stays at `tokens` from now on.
    pub(crate) fn fix(&mut self, tokens: u64) {
        (self.tokens, self.now) = (tokens, FIXED);
    }

    /// Is no longer than `most` from now on.
    pub(crate) fn shorten(&mut self, most: u64) {
        if self.now != FIXED {
            self.tokens = self.tokens.min(most);
        }
    }

    /// All positions were moved by `n`.
    pub(crate) fn shift(&mut self, n: u64) {
        self.tail = self.tail.wrapping_add(n);
    }

    /// The time was read to be `now`, and claims have come as far as `tail`, then or since; `most` is the longest stride.
    pub(crate) fn adapt(&mut self, tail: u64, now: u64, most: u64) {
        // Somebody with a later reading was here first, or this is the same one again: nothing is to be learnt of the
        // pace since.
        if self.now == FIXED || now < self.now || (tail, now) == (self.tail, self.now) {
            return;
        }
        let eaten = ahead(tail, self.tail).max(0) as u64;
        let elapsed = now - self.now;
        // 1,000 ns per token: at a token per microsecond, reading the clock each time is about 2 % of the caller's
        // time and exactness is free; above it the clock begins to be the price.
        let stood_still = elapsed == 0;
        let fast = eaten.saturating_mul(1_000) >= elapsed && !stood_still;
        if !fast {
            self.tokens = 0;
        } else if eaten >= self.tokens {
            self.tokens = (self.tokens * 2).max(1).min(most);
        } // Else two callers came to the end of one stride, and this is the second: the pace is what it was.
        (self.tail, self.now) = (tail, now);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const MOST: u64 = 64;

    /// A stride that was eaten whole, `times` times, a token per 100 ns.
    fn grown(times: u32) -> Stride {
        let mut stride = Stride::new(0);
        for _ in 0..times {
            let eaten = stride.tokens.max(1);
            stride.adapt(stride.tail + eaten, stride.now + 100 * eaten, MOST);
        }
        stride
    }

    #[test]
    fn it_doubles_while_whole_strides_are_eaten_fast_and_has_an_end() {
        let tokens: Vec<u64> = (0..9).map(|times| grown(times).tokens).collect();
        assert_eq!(tokens, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn a_slow_caller_and_a_clock_that_stands_still_are_exact() {
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
    fn the_second_of_two_callers_at_the_end_of_a_stride_keeps_it() {
        let mut stride = grown(5);
        stride.adapt(stride.tail + 1, stride.now + 50, MOST);
        assert_eq!(stride.tokens, 16, "not a whole stride, but at the same pace");
    }

    #[test]
    fn an_older_reading_that_comes_late_says_nothing() {
        let mut stride = grown(5);
        let (tail, now) = (stride.tail, stride.now);
        stride.adapt(tail + 1, now - 1, MOST);
        assert_eq!((stride.tokens, stride.tail, stride.now), (16, tail, now));
    }

    #[test]
    fn the_same_reading_twice_says_nothing() {
        let mut stride = grown(5);
        stride.adapt(stride.tail, stride.now, MOST);
        assert_eq!(stride.tokens, 16);
    }

    #[test]
    fn what_is_taken_back_was_not_eaten() {
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
    fn a_fixed_one_stays() {
        let mut stride = Stride::new(0);
        stride.fix(7);
        stride.shorten(3);
        for (tail, now) in [(0, 0), (1, 1_000_000), (9, 1_000_001), (9, 5)] {
            stride.adapt(tail, now, MOST);
            assert_eq!(stride.tokens, 7);
        }
    }
}
