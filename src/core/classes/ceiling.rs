//! The ceiling of a class: a quota of its own, from which every installment of the class is taken.

use crate::Quota;
use crate::core::rovers::ahead;
use crate::core::schedule::Schedule;
use crate::core::state::MAX_SPAN;

#[derive(Clone, Debug)]
pub(super) struct Ceiling {
    schedule: Schedule,
    /// The position up to which tokens were taken.
    taken: u64,
}

impl Ceiling {
    /// Creates the ceiling from a checked quota.
    pub(super) fn new(quota: Quota, now: u64) -> Self {
        Self { schedule: Schedule::new(quota, 0, now), taken: 0 }
    }

    pub(super) fn quota(&self) -> Quota {
        self.schedule.quota
    }

    pub(super) fn burst(&self) -> u64 {
        self.schedule.burst
    }

    pub(super) fn mint(&mut self, now: u64) {
        self.schedule.mint(now, self.taken.wrapping_add(self.schedule.burst));
    }

    /// The tokens there as of the last `mint`; negative after a debt.
    pub(super) fn level(&self) -> i64 {
        ahead(self.schedule.head, self.taken)
    }

    /// The instant at which it is full; `u64::MAX` if that is beyond the end of time.
    pub(super) fn full(&self) -> u64 {
        self.has(self.burst())
    }

    pub(super) fn take(&mut self, tokens: u64) {
        self.taken = self.taken.wrapping_add(tokens);
    }

    /// Gives tokens of a grant back, as far as the burst.
    pub(super) fn refund(&mut self, tokens: u64) {
        self.schedule.add(tokens, self.taken.wrapping_add(self.schedule.burst));
    }

    /// Takes a debt, as far as it fits between the positions: it is not lost, but a ceiling is in debt by 2^62 tokens at
    /// most.
    pub(super) fn take_debt(&mut self, tokens: u64) {
        let space = (MAX_SPAN + self.level()).max(0) as u64;
        self.take(tokens.min(space));
    }

    /// The instant at which `tokens` are there, which are at most the burst; `u64::MAX` if it is beyond the end of time.
    pub(super) fn has(&self, tokens: u64) -> u64 {
        self.schedule.reached(self.taken.wrapping_add(tokens)).unwrap_or(u64::MAX)
    }

    /// Replaces the quota at `now`, as `set_quota` does.
    pub(super) fn change(&mut self, quota: Quota, now: u64) {
        self.mint(now);
        self.schedule.become_quota(quota, self.taken, now);
        self.schedule.cut(self.taken.wrapping_add(self.schedule.burst));
    }
}
