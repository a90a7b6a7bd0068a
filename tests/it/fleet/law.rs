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
    /// The excess in whole tokens. It is 0 if each token can be given an instant within its batch such that no window
    /// has more tokens than the burst and the rate allow.
    ///
    /// This is possible if and only if a server that works at the rate, and never faster, can serve each token between
    /// the first instant of its batch and the last one plus the time in which the burst is minted. The server always
    /// works on the token with the earliest such end: if any order serves all of them in time, this one does (earliest
    /// deadline first, Liu and Layland 1973). Tokens that are not served by then are the excess.
    pub(crate) fn excess(&self, batches: &[Batch]) -> u64 {
        let mut batches = batches.to_vec();
        batches.sort_by_key(|batch| batch.first);
        let Some(began) = batches.first().map(|batch| batch.first) else { return 0 };
        // In this unit of time the server serves a billionth of a token.
        let scaled = |at: u64| u128::from(at - began) * u128::from(self.rate);
        let mut server = Server::default();
        for batch in batches {
            server.work_until(scaled(batch.first));
            let end = scaled(batch.last) + self.most();
            server.queue.push(Reverse((end, u128::from(batch.tokens) * u128::from(SECOND))));
        }
        server.work_until(u128::MAX);
        (server.excess / u128::from(SECOND)) as u64
    }

    /// The burst, in billionths of a token.
    fn most(&self) -> u128 {
        u128::from(self.burst) * u128::from(SECOND)
    }
}

/// All tokens are in billionths, and instants in the time in which one of these is served.
#[derive(Default)]
struct Server {
    now: u128,
    /// By when the tokens of each batch must be served, and those that are not served yet.
    queue: BinaryHeap<Reverse<(u128, u128)>>,
    excess: u128,
}

impl Server {
    /// Works until `until`. No other batch begins before that.
    fn work_until(&mut self, until: u128) {
        while self.now < until
            && let Some(Reverse((end, tokens))) = self.queue.pop()
        {
            let served = tokens.min(until.min(end).saturating_sub(self.now));
            self.now += served;
            if self.now >= end {
                self.excess += tokens - served;
            } else if served < tokens {
                self.queue.push(Reverse((end, tokens - served)));
            }
        }
        self.now = self.now.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law { rate: 10_000, burst: 1_000 };
    const MS: u64 = 1_000_000;

    fn batch(first: u64, last: u64, tokens: u64) -> Batch {
        Batch { first: first * MS, last: last * MS, tokens }
    }

    /// The checks would detect a store that gives one token too many.
    #[test]
    fn one_token_too_many_is_an_excess() {
        assert_eq!(LAW.excess(&[batch(0, 0, 1_000), batch(10, 10, 100)]), 0);
        assert_eq!(LAW.excess(&[batch(0, 0, 1_000), batch(10, 10, 101)]), 1);
        // A batch that may belong to the millisecond before is explained by it.
        assert_eq!(LAW.excess(&[batch(499, 499, 500), batch(504, 505, 560)]), 0);
        assert_eq!(LAW.excess(&[batch(500, 500, 500), batch(504, 505, 560)]), 10);
    }

    /// One grant that is late by a burst's time forgives that grant and no other.
    #[test]
    fn a_late_grant_forgives_no_burst_of_others() {
        assert_eq!(LAW.excess(&[batch(0, 100, 1), batch(1_000, 1_000, 1_000), batch(1_000, 1_000, 1_000)]), 1_000);
    }

    #[test]
    fn tokens_that_can_come_later_do_not_use_up_the_burst_of_others() {
        // The first 500 can come at 56 ms, when 550 have been minted since the burst was used up.
        assert_eq!(LAW.excess(&[batch(0, 56, 500), batch(1, 1, 500), batch(1, 1, 500)]), 0);
        assert_eq!(LAW.excess(&[batch(0, 49, 500), batch(1, 1, 500), batch(1, 1, 500)]), 10);
    }

    /// A window that has more than the law allows is an excess, and nothing else is.
    #[test]
    fn there_is_an_excess_if_and_only_if_a_window_has_one() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut found = [0, 0];
        for _ in 0..2_000 {
            let batches: Vec<_> = (0..1 + random(8))
                .map(|_| {
                    let first = random(100);
                    batch(first, first + random(60), 1 + random(600))
                })
                .collect();
            let inside = |start: u64, end: u64| {
                let whole = batches.iter().filter(|batch| start <= batch.first && batch.last <= end);
                let most = LAW.burst * SECOND + LAW.rate * end.saturating_sub(start);
                (whole.map(|batch| batch.tokens * SECOND).sum::<u64>()).saturating_sub(most) / SECOND
            };
            let starts = || batches.iter().map(|batch| batch.first);
            let worst = starts().flat_map(|start| batches.iter().map(move |batch| (start, batch.last)));
            let worst = worst.map(|(start, end)| inside(start, end)).max().unwrap_or(0);
            let excess = LAW.excess(&batches);
            assert_eq!(excess > 0, worst > 0, "{batches:?}: {excess}, and {worst} in a window");
            assert!(excess >= worst, "{batches:?}: {excess}, and {worst} in a window");
            found[usize::from(excess > 0)] += 1;
        }
        assert!(found.into_iter().all(|times| times > 200), "{found:?}");
    }
}
