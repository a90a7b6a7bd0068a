//! How many tokens a node requests and keeps.

use super::{RefillPlanner, TTL, View};
use crate::core::rovers::ahead;

const MILLIS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLIS;
/// Under contention, the shares of all nodes together are the tokens minted in this time, so a new node waits little
/// longer than this.
pub(super) const SHARE: u64 = 100 * MILLIS;
/// They are those of a longer time, up to this one, if a share would have fewer tokens than `FEW`: shares of a few tokens
/// cost many requests.
const LONGEST_SHARE: u64 = 220 * MILLIS;
const FEW: u64 = 64;
/// The planner banks as many tokens as are used in this time.
const AHEAD: u64 = 250 * MILLIS;
/// The shortest time over which the pace is computed.
const GLANCE: u64 = 100 * MILLIS;

impl RefillPlanner {
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
        self.near_share_time().max(4 * self.round_trip)
    }

    /// The time of a share if the store is near.
    fn near_share_time(&self) -> u64 {
        let tokens = u128::from(FEW) * u128::from(self.busy);
        let nanos = tokens * u128::from(self.terms.period()) * 1_000 / u128::from(self.terms.amount());
        nanos.clamp(SHARE.into(), LONGEST_SHARE.into()) as u64
    }

    /// The most tokens that a request is for if some of them are for callers to come: those of a share, or enough until the
    /// answer to the next request.
    fn forecast_size(&self) -> u64 {
        let time = self.near_share_time().max(self.round_trip + self.round_trip / 4);
        self.terms.minted_in(time) / self.busy
    }

    /// The most tokens to request at `now` for waiters and callers to come together.
    ///
    /// While the store owes tokens, that is this node's part of those minted since its last request for waiters, and an
    /// eighth more, so that it can grow. So a node that can foresee less than the others is not left behind.
    pub(super) fn most_wanted(&self, now: u64) -> u64 {
        let size = self.forecast_size();
        if !self.owes {
            return size;
        }
        let elapsed = now.saturating_sub(self.wanted_at);
        size.min(self.terms.minted_in(elapsed.saturating_add(elapsed / 8)).div_ceil(self.busy))
    }

    /// Records the claims and losses since the last request. Returns how many tokens were claimed in a round trip.
    pub(super) fn learn(&mut self, view: &View) -> u64 {
        let came = ahead(view.total, self.total).max(0) as u64;
        let elapsed = view.now.saturating_sub(self.asked_at).max(self.round_trip).max(1);
        self.forecast.record(came, view.lost, self.forecast_size());
        (self.total, self.asked_at) = (view.total, view.now);
        (u128::from(came) * u128::from(self.round_trip) / u128::from(elapsed)) as u64
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
