//! The periods of calendar quotas. The store's clock decides when one begins, and requests say when that is: the nodes
//! know the calendar.
//!
//! When a period begins, the level becomes the amount, less what nodes may still have of earlier answers. Nothing is
//! promised for the next period. So the tokens of all answers of a period, less those that return in it, are at most
//! the amount.

use super::{Node, SharedBucket, exact};
use crate::distributed::{LeaseRequest, QuotaTerms, StoreError};

impl SharedBucket {
    /// Whether the clock is in the period that the request says; for a node that does not know the calendar, in the one
    /// that has begun here.
    pub(super) fn check_period(&self, asked: QuotaTerms, now: i64) -> Result<(), StoreError> {
        let is_newer = asked.version > self.terms.version;
        let follows = !is_newer && (asked.kind != self.terms.kind || asked.ends == 0);
        let said = if follows { self.terms } else { asked };
        if said.is_calendar() && !said.is_in(now) {
            return Err(StoreError::OtherPeriod { clock: now as u64 });
        }
        Ok(())
    }

    /// Begins the period that the request says, if the last one is over. Returns whether tokens came with it: the first
    /// one of a new bucket has its initial tokens.
    pub(super) fn turn(&mut self, asked: QuotaTerms, now: i64) -> bool {
        let QuotaTerms { kind, burst, begins, ends, .. } = self.terms;
        if asked.kind != kind || !asked.is_in(now) || now < ends as i64 {
            return false;
        }
        self.terms = self.terms.kept(asked.begins.max(begins), asked.ends);
        if ends == 0 || asked.begins <= begins {
            return false;
        }
        // A node may use its allowance until its lease ends, and gets nothing more by a repeat of its last answer.
        let kept = self.nodes.values().filter(|node| node.until > asked.begins as i64).map(|node| node.allowance);
        self.level = (burst as i64 - kept.sum::<i64>()).max(0);
        self.nodes.values_mut().for_each(|node| node.granted = 0);
        true
    }

    /// How many tokens the node returns: of a calendar quota no more than it got in this period, or might keep when
    /// that began.
    pub(super) fn most_back(&self, ask: &LeaseRequest, before: &Node) -> i64 {
        let most = if self.terms.is_calendar() { before.allowance + before.granted } else { i64::MAX };
        exact(ask.back).min(most)
    }

    /// The time until the period of a calendar ends.
    pub(super) fn rest(&self) -> i64 {
        (self.terms.ends as i64 - self.stamp).max(1)
    }
}
