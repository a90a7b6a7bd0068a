//! One queue: its tokens, and the claims that wait in it.

use std::collections::{BTreeSet, VecDeque};

/// `amount` tokens per `period` nanoseconds, in lowest terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) amount: u64,
    pub(crate) period: u64,
    pub(crate) burst: u64,
    pub(crate) initial: u64,
    pub(crate) cap: Option<u64>,
}

/// The part of a joint claim at the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) number: usize,
    pub(super) stays: bool,
    pub(super) announced: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    pub(super) rule: Rule,
    /// The instant up to which it has been served.
    pub(super) at: u64,
    pub(super) level: u64,
    pub(super) rem: u64,
    pub(crate) in_flight: u64,
    pub(super) paused_until: u64,
    /// Plain claims with their costs, and the places of joint claims, which have no cost here.
    pub(super) queue: VecDeque<(usize, Option<u64>)>,
    pub(super) held: Option<Held>,
    pub(super) blocked: BTreeSet<usize>,
    pub(super) aside: BTreeSet<usize>,
    pub(super) alarms: BTreeSet<(u64, usize)>,
}

impl Bucket {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            rule,
            at: 0,
            level: rule.initial,
            rem: 0,
            in_flight: 0,
            paused_until: 0,
            queue: VecDeque::new(),
            held: None,
            blocked: BTreeSet::new(),
            aside: BTreeSet::new(),
            alarms: BTreeSet::new(),
        }
    }

    /// Mints the token of the next `nanoseconds`, if one is due. `front` is the cost of the claim at the front.
    pub(super) fn mint(&mut self, nanoseconds: u64, front: Option<u64>) {
        let Rule { amount, period, burst, .. } = self.rule;
        self.at += nanoseconds;
        let bound = front.map_or(burst, |cost| burst.max(cost));
        let credit = amount * nanoseconds + self.rem;
        let (minted, rem) = (credit / period, credit % period);
        let space = bound.saturating_sub(self.level);
        // The bucket was full before this nanosecond: the time is lost.
        let burned = minted > space || (minted == space && rem >= amount);
        self.level += minted.min(space);
        self.rem = if burned { 0 } else { rem };
    }

    pub(super) fn fits(&self, cost: u64) -> bool {
        self.level >= cost && self.has_space(cost) && self.at >= self.paused_until
    }

    pub(super) fn has_space(&self, cost: u64) -> bool {
        self.rule.cap.is_none_or(|cap| self.in_flight + cost <= cap)
    }

    /// When a claim of `cost` would be granted if it were at the front now.
    pub(super) fn due(&self, cost: u64) -> Option<u64> {
        let Rule { amount, period, .. } = self.rule;
        let wait = match cost.saturating_sub(self.level) {
            0 => 0,
            need => (need * period - self.rem).div_ceil(amount),
        };
        self.has_space(cost).then_some((self.at + wait).max(self.paused_until))
    }

    pub(super) fn time_to_mint(&self, cost: u64) -> u64 {
        (cost * self.rule.period).div_ceil(self.rule.amount)
    }

    pub(super) fn take(&mut self, cost: u64) {
        self.level -= cost;
        self.in_flight += cost;
    }

    pub(super) fn give_back(&mut self, cost: u64) {
        self.level = self.level.max((self.level + cost).min(self.rule.burst));
        self.in_flight -= cost;
    }

    /// The front was cancelled without a grant.
    pub(super) fn cut(&mut self) {
        if self.level > self.rule.burst {
            (self.level, self.rem) = (self.rule.burst, 0);
        }
    }

    /// Removes a claim that is not held from wherever it is.
    pub(super) fn forget(&mut self, number: usize) {
        self.queue.retain(|(other, _)| *other != number);
        self.blocked.remove(&number);
        self.aside.remove(&number);
        self.alarms.retain(|(_, other)| *other != number);
    }

    pub(super) fn is_held(&self, number: usize) -> bool {
        self.held.is_some_and(|held| held.number == number)
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.is_held(number) || self.queue.iter().any(|(other, _)| *other == number) || self.is_aside(number)
    }

    pub(super) fn is_aside(&self, number: usize) -> bool {
        self.blocked.contains(&number)
            || self.aside.contains(&number)
            || self.alarms.iter().any(|(_, other)| *other == number)
    }

    pub(crate) fn waiting(&self) -> usize {
        let aside = self.blocked.len() + self.aside.len() + self.alarms.len();
        self.queue.len() + aside + usize::from(self.held.is_some())
    }

    pub(crate) fn level(&self) -> u64 {
        self.level
    }

    pub(crate) fn available(&self) -> u64 {
        let most = self.rule.cap.map_or(u64::MAX, |cap| cap.saturating_sub(self.in_flight));
        if self.is_free() && self.at >= self.paused_until { self.level.min(most) } else { 0 }
    }

    /// No claim waits in the queue.
    pub(super) fn is_free(&self) -> bool {
        self.queue.is_empty() && self.held.is_none()
    }
}
