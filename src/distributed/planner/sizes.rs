//! How many tokens a node requests for its waiters, and the pace at which its callers claim.

use super::{RefillPlanner, View};
use crate::core::rovers::ahead;

pub(super) const MILLIS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MILLIS;
/// The least time after which the task looks again at a waiter without an instant.
pub(super) const SHARE: u64 = 100 * MILLIS;
/// The shortest time over which the pace is computed.
const SHORTEST_PACE: u64 = 100 * MILLIS;

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
}

/// Tokens used in `nanos` nanoseconds at `pace` tokens per second.
pub(super) fn scale(pace: u64, nanos: u64) -> u64 {
    (pace as u128 * nanos as u128 / SECOND as u128).min(1 << 48) as u64
}
