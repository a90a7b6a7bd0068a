//! How many tokens to request for callers that are still to come. Pure: no lock, no clock, no network.
//!
//! Tokens are promised for fixed instants. If no claim waits at such an instant, and the node may not keep the token, it is
//! lost to all nodes. So a node pays for them in advance: claims of callers earn [`EARNED`] credits, a token asked for
//! needs [`NEEDED`] of them, and a token that is lost costs [`LOST`]. In the long run a node loses at most one token for
//! each `LOST / EARNED` that its callers claim, whatever they do.

const EARNED: u64 = 1;
const NEEDED: u64 = 16;
const LOST: u64 = 64;
/// More tokens than any request is for.
const MOST: u64 = 1 << 48;

/// How many tokens a node may request for callers to come.
#[derive(Debug)]
pub(crate) struct AheadBudget {
    /// Credits: below 0 after a loss.
    credit: i64,
    /// The most tokens to ask for, before this is rounded up to whole claims. A loss lowers it to about the tokens that were
    /// used. It rises again request by request, and slowly near `ceiling`, where tokens were lost before.
    limit: u64,
    ceiling: u64,
    /// Requests for `limit` tokens since the last loss.
    full: u64,
    /// The tokens that the last request was for, beyond those of claims that waited, and whether `limit` was the bound.
    asked: u64,
    is_full: bool,
    /// The tokens asked for ahead that may still be lost: not more than what is promised and has not come.
    at_stake: u64,
}

impl AheadBudget {
    pub(crate) fn new() -> Self {
        let (credit, limit, ceiling, full, asked, is_full, at_stake) = (0, MOST, MOST, 0, 0, false, 0);
        Self { credit, limit, ceiling, full, asked, is_full, at_stake }
    }

    /// Records that callers claimed `came` tokens since the last request, and that `lost` tokens found no claim and no
    /// space, while `promised` tokens are still to come. The node never asks for more than `most` tokens at a time; if
    /// that is 0, only a debt is remembered.
    ///
    /// The tokens of a claim that was given up may be lost too. They were not asked for ahead, and are not charged.
    pub(crate) fn record(&mut self, came: u64, lost: u64, most: u64, promised: u64) {
        let lost = lost.min(self.at_stake);
        self.at_stake = (self.at_stake - lost).min(promised);
        let [earned, cost, bound] =
            [(came, EARNED), (lost, LOST), (most, NEEDED)].map(|(tokens, each)| (tokens.min(MOST) * each) as i64);
        if most == 0 {
            let credit = (self.credit + earned).saturating_sub(cost).min(0);
            *self = Self { credit, at_stake: self.at_stake, ..Self::new() };
            return;
        }
        self.credit = (self.credit + earned).min(bound).saturating_sub(cost);
        if lost > 0 && self.asked > 0 {
            let used = self.asked.saturating_sub(lost);
            (self.ceiling, self.limit, self.full) = (self.asked, used - used / 8, 0);
        } else if self.is_full {
            self.full += 1;
            self.limit = (self.limit + self.step()).min(MOST);
        }
        (self.asked, self.is_full) = (0, false);
    }

    /// By how much the limit rises after another request without a loss.
    fn step(&self) -> u64 {
        let is_near = (self.ceiling - self.ceiling / 4..=self.ceiling).contains(&self.limit);
        match (is_near, self.full % 4) {
            (false, _) => (self.limit / 8).max(1),
            (true, 0) => (self.limit / 16).max(1),
            (true, _) => 0,
        }
    }

