//! The tokens that a node keeps unused: how many, and when to request them.

use super::sizes::{MILLIS, SHARE, scale};
use super::{RefillPlanner, TTL, View};

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

    /// The number of banked tokens, of `target`, at which to request more: some must be used. If the store is far away, that
    /// is a quarter, because the next request is an answer later.
    pub(super) fn low_mark(&self, target: u64, pace: u64) -> u64 {
        let used = if self.is_far() { target.div_ceil(4) } else { 1 };
        (target / 4).max(scale(pace, 2 * self.round_trip)).min(target.saturating_sub(used))
    }

    /// When to ask for tokens to be kept unused. If the store gave less than wanted, or this node's share is no
    /// whole token, the request is not repeated at once.
    ///
    /// While a store owes tokens it gives none. If it is far away, such a request would keep the node from asking for
    /// waiters for long. If nodes ask ahead, the store owes tokens most of the time. So the request waits until the tokens have
    /// come that the store owes. But a store that has lost its data owes none, and the node has to notice that before long.
    pub(super) fn may_bank_at(&self, view: &View) -> u64 {
        let again = self.asked_at.saturating_add(SHARE);
        let is_vain = if self.minimum > 0 { self.vain } else { self.short || self.equal_share() == 0 };
        let again = if is_vain { again } else { 0 };
        if self.minimum > 0 || !self.asks_ahead() {
            return again;
        }
        let owes_until = self.horizon.map_or(0, |horizon| horizon.minted(&self.terms, 1)).max(view.ends.unwrap_or(0));
        let share_time = self.share_time();
        again.max(owes_until.min(self.asked_at.saturating_add(share_time + share_time / 4)))
    }
}
