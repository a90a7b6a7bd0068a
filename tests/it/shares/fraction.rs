//! Exact fractions, and rates as such.

use super::model::Int;
use crate::oracle::{Refill, Rule};
use std::cmp::Ordering;

/// In lowest terms, with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    above: Int,
    below: Int,
}

impl Fraction {
    pub(crate) const ZERO: Self = Self::whole(0);

    pub(crate) const fn whole(above: Int) -> Self {
        Self { above, below: 1 }
    }

    pub(crate) fn new(above: Int, below: Int) -> Self {
        let common = gcd(above.abs(), below.abs()) * below.signum();
        Self { above: above / common, below: below / common }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self::new(self.above * other.below + other.above * self.below, self.below * other.below)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self { above: -other.above, ..other })
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self::new(self.above * other.above, self.below * other.below)
    }

    pub(crate) fn over(self, other: Self) -> Self {
        self.times(Self::new(other.below, other.above))
    }

    pub(crate) fn ceil(self) -> Int {
        -(-self.above).div_euclid(self.below)
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.above * other.below).cmp(&(other.above * self.below))
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Tokens per nanosecond; `None` if time brings none.
pub(crate) fn rate(rule: &Rule) -> Option<Fraction> {
    match rule.refill {
        Refill::Continuous { amount, period } | Refill::Stepped { amount, period } => {
            Some(Fraction::new(amount, period))
        }
        _ => None,
    }
}

fn gcd(a: Int, b: Int) -> Int {
    if b == 0 { a } else { gcd(b, a % b) }
}
