//! The tokens that a node keeps unused: how many, and when to request them.

use super::sizes::{MILLIS, SHARE, scale};
use super::{RefillPlanner, TTL};

/// The planner banks as many tokens as are used in this time.
const AHEAD: u64 = 250 * MILLIS;

impl RefillPlanner {
    /// Whether the node's requests reach the store often enough to keep the allowance alive. If not, the allowance ends
    /// each time before the next answer, and with it the tokens that waiters count on.
    fn renews_in_time(&self) -> bool {
        self.round_trip + self.round_trip.max(TTL / 3) + SHARE <= TTL - TTL / 64
    }

    /// The most that each node may keep unused if other nodes keep tokens too. The store enforces it as well.
    pub(super) fn fair_allowance(&self) -> u64 {
        if !self.renews_in_time() {
            return 0;
        }
        (self.terms.burst / (2 * (self.nodes + 1))).max(1).min(self.terms.most_held())
    }

    /// The target number of banked tokens at this pace.
    pub(super) fn bank_at(&self, pace: u64) -> u64 {
        let soon = scale(pace, AHEAD.max(8 * self.round_trip));
        let is_idle = scale(pace, TTL) == 0;
        soon + u64::from(self.left > 0 && !is_idle)
    }

    /// The number of banked tokens, of `target`, at which to request more: at least one must be used.
    pub(super) fn low_mark(&self, target: u64, pace: u64) -> u64 {
        (target / 4).max(scale(pace, 2 * self.round_trip)).min(target.saturating_sub(1))
    }

    /// When to ask for tokens to be kept unused. If the store gave less than wanted, the request is not repeated at once.
    pub(super) fn may_bank_at(&self) -> u64 {
        let is_vain = if self.minimum > 0 { self.vain } else { self.short };
        if is_vain { self.asked_at.saturating_add(SHARE) } else { 0 }
    }
}
