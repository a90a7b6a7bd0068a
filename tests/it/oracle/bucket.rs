//! One quota of the model: a level, and how it is refilled.

use super::{END_OF_TIME, Int};

/// How a quota fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refill {
    /// `amount` tokens per `period` nanoseconds, each as soon as it is due.
    Continuous { amount: Int, period: Int },
    /// `amount` tokens at the end of each `period` nanoseconds.
    Stepped { amount: Int, period: Int },
    /// `amount` tokens at each multiple of `period` nanoseconds since 1970. Refunds count in the period of their grants.
    Calendar { amount: Int, period: Int },
    /// Only by `replenish`.
    Manual,
}

/// What the wall clock shows at the origin of time: a manual clock begins a year after 1970.
pub(crate) const WALL: Int = 365 * 86_400 * 1_000_000_000;

/// A quota as configured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) refill: Refill,
    pub(crate) burst: Int,
    pub(crate) initial: Int,
}

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) rule: Rule,
    /// The tokens for the front of the queue; negative during a debt.
    pub(crate) level: Int,
    /// Continuous: the part of the next token that has accrued, in `1 / period` of a token.
    pub(crate) rest: Int,
    /// Stepped: the end of a period, from which the others are counted. Before the start if the period became longer.
    pub(crate) origin: Int,
    /// Calendar: how many grants were made before this calendar was set.
    pub(crate) since: usize,
}

impl Bucket {
    pub(crate) fn new(rule: Rule) -> Bucket {
        Bucket { rule: rule.reduced(), level: rule.initial, rest: 0, origin: first_origin(rule, 0), since: 0 }
    }

    /// Whether a grant, with its index among all and its instant, was made in the period that goes on at `now`.
    pub(crate) fn takes_back(&self, granted: Option<(usize, Int)>, now: Int) -> bool {
        let Refill::Calendar { period, .. } = self.rule.refill else { return true };
        let Some((index, at)) = granted else { return false };
        index >= self.since && (at - self.origin) / period == (now - self.origin) / period
    }

    /// Nothing is minted above this: the burst, or the cost of the front waiter if that is more.
    pub(crate) fn bound(&self, front: Option<Int>) -> Int {
        self.rule.burst.max(front.unwrap_or(0))
    }

    /// Mints the tokens of `last .. to`.
    pub(crate) fn mint(&mut self, last: Int, to: Int, front: Option<Int>) {
        match self.rule.refill {
            Refill::Continuous { amount, period } => {
                let parts = (to - last) * amount + self.rest;
                let minted = parts / period;
                let rest = parts % period;
                let space = (self.bound(front) - self.level).max(0);
                // More than one nanosecond's worth above a full bucket: it was full before, so that time is lost.
                let burns = minted > space || minted == space && rest >= amount;
                self.level += minted.min(space);
                self.rest = if burns { 0 } else { rest };
            }
            Refill::Stepped { amount, period } | Refill::Calendar { amount, period } => {
                let steps = (to - self.origin) / period - (last - self.origin) / period;
                self.add(steps * amount, self.bound(front));
            }
            Refill::Manual => {}
        }
    }

    /// The earliest instant at which the level reaches `want` by time alone.
    pub(crate) fn when(&self, last: Int, want: Int) -> Option<Int> {
        let missing = want - self.level;
        if missing <= 0 {
            return Some(last);
        }
        let when = match self.rule.refill {
            Refill::Continuous { amount, period } => Some(last + div_ceil(missing * period - self.rest, amount)),
            Refill::Stepped { amount, period } | Refill::Calendar { amount, period } => {
                let steps = (last - self.origin) / period + div_ceil(missing, amount);
                Some(self.origin + steps * period)
            }
            Refill::Manual => None,
        };
        let wall = if let Refill::Calendar { .. } = self.rule.refill { WALL } else { 0 };
        when.filter(|&when| when + wall <= END_OF_TIME)
    }

    /// Adds tokens up to `most`; never removes any.
    pub(crate) fn add(&mut self, tokens: Int, most: Int) {
        self.level = self.level.max(most.min(self.level + tokens));
    }

    pub(crate) fn cut_to_burst(&mut self) {
        self.cut(self.rule.burst);
    }

    fn cut(&mut self, most: Int) {
        if self.level > most {
            self.level = most;
            self.rest = 0;
        }
    }

    /// Changes the rule from `now` on. The accrued part of a token stays that part of a token, and the elapsed part of
    /// a period stays that part of a period.
    pub(crate) fn change(&mut self, rule: Rule, now: Int, grants: usize, front: Option<Int>) {
        let rule = rule.reduced();
        self.rest = match (self.rule.refill, rule.refill) {
            (Refill::Continuous { period: old, .. }, Refill::Continuous { period: new, .. }) => self.rest * new / old,
            _ => 0,
        };
        self.origin = match (self.rule.refill, rule.refill) {
            (Refill::Stepped { period: old, .. }, Refill::Stepped { period: new, .. }) => {
                now - (now - self.origin) % old * new / old
            }
            _ => first_origin(rule, now),
        };
        match (self.rule.refill, rule.refill) {
            (Refill::Calendar { period: old, .. }, Refill::Calendar { period: new, .. }) if old == new => {}
            _ => self.since = grants,
        }
        self.rule = rule;
        self.cut(self.bound(front));
    }
}

impl Rule {
    /// 20 tokens in 100 ns are 1 token in 5 ns; a step stays unchanged.
    fn reduced(mut self) -> Rule {
        if let Refill::Continuous { amount, period } = &mut self.refill {
            let divisor = gcd(*amount, *period);
            *amount /= divisor;
            *period /= divisor;
        }
        self
    }
}

fn first_origin(rule: Rule, now: Int) -> Int {
    if let Refill::Calendar { period, .. } = rule.refill { -(WALL % period) } else { now }
}

fn gcd(a: Int, b: Int) -> Int {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn div_ceil(a: Int, b: Int) -> Int {
    (a + b - 1) / b
}
