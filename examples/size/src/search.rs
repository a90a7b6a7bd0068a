//! The smallest quota that meets a goal.
//!
//! Many pairs of a rate and a burst meet the goal: a larger burst allows a smaller rate. The chosen pair has the
//! smallest rate that meets the goal with the largest burst allowed, and the smallest burst that meets it at that rate.
//!
//! Rates are whole numbers of tokens per period. The search assumes that more tokens never make the result worse. This
//! holds without a longest wait. With one, a larger quota can grant, late, a call that a smaller quota refuses, and a
//! large granted call can cause smaller ones to be refused. The pair that is found then still meets the goal, and the
//! next smaller rate or burst does not, but one far below could.

use crate::event::Event;
use crate::goal::Goal;
use crate::per::Per;
use crate::replay::{Candidate, Replay, Setting};
use tollgate::Quota;

/// How often the burst is halved in the table of trade-offs.
const HALVINGS: u32 = 5;

#[derive(Clone, Copy)]
pub struct Search<'t> {
    pub events: &'t [Event],
    pub setting: Setting,
    pub goal: Goal,
    /// Rates are tokens per this period.
    pub per: Per,
}

/// A burst, and the smallest rate that meets the goal with it; `None` if no rate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TradeOff {
    pub burst: u64,
    pub rate: Option<u64>,
}

impl Search<'_> {
    /// The chosen pair; `None` if no rate meets the goal with a burst of at most `max_burst`.
    pub fn choose(&self, max_burst: u64) -> Option<TradeOff> {
        let rate = self.smallest_rate(1, max_burst)?;
        let burst = smallest(1, max_burst, |burst| self.meets(rate, burst))?;
        Some(TradeOff { burst, rate: Some(rate) })
    }

    /// The smallest rates for smaller and smaller bursts, beginning with `rate`, which is that of `max_burst`.
    pub fn trade_offs(&self, max_burst: u64, rate: u64) -> Vec<TradeOff> {
        let mut rows = vec![TradeOff { burst: max_burst, rate: Some(rate) }];
        for burst in (1..=HALVINGS).map(|times| max_burst >> times).take_while(|burst| *burst > 0) {
            // A smaller burst needs at least the rate of the larger one.
            let rate = rows[rows.len() - 1].rate.and_then(|rate| self.smallest_rate(rate, burst));
            rows.push(TradeOff { burst, rate });
        }
        rows
    }

    pub fn quota(&self, rate: u64, burst: u64) -> Quota {
        Quota::new(rate, self.per.period()).burst(burst)
    }

    fn smallest_rate(&self, from: u64, burst: u64) -> Option<u64> {
        // One token per nanosecond.
        let most = u64::try_from(self.per.period().as_nanos()).unwrap_or(u64::MAX);
        smallest(from, most, |rate| self.meets(rate, burst))
    }

    fn meets(&self, rate: u64, burst: u64) -> bool {
        let candidate = Candidate::new(self.quota(rate, burst)).expect("the search stays within the limits of a quota");
        let replay = Replay::new(self.events, candidate, self.setting).expect("a bucket that starts full can be keyed");
        self.goal.is_met(self.events.len(), replay)
    }
}

/// The smallest number from `low` to `high` that is `enough`, provided that all larger ones are too: steps that double,
/// then a binary search between the last two.
fn smallest(low: u64, high: u64, mut enough: impl FnMut(u64) -> bool) -> Option<u64> {
    let (mut from, mut to, mut step) = (low, low, 1);
    while !enough(to) {
        if to >= high {
            return None;
        }
        from = to + 1;
        to = to.saturating_add(step).min(high);
        step = step.saturating_mul(2);
    }
    while from < to {
        let middle = from + (to - from) / 2;
        if enough(middle) { to = middle } else { from = middle + 1 }
    }
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_finds_every_answer() {
        for (low, high) in [(1, 1), (1, 2), (1, 100), (17, 23), (1, u64::MAX)] {
            for answer in (low..high.min(low + 99)).chain([high]) {
                assert_eq!(smallest(low, high, |number| number >= answer), Some(answer), "{low} to {high}");
            }
            assert_eq!(smallest(low, high, |_| false), None);
        }
    }
}
