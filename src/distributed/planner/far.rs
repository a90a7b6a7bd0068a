//! The tokens that a node requests for callers that are still to come: if the store is far away, or if the store's
//! [`prefetch`](crate::distributed::Store::prefetch) says so.

use super::sizes::SHARE;
use super::view::Needs;
use super::{RefillPlanner, View};
use crate::core::rovers::ahead;

/// With a longer round trip the store is far away: two such round trips take longer than the shares of all nodes.
const NEAR: u64 = SHARE / 2;

impl RefillPlanner {
    /// Whether the store is far away: the round trip is longer than [`NEAR`].
    pub(super) fn is_far(&self) -> bool {
        self.round_trip > NEAR
    }

    /// Whether the node asks for callers to come.
    pub(super) fn asks_ahead(&self) -> bool {
        self.is_far() || self.prefetch > 0
    }

    /// The most tokens that a request is for if some of them are for callers to come: from 0 near the store to enough until
    /// the answer to the next request, or this node's part of those minted in the time to prefetch. Three sixteenths of the round
    /// trip are for answers that take longer than others. If they were more, callers would wait longer: for a whole such time.
    fn most_ahead(&self) -> u64 {
        let until_next = self.round_trip.min(self.round_trip.saturating_sub(NEAR) * 2);
        let time = (until_next + until_next / 16 * 3).max(self.prefetch);
        self.terms.minted_in(time) / self.busy
    }

    /// The most tokens to request at `now` for waiters and callers to come together.
    ///
    /// While a store that is far away owes tokens, that is this node's part of those minted since its last request for
    /// waiters, and an eighth more, so that it can grow. So a node that can foresee less than the others is not left behind.
    pub(super) fn most_wanted(&self, now: u64) -> u64 {
        let size = self.most_ahead();
        if !self.owes || !self.is_far() {
            return size;
        }
        let elapsed = now.saturating_sub(self.wanted_at);
        size.min(self.terms.minted_in(elapsed.saturating_add(elapsed / 8)).div_ceil(self.busy))
    }

    /// Records the claims and losses since the last request. Returns the tokens to request for callers to come.
    pub(super) fn plan_ahead(&mut self, view: &View, needs: &Needs) -> u64 {
        let came = ahead(view.total, self.total).max(0) as u64;
        self.ahead_budget.record(came, view.lost, self.most_ahead(), view.promised);
        // The last of these tokens may not complete a claim, if claims have several costs. Tokens of other nodes come before
        // the next ones, so these have to be kept until then: else they would be lost although a claim waits.
        if needs.largest > self.allowance + 1 {
            return self.ahead_budget.take(0, 1);
        }
        let elapsed = view.now.saturating_sub(self.asked_at).max(self.round_trip).max(1);
        let claimed_per_trip = u128::from(came) * u128::from(self.round_trip) / u128::from(elapsed);
        // Tokens that the store does not owe come all at once, with the answer.
        let most = if self.owes { needs.soon } else { needs.soon.min(claimed_per_trip as u64) };
        self.ahead_budget.take(most, needs.largest)
    }
}
