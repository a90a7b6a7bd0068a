//! One quota of the model: a level, and how it is refilled.

use super::{END_OF_TIME, Int};
use std::collections::VecDeque;

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
    /// Each token comes back `period` nanoseconds after its grant, counted from the end of its 32nd of a period. With at
    /// most 33 tokens, counted from the grant itself.
    Sliding { amount: Int, period: Int },
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
    /// Sliding: each grant in the window, as the instant from which it counts and its tokens.
    window: VecDeque<(Int, Int)>,
    /// Sliding: the latest of these instants whose tokens have come back by time.
    gone: Int,
}

impl Bucket {
    pub(crate) fn new(rule: Rule, now: Int) -> Bucket {
        let level = rule.burst;
        let (origin, window) = (first_origin(rule, now), VecDeque::new());
        let mut bucket = Bucket { rule: rule.reduced(), level, rest: 0, origin, window, gone: -1 };
        bucket.take(rule.burst - rule.initial, now);
        bucket
    }

    /// Whether a grant was made in the period that goes on at `now`, as far as its instant is known.
    pub(crate) fn takes_back(&self, granted_at: Option<Int>, now: Int) -> bool {
        let Refill::Calendar { period, .. } = self.rule.refill else { return true };
        granted_at.is_some_and(|at| (at - self.origin) / period == (now - self.origin) / period)
    }

    /// Takes tokens at `now`.
    pub(crate) fn take(&mut self, tokens: Int, now: Int) {
        self.level -= tokens;
        if matches!(self.rule.refill, Refill::Sliding { .. }) && tokens > 0 {
            self.count(tokens, now);
        }
    }

    fn count(&mut self, tokens: Int, now: Int) {
        let Refill::Sliding { amount, period } = self.rule.refill else { return };
        let width = width(amount, period);
        let last = self.window.back().map_or(Int::MIN, |last| last.0);
        let at = (div_ceil(now, width) * width).max(last);
        let distinct =
            1 + self.window.iter().zip(self.window.iter().skip(1)).filter(|(one, next)| one.0 != next.0).count();
        if distinct == 33 {
            // There is no space for another instant: the latest one moves.
            self.window.iter_mut().filter(|it| it.0 == last).for_each(|it| it.0 = at);
        }
        self.window.push_back((at, tokens));
    }

    /// What has left the window by `now` is there again.
    pub(crate) fn slide(&mut self, now: Int) {
        let Refill::Sliding { period, .. } = self.rule.refill else { return };
        while let Some((at, tokens)) = self.window.front().copied().filter(|(at, _)| at + period <= now) {
            self.window.pop_front();
            self.gone = self.gone.max(at);
            self.level += tokens;
        }
    }

    /// Returns tokens of a grant made at `granted_at`. Tokens of a window come out of its oldest end, if those of the grant are
    /// in it still, except as many as `debts` have that wait.
    pub(crate) fn refund(&mut self, tokens: Int, debts: Int, granted_at: Option<Int>) {
        if !matches!(self.rule.refill, Refill::Sliding { .. }) {
            self.add(tokens, self.rule.burst);
        } else if granted_at.is_some_and(|at| at > self.gone) {
            self.add((tokens - debts).max(0), self.rule.burst);
        }
    }

    /// Nothing is minted above this: the burst, or the cost of the front waiter if that is more.
    pub(super) fn bound(&self, front: Option<Int>) -> Int {
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
            Refill::Sliding { .. } => self.slide(to),
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
            Refill::Sliding { period, .. } => {
                let mut sum = 0;
                let needed = self.window.iter().take_while(|(_, tokens)| {
                    let is_needed = sum < missing;
                    sum += tokens;
                    is_needed
                });
                Some(needed.last().map_or(last, |(at, _)| at + period))
            }
            Refill::Manual => None,
        };
        let wall = if let Refill::Calendar { .. } = self.rule.refill { WALL } else { 0 };
        when.filter(|&when| when + wall <= END_OF_TIME)
    }

    /// Adds tokens up to `most`; never removes any.
    pub(crate) fn add(&mut self, tokens: Int, most: Int) {
        if matches!(self.rule.refill, Refill::Sliding { .. }) {
            let mut left = tokens;
            while let Some(first) = self.window.front_mut().filter(|_| left > 0) {
                let part = left.min(first.1);
                (left, first.1, self.level) = (left - part, first.1 - part, self.level + part);
                if first.1 == 0 {
                    self.window.pop_front();
                }
            }
            return;
        }
        self.level = self.level.max(most.min(self.level + tokens));
    }

    pub(crate) fn cut_to_burst(&mut self) {
        self.cut(self.rule.burst);
    }

    pub(crate) fn cut(&mut self, most: Int) {
        if self.level > most {
            self.level = most;
            self.rest = 0;
        }
    }

    /// Changes the rule from `now` on. The accrued part of a token stays that part of a token, and the elapsed part of
    /// a period stays that part of a period.
    pub(crate) fn change(&mut self, rule: Rule, now: Int, front: Option<Int>) {
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
        let window = std::mem::take(&mut self.window);
        let was_sliding = matches!(self.rule.refill, Refill::Sliding { .. });
        self.rule = rule;
        if let Refill::Sliding { amount, period } = rule.refill {
            if was_sliding {
                self.level = amount - window.iter().map(|(_, tokens)| tokens).sum::<Int>();
                let joined = width(amount, period).unsigned_abs().next_power_of_two() as Int;
                let slot = |at: Int| div_ceil(at, joined);
                let instants = || window.iter().map(|(at, _)| *at);
                let last_of_slot = |at| instants().filter(|other| slot(*other) == slot(at)).max().unwrap_or(at);
                self.window = window.iter().map(|(at, tokens)| (last_of_slot(*at), *tokens)).collect();
                self.slide(now);
            } else {
                self.gone = now - 1;
                let level = self.level.min(amount);
                self.level = amount;
                self.take(amount - level, now);
            }
            return;
        }
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

/// How long grants come back together.
fn width(amount: Int, period: Int) -> Int {
    if amount > 33 { div_ceil(period, 32) } else { 1 }
}

fn gcd(a: Int, b: Int) -> Int {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn div_ceil(a: Int, b: Int) -> Int {
    (a + b - 1) / b
}