    /// The tokens to request for callers to come: at most `most`, in claims of `cost`.
    pub(crate) fn take(&mut self, most: u64, cost: u64) -> u64 {
        let cost = cost.max(1);
        let most = most.min((self.credit / NEEDED as i64).max(0) as u64);
        let most = most - most % cost;
        self.is_full = most > self.limit;
        self.asked = if self.is_full { self.limit.next_multiple_of(cost) } else { most };
        self.at_stake = self.at_stake.saturating_add(self.asked);
        self.asked
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn tokens_asked_for_are_earned_before() {
        let mut budget = AheadBudget::new();
        assert_eq!(budget.take(100, 1), 0);
        budget.record(10 * NEEDED + 15, 0, 100, 0);
        assert_eq!(budget.take(4, 1), 4);
        assert_eq!(budget.take(100, 1), 10);
        assert_eq!(budget.take(100, 4), 8, "whole claims");
        budget.record(1_000 * NEEDED, 0, 100, 0);
        assert_eq!(budget.take(1_000, 1), 100, "no more is saved up than one request can use");
    }

    #[test]
    fn a_loss_lowers_the_limit_to_what_was_used_and_it_rises_again() {
        let mut budget = AheadBudget::new();
        let mut next = |lost| {
            budget.record(100 * NEEDED, lost, 100, 0);
            budget.take(100, 1)
        };
        assert_eq!(next(0), 100);
        assert_eq!(next(36), 0, "the loss is paid for first");
        assert_eq!(next(0), 56, "64 were used: seven eighths of them");
        let limits: Vec<u64> = (0..20).map(|_| next(0)).collect();
        assert_eq!(limits[..6], [56, 63, 70, 78, 82, 82], "slowly, near the 100 of which some were lost");
        assert_eq!(limits[18..], [97, 97]);
    }

    #[test]
    fn a_loss_is_paid_for_although_the_store_was_near_meanwhile() {
        let mut budget = AheadBudget::new();
        budget.record(100 * NEEDED, 0, 100, 0);
        assert_eq!(budget.take(100, 1), 100);
        budget.record(0, 50, 0, 0);
        budget.record(1_000, 7, 0, 0);
        budget.record(600, 0, 100, 0);
        assert_eq!(budget.take(100, 1), 0, "50 lost tokens cost 3,200, and 1,600 were earned");
        budget.record(100 * NEEDED, 0, 0, 0);
        budget.record(NEEDED, 0, 100, 0);
        assert_eq!(budget.take(100, 1), 1, "nothing is saved up near the store");
    }

    #[test]
    fn tokens_that_were_not_asked_for_ahead_are_not_charged_when_they_are_lost() {
        for most in [0, 100] {
            let mut budget = AheadBudget::new();
            budget.record(0, 1 << 60, most, 0);
            budget.record(10 * NEEDED, 0, 100, 0);
            assert_eq!(budget.take(100, 1), 10);
            budget.record(0, 1 << 60, 100, 0);
            budget.record(10 * (LOST - NEEDED), 0, 100, 0);
            assert_eq!(budget.take(100, 1), 0, "but for the 10 that were");
        }
    }

    /// The node sends other requests before the tokens have come.
    #[test]
    fn tokens_that_were_asked_for_ahead_are_charged_until_they_have_come() {
        let mut budget = AheadBudget::new();
        budget.record(100 * NEEDED, 0, 100, 0);
        assert_eq!(budget.take(100, 1), 100);
        budget.record(0, 0, 100, 100);
        assert_eq!(budget.take(0, 1), 0);
        budget.record(0, 50, 0, 30);
        budget.record(0, 0, 100, 30);
        assert_eq!(budget.take(100, 1), 0);
        budget.record(0, 70, 100, 0);
        budget.record(80 * LOST - 100 * NEEDED, 0, 100, 0);
        assert_eq!(budget.take(100, 1), 0, "of the last 70 lost tokens 30 were asked for ahead");
        budget.record(NEEDED, 0, 100, 0);
        assert_eq!(budget.take(100, 1), 1);
    }

    /// Whatever the callers do.
    #[test]
    fn a_node_loses_one_token_for_64_claims_at_most_and_what_it_asks_for_once() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut budget, mut asked, mut came_in_all, mut lost_in_all) = (AheadBudget::new(), 0, 0, 0);
            for _ in 0..2_000 {
                let came = random.u64(..100);
                let lost = if random.u32(..4) == 0 { random.u64(..=asked) } else { asked * random.u64(..2) };
                budget.record(came, lost, 50, 0);
                (came_in_all, lost_in_all) = (came_in_all + came, lost_in_all + lost);
                asked = budget.take(50, 1 + seed % 3);
                assert!(lost_in_all * LOST <= came_in_all * EARNED + 50 * (LOST - NEEDED), "{seed}: {lost_in_all}");
            }
        }
    }
}
