//! One quota or ceiling of the model: a level, and what raises it. The rules of a full bucket, of fractions and of
//! steps are those of the FIFO limiter's model in `oracle/bucket.rs`.

use super::Quota;
use super::fraction::Fraction;
use crate::fixture::*;

type Int = i128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) amount: Int,
    /// In nanoseconds; 0 for a manual quota.
    pub(crate) period: Int,
    pub(crate) stepped: bool,
    pub(crate) burst: Int,
    pub(crate) initial: Int,
}

impl Rule {
    pub(crate) fn continuous(amount: Int, period: Int, burst: Int, initial: Int) -> Self {
        Self { amount, period, stepped: false, burst, initial }
    }

    /// The quota of a limiter with this rule.
    pub(crate) fn quota(self) -> Quota {
        let quota = match self.period {
            0 => Quota::manual(self.burst as u64),
            period => Quota::new(self.amount as u64, Duration::from_nanos(period as u64)).burst(self.burst as u64),
        };
        let quota = quota.initial(self.initial as u64);
        if self.stepped { quota.stepped() } else { quota }
    }

    /// Tokens per nanosecond.
    pub(crate) fn rate(&self) -> Option<Fraction> {
        (self.period > 0).then(|| Fraction::new(self.amount, self.period))
    }

    fn reduced(self) -> Self {
        if self.stepped || self.period == 0 {
            return self;
        }
        let common = gcd(self.amount, self.period);
        Self { amount: self.amount / common, period: self.period / common, ..self }
    }
}

fn gcd(a: Int, b: Int) -> Int {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) rule: Rule,
    pub(crate) level: Int,
    /// Continuous: the accrued part of the next token, in `1 / period` of a token.
    pub(crate) rest: Int,
    /// Stepped: the end of a period.
    origin: Int,
}

impl Bucket {
    pub(crate) fn new(rule: Rule) -> Self {
        Self::starting(rule, 0)
    }

    pub(crate) fn starting(rule: Rule, now: Int) -> Self {
        Self { rule: rule.reduced(), level: rule.initial, rest: 0, origin: now }
    }

    pub(crate) fn mint(&mut self, last: Int, to: Int, bound: Int) {
        let Rule { amount, period, stepped, .. } = self.rule;
        if period == 0 {
            return;
        }
        if stepped {
            let steps = (to - self.origin).div_euclid(period) - (last - self.origin).div_euclid(period);
            return self.add(steps * amount, bound);
        }
        let parts = (to - last) * amount + self.rest;
        let (minted, rest) = (parts / period, parts % period);
        let space = (bound - self.level).max(0);
        let burns = minted > space || minted == space && rest >= amount;
        self.level += minted.min(space);
        self.rest = if burns { 0 } else { rest };
    }

    /// The first instant, not before `last`, at which the level is at least `want`.
    pub(crate) fn when(&self, last: Int, want: Int) -> Option<Int> {
        let Rule { amount, period, stepped, .. } = self.rule;
        let missing = want - self.level;
        if missing <= 0 {
            return Some(last);
        }
        if period == 0 {
            return None;
        }
        if stepped {
            let steps = (last - self.origin).div_euclid(period) + div_ceil(missing, amount);
            return Some(self.origin + steps * period);
        }
        Some(last + div_ceil(missing * period - self.rest, amount))
    }

    pub(crate) fn add(&mut self, tokens: Int, bound: Int) {
        self.level = self.level.max(bound.min(self.level + tokens));
    }

    pub(crate) fn cut(&mut self, bound: Int) {
        if self.level > bound {
            self.level = bound;
            self.rest = 0;
        }
    }

    /// A new rule from `now` on. The accrued part of a token, or the share of the period that has passed, stays.
    pub(crate) fn change(&mut self, rule: Rule, now: Int) {
        let (old, new) = (self.rule, rule.reduced());
        self.rest =
            if !old.stepped && !new.stepped && old.period > 0 { self.rest * new.period / old.period } else { 0 };
        self.origin = if old.stepped && new.stepped {
            now - (now - self.origin) % old.period * new.period / old.period
        } else {
            now
        };
        self.rule = new;
    }
}

fn div_ceil(a: Int, b: Int) -> Int {
    (a + b - 1) / b
}
