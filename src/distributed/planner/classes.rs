//! When a node with classes takes tokens, and when it tells the store what they need.

use super::sizes::SHARE;
use super::{RefillPlanner, TTL, View};

impl RefillPlanner {
    pub(crate) fn node(&self) -> u128 {
        self.node
    }

    /// What all nodes with waiters take in a share time.
    pub(crate) fn shared(&self) -> f64 {
        let minted = self.share_time() as f64 * self.terms.amount() as f64 / (self.terms.period() as f64 * 1e3);
        minted.max((self.left / 2) as f64)
    }

    /// How many nodes had waiters.
    pub(crate) fn busy(&self) -> u64 {
        self.busy
    }

    /// What the node took beyond its part is not paid back: there are tokens for which no node asks, or it did not get what
    /// it was charged for.
    pub(crate) fn forgive_turns(&mut self) {
        self.turns.iter_mut().for_each(|turns| turns.forgive());
    }

    /// The instant before which this node takes no tokens for its classes; 0 if it may.
    pub(super) fn resumes_at(&self) -> u64 {
        self.turns.as_ref().map_or(0, |turns| turns.resumes_at(self.share_time()))
    }

    /// When a node that takes no tokens for a while asks whether the store has some for which no other node asks: before
    /// the bucket is half full, and before the node's lease ends.
    pub(super) fn looks_again_at(&self) -> u64 {
        let least = (2 * self.share_time()).min(TTL / 3);
        let pause = (self.terms.filling_time() / 2).clamp(least, TTL / 3);
        self.asked_at.saturating_add(pause)
    }

    /// When a node in which no claim waits tells the store so: until then other nodes share with its classes.
    pub(super) fn reports_at(&self, view: &View) -> u64 {
        let is_due = !view.is_waiting && self.turns.as_ref().is_some_and(|turns| turns.has_reported);
        if is_due { self.asked_at.saturating_add(SHARE) } else { u64::MAX }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::*;
    use crate::Quota;
    use crate::distributed::Turns;

    #[test]
    fn a_request_that_got_nothing_is_not_paid_back() {
        let terms = QuotaTerms::of(&Quota::per_second(100).burst(10), 0).unwrap();
        let resumes_at = |answer: LeaseGrant| {
            let mut planner = RefillPlanner::new(0, terms, Outage::Wait);
            let mut turns = Turns::default();
            turns.part = Some(1.0);
            turns.take(10, false, 0);
            planner.turns = Some(Box::new(turns));
            planner.record_answer(&LeaseRequest::new(1, 1, terms), &answer, 2, 1);
            planner.resumes_at()
        };
        assert!(resumes_at(LeaseGrant { promised: 10, ..LeaseGrant::default() }) > 0);
        let newer = LeaseGrant { terms: Some(terms.with_version(1)), ..LeaseGrant::default() };
        assert_eq!(resumes_at(newer), 0, "an older quota");
        assert_eq!(resumes_at(LeaseGrant { before: 7, promised: 10, ..LeaseGrant::default() }), 0, "lost state");
        assert_eq!(resumes_at(LeaseGrant { now: 10, remaining: 1, ..LeaseGrant::default() }), 0, "tokens are left");
    }
}
