//! The floor of a leaf: the instant of its next installment, and what moves that instant.
//!
//! Instants are integers with [`SCALE`] units per nanosecond, rounded up: a floor is at most one unit late at each
//! installment, and never early.

use crate::Quota;
use crate::core::arithmetic::gcd;

/// The least common multiple of the numbers up to 16: floors such as 60 per second fall due at exact units.
const SCALE: u128 = 720_720;

/// An instant, or a length of time, in units.
pub(super) type FloorTime = u128;

/// A sum of rates, in 2^-64 tokens per nanosecond. Each of them is rounded down, so that floors which together are just
/// the rate of the limiter do not exceed it.
pub(super) type RateSum = u128;

/// A rate in tokens per nanosecond, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    tokens: u128,
    nanos: u128,
}

/// Fractions with larger terms are rounded. Two of them can then be multiplied.
const MAX_TERM: u128 = 1 << 63;

impl Rate {
    pub(super) const ZERO: Self = Self { tokens: 0, nanos: 1 };

    /// The rate of a quota that time refills.
    pub(super) fn of(quota: Quota) -> Option<Self> {
        let nanos = u128::from(quota.period_nanos());
        (!quota.is_manual()).then(|| Self::reduced(u128::from(quota.amount()), nanos))
    }

    fn reduced(mut tokens: u128, mut nanos: u128) -> Self {
        let common = gcd(tokens, nanos);
        (tokens, nanos) = (tokens / common, nanos / common);
        while tokens > MAX_TERM || nanos > MAX_TERM {
            (tokens, nanos) = ((tokens / 2).max(1), (nanos / 2).max(1));
        }
        Self { tokens, nanos }
    }

    /// As a part of a sum, rounded down.
    pub(super) fn fixed(self) -> RateSum {
        (self.tokens << 64) / self.nanos
    }

    /// The bound of a sum, rounded up.
    pub(super) fn fixed_up(self) -> RateSum {
        (self.tokens << 64).div_ceil(self.nanos)
    }

    /// In tokens per nanosecond.
    pub(super) fn as_f64(self) -> f64 {
        self.tokens as f64 / self.nanos as f64
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let tokens = (self.tokens * other.nanos).saturating_add(other.tokens * self.nanos);
        Self::reduced(tokens, self.nanos * other.nanos)
    }

    /// Not below zero.
    pub(super) fn minus(self, other: Self) -> Self {
        let tokens = (self.tokens * other.nanos).saturating_sub(other.tokens * self.nanos);
        Self::reduced(tokens, self.nanos * other.nanos)
    }

    /// This rate, or that of a rounded sum if it is more, or if it is zero.
    pub(super) fn at_least(self, sum: RateSum) -> Self {
        match sum {
            0 => Self::ZERO,
            _ if self.fixed() >= sum => self,
            _ => Self::reduced(sum, 1 << 64),
        }
    }

    pub(super) fn is_below(self, other: Self) -> bool {
        self.tokens * other.nanos < other.tokens * self.nanos
    }

    /// This rate times `part / whole`.
    pub(super) fn scaled(self, part: Self, whole: Self) -> Self {
        let share = Self::reduced(part.tokens * whole.nanos, part.nanos * whole.tokens);
        Self::reduced(self.tokens * share.tokens, self.nanos * share.nanos)
    }

    /// The time in which `tokens` arrive, rounded up.
    pub(super) fn time_of(self, tokens: u64) -> FloorTime {
        let nanos = u128::from(tokens) * self.nanos;
        nanos.checked_mul(SCALE).map_or(FloorTime::MAX / 4, |units| units.div_ceil(self.tokens))
    }
}

pub(super) fn units(nanos: u64) -> FloorTime {
    u128::from(nanos) * SCALE
}

/// The first nanosecond at or after `units`.
pub(super) fn nanos(units: FloorTime) -> u64 {
    u64::try_from(units.div_ceil(SCALE)).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// As configured.
    pub(super) rate: Rate,
    /// As applied: scaled if all floors together exceed the rate of the limiter. May not be up to date; see
    /// [`Tree::limit_more_classes`](super::tree::Tree::limit_more_classes).
    pub(super) applied: Rate,
    /// The instant from which the next installment is due.
    pub(super) next: FloorTime,
}

impl Floor {
    pub(super) fn new(rate: Rate, now: u64) -> Self {
        Self { rate, applied: rate, next: units(now) }
    }

    pub(super) fn not_before(self, next: FloorTime) -> Self {
        Self { next: self.next.max(next), ..self }
    }

    /// The class has claims again.
    pub(super) fn restart(&mut self, now: u64) {
        self.next = self.next.max(units(now));
    }

    pub(super) fn is_due(&self, now: u64) -> bool {
        self.next <= units(now)
    }

    /// When an installment of `tokens` that is due should be served at the latest.
    pub(super) fn deadline(&self, tokens: u64) -> FloorTime {
        self.next.saturating_add(self.applied.time_of(tokens))
    }

    /// The class was served `tokens` at `at`, by its floor or by its weight. What it got beyond its floor is not held
    /// against it; what it missed is made up for, as far as `arrears` reach back.
    pub(super) fn serve(&mut self, tokens: u64, at: u64, arrears: FloorTime) {
        let next = self.next.min(units(at)).saturating_add(self.applied.time_of(tokens));
        self.next = self.next.max(next).max(units(at).saturating_sub(arrears));
    }

    /// `tokens` that the class was served come back at `now`.
    pub(super) fn refund(&mut self, tokens: u64, now: u64) {
        let next = self.next.saturating_sub(self.applied.time_of(tokens));
        self.next = next.max(self.next.min(units(now)));
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn rate(tokens: u64) -> Rate {
        Rate::of(Quota::per_second(tokens)).expect("a rate")
    }

    #[test]
    fn rates_add_scale_and_compare_exactly() {
        let sum = rate(60).plus(rate(20));
        assert_eq!(sum, rate(80));
        assert_eq!(rate(60).scaled(rate(40), sum), rate(30));
        assert!(rate(59).is_below(rate(60)) && !rate(60).is_below(rate(60)));
        assert_eq!(Rate::of(Quota::manual(9)), None);
    }

    #[test]
    fn a_time_is_exact_or_rounded_up() {
        assert_eq!(rate(60).time_of(3), units(50_000_000));
        assert_eq!(nanos(rate(3).time_of(1)), 333_333_334);
        assert_eq!(nanos(rate(17).time_of(17)), 1_000_000_000);
        let slow = Rate::of(Quota::new(1, std::time::Duration::from_secs(1 << 33))).expect("a rate");
        assert!(slow.time_of(u64::MAX) > units(u64::MAX), "no overflow");
    }
}
