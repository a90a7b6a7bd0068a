//! How many tokens to request for callers that are still to come. Pure: no lock, no clock, no network.
//!
//! Tokens are promised for fixed instants. If no claim waits at such an instant, and the node may not keep the token, it is
//! lost to all nodes. So the forecast is paid for in advance: claims of callers earn [`EARNED`] credits, a token asked for
//! needs [`NEEDED`] of them, and a token that is lost costs [`LOST`]. In the long run a node loses at most one token for
//! each `LOST / EARNED` that its callers claim, whatever they do.

const EARNED: i64 = 1;
const NEEDED: i64 = 16;
const LOST: i64 = 64;
/// More tokens than any request is for.
const MOST: u64 = 1 << 48;

/// What a node knows of its callers to come.
#[derive(Debug)]
pub(crate) struct Forecast {
    /// Credits: below 0 after a loss.
    credit: i64,
    /// The most tokens to ask for, as far as experience tells. A loss lowers it to those that were used. It rises again
    /// request by request, and slowly near `ceiling`, where tokens were lost before.
    limit: u64,
    ceiling: u64,
    /// Requests for `limit` tokens since the last loss.
    full: u64,
    /// The tokens that the last request was for, beyond those of claims that waited, and whether `limit` was the bound.
    asked: u64,
    is_full: bool,
}

impl Forecast {
    pub(crate) fn new() -> Self {
        let (credit, limit, ceiling, full, asked, is_full) = (0, MOST, MOST, 0, 0, false);
        Self { credit, limit, ceiling, full, asked, is_full }
    }

    /// Records that callers claimed `came` tokens since the last request, and that `lost` tokens found no claim and no
    /// space. The node never asks for more than `most` tokens at a time.
    pub(crate) fn record(&mut self, came: u64, lost: u64, most: u64) {
        let [came, cost, most] = [came, lost, most].map(|tokens| tokens.min(MOST) as i64);
        self.credit = (self.credit + EARNED * came).min(NEEDED * most) - LOST * cost;
        if lost > 0 {
            let used = self.asked.saturating_sub(lost);
            (self.ceiling, self.limit, self.full) = (self.asked, used - used / 8, 0);
        } else if self.is_full {
            self.full += 1;
            let is_near = (self.ceiling - self.ceiling / 4..=self.ceiling).contains(&self.limit);
            let step = if !is_near { self.limit / 8 } else if self.full % 2 == 0 { self.limit / 32 } else { 0 };
            let least = u64::from(!is_near || self.full % 4 == 0);
            self.limit = (self.limit + step.max(least)).min(MOST);
        }
        (self.asked, self.is_full) = (0, false);
    }

    /// The tokens to request for callers to come: at most `most`, in claims of `cost`.
    pub(crate) fn take(&mut self, most: u64, cost: u64) -> u64 {
        let most = most.min((self.credit / NEEDED).max(0) as u64);
        let tokens = most.min(self.limit);
        self.is_full = most > self.limit;
        let cost = cost.max(1);
        self.asked = if self.is_full { tokens.next_multiple_of(cost) } else { tokens - tokens % cost };
        self.asked
    }
}
