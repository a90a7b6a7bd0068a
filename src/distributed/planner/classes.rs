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

    /// How many nodes had waiters: how many parts there are.
    pub(crate) fn busy(&self) -> u64 {
        ((self.left + self.terms.minted_in(self.reach())) / self.part).max(2) - 1
    }

    /// The last request got nothing for the classes.
    pub(crate) fn withdraw_class_request(&mut self) {
        self.accounts.iter_mut().for_each(|accounts| accounts.withdraw_last_request());
    }

    /// Tokens are left in the store for which no node asks: classes may take more, by their parts.
    pub(super) fn share_spare(&mut self, now: u64) {
        // The allowances of nodes are not in the bucket.
        let most = self.terms.burst.saturating_sub(self.nodes * self.fair_allowance()).max(1);
        let (fullness, share_time) = (self.left as f64 / most as f64, self.share_time());
        self.accounts.iter_mut().for_each(|accounts| accounts.add_spare(fullness, share_time, now));
    }

    /// The instant before which this node takes no tokens for its classes; 0 if it may.
    pub(super) fn resumes_at(&self) -> u64 {
        self.accounts.as_ref().map_or(0, |accounts| accounts.resumes_at(self.share_time()))
    }

    /// When a node that takes no tokens for a while asks whether the store has some for which no other node asks: when the bucket
    /// could be half full, if that is in two share times or later, and before the node's lease ends.
    pub(super) fn looks_again_at(&self) -> u64 {
        let is_boosted = self.accounts.as_ref().is_some_and(|accounts| accounts.are_boosted());
        let least = (self.share_time() * if is_boosted { 1 } else { 4 } / 2).min(TTL / 3);
        let pause = (self.terms.filling_time() / 2).clamp(least, TTL / 3);
        self.asked_at.saturating_add(pause)
    }

    /// When a node in which no claim waits tells the store so: until then other nodes share with its classes.
    pub(super) fn reports_at(&self, view: &View) -> u64 {
        let is_due = !view.is_waiting && self.accounts.as_ref().is_some_and(|accounts| accounts.has_reported);
        if is_due { self.asked_at.saturating_add(SHARE) } else { u64::MAX }
    }
}
