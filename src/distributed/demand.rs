//! The demand of callers that are still to come, as far as it can be foretold. Pure: no lock, no clock, no network.

use crate::core::rovers::ahead;

const SECOND: u64 = 1_000_000_000;
/// The trust in the forecast if no token was lost lately.
const FULL: u64 = 128;

/// Tokens claimed per second, span by span. A span begins and ends with a request to the store.
#[derive(Debug)]
pub(crate) struct Demand {
    /// When the current span began, and the total of claimed tokens at that instant.
    since: u64,
    total: u64,
    /// The paces of the last two spans, the later one first.
    paces: [u64; 2],
    /// How much of the demand is foretold, in parts of `FULL`. It falls when tokens come that no caller takes, and rises
    /// slowly.
    trust: u64,
}

impl Demand {
    pub(crate) fn new() -> Self {
        Self { since: 0, total: 0, paces: [0; 2], trust: FULL }
    }

    /// A request is made at `now`, when `total` tokens were claimed in all. Since the last request `lost` tokens came
    /// that found neither a claim nor space. A span lasts at least `span`: tokens come in shares, and so do claims of
    /// callers that wait.
    pub(crate) fn record(&mut self, now: u64, total: u64, lost: u64, span: u64) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= span.max(1) {
            let came = ahead(total, self.total).max(0) as u128;
            let pace = (came * SECOND as u128 / elapsed as u128).min(1 << 48) as u64;
            self.paces = [pace, self.paces[0]];
            (self.since, self.total) = (now, total);
        }
        self.trust = if lost > 0 { self.trust - self.trust / 4 } else { (self.trust + 1).min(FULL) };
    }

    /// Forgets the paces: the callers are gone.
    pub(crate) fn end(&mut self) {
        self.paces = [0; 2];
    }

    /// The tokens per second that callers claimed in both of the last two spans: claims of one moment are no demand that
    /// lasts.
    pub(crate) fn steady(&self) -> u64 {
        self.paces[0].min(self.paces[1])
    }

    /// The part of `tokens` to be requested for callers that are still to come.
    pub(crate) fn trusted(&self, tokens: u64) -> u64 {
        (tokens as u128 * self.trust as u128 / FULL as u128) as u64
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn claims_of_one_moment_are_no_demand() {
        let mut demand = Demand::new();
        let steady = [(100, 50), (150, 55), (200, 70), (300, 70)].map(|(millis, total)| {
            demand.record(millis * 1_000_000, total, 0, 100_000_000);
            demand.steady()
        });
        assert_eq!(steady, [0, 0, 200, 0]);
    }

    #[test]
    fn trust_falls_with_lost_tokens_and_returns() {
        let mut demand = Demand::new();
        demand.record(0, 0, 1, 1);
        assert_eq!(demand.trusted(128), 96);
        (0..40).for_each(|_| demand.record(0, 0, 0, 1));
        assert_eq!(demand.trusted(128), 128);
        (0..100).for_each(|_| demand.record(0, 0, 5, 1));
        assert!(demand.trusted(128) < 4);
    }
}
