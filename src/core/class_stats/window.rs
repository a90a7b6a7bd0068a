//! A sum over the recent past, in two words.

use std::time::Duration;

/// Half of the longest window, in nanoseconds.
const HALF: u64 = 5_000_000_000;

/// The sums of the present half of the window, which is still running, and of the half before it.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The number of the present half, counted from the limiter's first nanosecond.
    half: u64,
    /// The sum of the present half, so far.
    present: u64,
    /// The sum of the half before.
    before: u64,
}

impl Window {
    /// How far back a sum read at `now` reaches: one to two halves, or to the limiter's first nanosecond.
    pub(crate) fn span(now: u64) -> Duration {
        Duration::from_nanos(now - (now / HALF).saturating_sub(1) * HALF)
    }

    /// Adds tokens in half number `half` of the time.
    #[inline]
    pub(crate) fn add(&mut self, tokens: u64, half: u64) {
        if half != self.half {
            (self.before, self.present) = (self.before_half(half), 0);
            self.half = half;
        }
        self.present = self.present.saturating_add(tokens);
    }

    /// The number of the half at `now`.
    #[inline]
    pub(crate) fn half(now: u64) -> u64 {
        now / HALF
    }

    pub(crate) fn sum(&self, now: u64) -> u64 {
        let half = now / HALF;
        let present = if half == self.half { self.present } else { 0 };
        present.saturating_add(self.before_half(half))
    }

    /// The sum of the half before number `half`, which is the present half or a later one.
    fn before_half(&self, half: u64) -> u64 {
        match half - self.half {
            0 => self.before,
            1 => self.present,
            _ => 0,
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sum_reaches_back_over_one_to_two_halves() {
        let mut window = Window::default();
        window.add(3, Window::half(0));
        window.add(4, Window::half(HALF - 1));
        assert_eq!((window.sum(HALF - 1), Window::span(HALF - 1)), (7, Duration::from_nanos(HALF - 1)));
        assert_eq!((window.sum(HALF), Window::span(HALF)), (7, Duration::from_nanos(HALF)));
        window.add(5, 1);
        assert_eq!(window.sum(2 * HALF - 1), 12);
        assert_eq!((window.sum(2 * HALF), Window::span(2 * HALF)), (5, Duration::from_nanos(HALF)));
        assert_eq!(window.sum(3 * HALF), 0);
        window.add(1, 9);
        assert_eq!((window.sum(9 * HALF), window.sum(10 * HALF), window.sum(11 * HALF)), (1, 1, 0));
    }
}
