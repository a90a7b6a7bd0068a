//! Whether a quota allows the grants that were made, in exact integers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Tokens per second, and burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) rate: u64,
    pub(crate) burst: u64,
}

/// Tokens that the store minted for an instant from `first` to `last`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) tokens: u64,
}

impl Law {
    /// The largest excess, in whole tokens, over the burst and the rate in any window that begins at `start`. Batches
    /// are in the order of their ends.
    #[allow(dead_code, reason = "for the keys of `fleet_keys`, of which the instants by the schedule are not known")]
    pub(crate) fn excess_since(&self, start: u64, batches: &[Batch]) -> u64 {
        let (mut passed, mut worst) = (0, 0);
        for batch in batches {
            passed += i128::from(batch.tokens) * i128::from(SECOND);
            worst = worst.max(passed - i128::from(self.rate) * i128::from(batch.last - start));
        }
        ((worst - self.most() as i128).max(0) / i128::from(SECOND)) as u64
    }

    /// Whole tokens that no lawful schedule explains: 0 if each token can have an instant of its batch such that no window
    /// has more than the burst and the rate.
    ///
    /// A bucket, full at first, serves the batches: each as early as possible, and the one that ends first before the
    /// others. If any schedule is lawful, this one is. What a batch lacks at its end is an excess.
    pub(crate) fn excess(&self, batches: &[Batch]) -> u64 {
        let mut batches = batches.to_vec();
        batches.sort_by_key(|batch| batch.first);
        let Some(began) = batches.first().map(|batch| batch.first) else { return 0 };
        let mut bucket = Bucket { law: *self, level: self.most(), now: began, queue: BinaryHeap::new(), excess: 0 };
        for batch in batches {
            bucket.serve_until(batch.first);
            bucket.queue.push(Reverse((batch.last, u128::from(batch.tokens) * u128::from(SECOND))));
        }
        bucket.serve_until(u64::MAX);
        (bucket.excess / u128::from(SECOND)) as u64
    }

    /// The burst, in billionths of a token.
    fn most(&self) -> u128 {
        u128::from(self.burst) * u128::from(SECOND)
    }
}

/// All tokens are in billionths.
struct Bucket {
    law: Law,
    level: u128,
    now: u64,
    /// The end of each batch, and what it lacks.
    queue: BinaryHeap<Reverse<(u64, u128)>>,
    excess: u128,
}

impl Bucket {
    /// Serves the queue up to `until`. No other batch begins before that.
    fn serve_until(&mut self, until: u64) {
        let rate = u128::from(self.law.rate);
        while let Some(Reverse((end, tokens))) = self.queue.pop() {
            let mut lacks = tokens.saturating_sub(self.level);
            self.level = self.level.saturating_sub(tokens);
            let longest = end.min(until).saturating_sub(self.now);
            if lacks > 0 {
                let wait = lacks.div_ceil(rate).min(u128::from(longest));
                self.now += wait as u64;
                self.level = (rate * wait).saturating_sub(lacks);
                lacks = lacks.saturating_sub(rate * wait);
            }
            if lacks > 0 && self.now < end {
                return self.queue.push(Reverse((end, lacks)));
            }
            self.excess += lacks;
        }
        let minted = rate * u128::from(until.saturating_sub(self.now));
        self.level = (self.level + minted).min(self.law.most());
        self.now = self.now.max(until);
    }
}
