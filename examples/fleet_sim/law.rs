//! The tokens that a quota allows in windows of time, in exact integers.

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Tokens per second, and burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) rate: u64,
    pub(crate) burst: u64,
}

/// Tokens that were granted from `first` to `last`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) tokens: u64,
}

impl Law {
    /// The largest excess, in whole tokens, over the burst and the rate in any window that begins at `start`. Batches
    /// are in the order of their ends.
    pub(crate) fn excess_since(&self, start: u64, batches: &[Batch]) -> u64 {
        let (mut passed, mut worst) = (0, 0);
        for batch in batches {
            passed += i128::from(batch.tokens) * i128::from(SECOND);
            worst = worst.max(passed - self.minted(batch.last - start));
        }
        self.whole(worst, 0)
    }

    /// The same in any window from the start of one batch to the end of the same or a later one, less the tokens minted
    /// in `slack`.
    ///
    /// The worst window that ends with a batch begins where the tokens before it, less those minted before it, are
    /// fewest. So one pass covers all windows.
    pub(crate) fn excess(&self, slack: u64, batches: &[Batch]) -> u64 {
        let (mut passed, mut lowest, mut worst) = (0, i128::MAX, 0);
        for batch in batches {
            lowest = lowest.min(passed - self.minted(batch.first));
            passed += i128::from(batch.tokens) * i128::from(SECOND);
            worst = worst.max(passed - self.minted(batch.last) - lowest);
        }
        self.whole(worst, slack)
    }

    /// In billionths of a token.
    fn minted(&self, nanos: u64) -> i128 {
        i128::from(self.rate) * i128::from(nanos)
    }

    fn whole(&self, worst: i128, slack: u64) -> u64 {
        let allowed = i128::from(self.burst) * i128::from(SECOND) + self.minted(slack);
        ((worst - allowed).max(0) / i128::from(SECOND)) as u64
    }
}
