//! How many tokens a node requests and keeps, and how long that takes to mint.

use super::{RefillPlanner, TTL, View};
use crate::core::rovers::ahead;

const MILLIS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLIS;
/// Under contention, the shares of all nodes together are the tokens minted in this time, so a new node waits little
/// longer than this.
pub(super) const SHARE: u64 = 100 * MILLIS;
/// The planner banks as many tokens as are used in this time.
const AHEAD: u64 = 250 * MILLIS;
/// The shortest time over which the pace is computed.
const GLANCE: u64 = 100 * MILLIS;

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

    /// The tokens that this node takes in one request while other nodes have waiters too: a part of the tokens minted
    /// soon, or of half of those available.
    pub(crate) fn share(&self) -> u64 {
        let soon = self.terms.minted_in(self.share_time());
        if self.acked == 0 { 1 } else { (soon.max(self.left / 2) / self.busy).max(1) }
    }

    pub(super) fn share_time(&self) -> u64 {
        SHARE.max(4 * self.round_trip)
    }

    pub(super) fn pace_at(&self, view: &View) -> u64 {
        let came = ahead(view.total, self.total).max(0) as u64;
        let elapsed = view.now.saturating_sub(self.asked_at).max(GLANCE);
        let now = (came as u128 * SECOND as u128 / elapsed as u128) as u64;
        now.max(self.pace / 2 + now / 2)
    }

    /// The target number of banked tokens at this pace.
    pub(super) fn cushion(&self, pace: u64) -> u64 {
        let soon = scale(pace, AHEAD.max(8 * self.round_trip));
        let is_idle = scale(pace, TTL) == 0;
        soon + u64::from(self.left > 0 && !is_idle)
    }
}

/// Tokens used in `nanos` nanoseconds at `pace` tokens per second.
pub(super) fn scale(pace: u64, nanos: u64) -> u64 {
    (pace as u128 * nanos as u128 / SECOND as u128).min(1 << 48) as u64
}
