//! How many tokens a node requests for its waiters, how many it keeps unused, and the pace at which its callers claim.

use super::{RefillPlanner, TTL, View};
use crate::core::rovers::ahead;

const MILLIS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLIS;
/// The least time after which the task looks again at a waiter without an instant.
pub(super) const SHARE: u64 = 100 * MILLIS;
/// The shortest time over which the pace is computed.
const SHORTEST_PACE: u64 = 100 * MILLIS;

/// The planner banks as many tokens as are used in this time.
const AHEAD: u64 = 250 * MILLIS;

impl RefillPlanner {
    /// The tokens that this node takes in one request.
    pub(crate) fn share(&self) -> u64 {
        if self.acked == 0 { 1 } else { self.part }
    }

    pub(super) fn pace_at(&self, view: &View) -> u64 {
        let came = ahead(view.total, self.total).max(0) as u64;
        let elapsed = view.now.saturating_sub(self.asked_at).max(SHORTEST_PACE);
        let now = (came as u128 * SECOND as u128 / elapsed as u128) as u64;
        now.max(self.pace / 2 + now / 2)
    }

    /// The most that each node may keep unused if other nodes keep tokens too. The store enforces it as well.
    pub(super) fn fair_allowance(&self) -> u64 {
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

/// Tokens used in `nanos` nanoseconds at `pace` tokens per second.
fn scale(pace: u64, nanos: u64) -> u64 {
    (pace as u128 * nanos as u128 / SECOND as u128).min(1 << 48) as u64
}
