//! Checks the rate law on the requests that the server received, in exact integers.

use hdrhistogram::Histogram;

use crate::Failure;
use crate::server::{Arrival, Seen};

const SECOND: i128 = 1_000_000_000;

/// The configuration of the limiter.
pub(crate) struct Law {
    pub(crate) rate: u64,
    pub(crate) burst: u64,
    pub(crate) ceiling: Option<u64>,
}

impl Law {
    /// The tokens that may be granted in an instant when a request has this cost: for a cost above the burst the tokens
    /// are saved up, and granted as a whole.
    pub(crate) fn at_once(&self, cost: u64) -> u64 {
        self.burst.max(cost)
    }
}

pub(crate) struct Verdict {
    pub(crate) requests: usize,
    pub(crate) tokens: u64,
    /// Nanoseconds from the first admission to the last.
    pub(crate) elapsed: u64,
    /// Tokens after the burst, per second.
    pub(crate) rate: f64,
    /// Tokens received / (burst + rate x elapsed). At most 1 by the law. Exactly 1 if there is always a waiter and no
    /// grant is late: the last grant is then made at the instant at which its last token is minted.
    pub(crate) achieved: f64,
    /// Whole tokens above burst + rate x window in the worst of all windows between two admissions.
    pub(crate) excess_admitted: u64,
    /// The same between two arrivals, against burst + rate x (window + delivery).
    pub(crate) excess_arrived: u64,
    /// The longest time from a grant to its arrival here, in nanoseconds.
    pub(crate) delivery: u64,
    /// Requests granted after one that claimed later.
    pub(crate) overtaken: u64,
    pub(crate) waits_us: Histogram<u64>,
    pub(crate) in_flight_max: u64,
}

impl Verdict {
    pub(crate) fn excess(&self) -> u64 {
        self.excess_admitted.max(self.excess_arrived)
    }

    pub(crate) fn holds(&self, law: &Law) -> bool {
        self.excess() == 0 && self.overtaken == 0 && law.ceiling.is_none_or(|ceiling| self.in_flight_max <= ceiling)
    }
}

pub(crate) fn judge(law: &Law, seen: &Seen) -> Result<Verdict, Failure> {
    let mut arrived = seen.arrivals.clone();
    arrived.sort_by_key(|arrival| arrival.at);
    let mut admitted = arrived.clone();
    admitted.sort_by_key(|arrival| arrival.claim.turn);
    let (Some(first), Some(last)) = (admitted.first(), admitted.last()) else {
        return Err("the server received no request".into());
    };

    let dearest = arrived.iter().map(|arrival| arrival.claim.cost).max().unwrap_or(0);
    let delivery = arrived.iter().map(|arrival| arrival.at - arrival.claim.latest).max().unwrap_or(0);
    let tokens: u64 = admitted.iter().map(|arrival| arrival.claim.cost).sum();
    let elapsed = last.claim.latest - first.claim.earliest;
    let seconds = elapsed as f64 / 1e9;
    let opening = law.at_once(first.claim.cost);
    let mut waits_us = Histogram::new(3)?;
    for arrival in &admitted {
        waits_us.record((arrival.claim.latest - arrival.claim.asked) / 1_000)?;
    }
    Ok(Verdict {
        requests: admitted.len(),
        tokens,
        elapsed,
        rate: tokens.saturating_sub(opening) as f64 / seconds,
        achieved: tokens as f64 / (opening as f64 + law.rate as f64 * seconds),
        excess_admitted: excess(law.rate, law.at_once(dearest), 0, admitted.iter().map(Passage::of_admission)),
        excess_arrived: excess(law.rate, law.at_once(dearest), delivery, arrived.iter().map(Passage::of_arrival)),
        delivery,
        overtaken: overtaken(&admitted),
        waits_us,
        in_flight_max: seen.in_flight_max,
    })
}

/// Tokens that were granted some time from `earliest` to `latest`.
struct Passage {
    tokens: u64,
    earliest: u64,
    latest: u64,
}

impl Passage {
    fn of_admission(Arrival { claim, .. }: &Arrival) -> Passage {
        Passage { tokens: claim.cost, earliest: claim.earliest, latest: claim.latest }
    }

    fn of_arrival(&Arrival { at, claim }: &Arrival) -> Passage {
        Passage { tokens: claim.cost, earliest: at, latest: at }
    }
}

/// The largest excess, in whole tokens, over burst + rate x (window + slack) among all windows, each from one grant to
/// itself or a later one.
///
/// With `before(i)` tokens granted before i, the window i..=j holds `before(j + 1) - before(i)` tokens, and the rate
/// allows `rate x (t(j) - t(i))` of them. So the worst window that ends at j begins where `before(i) - rate x t(i)` is
/// lowest: one pass covers all windows. In billionths of a token, so nothing is rounded.
fn excess(rate: u64, burst: u64, slack: u64, passages: impl Iterator<Item = Passage>) -> u64 {
    let minted = |nanos: u64| i128::from(rate) * i128::from(nanos);
    let (mut passed, mut lowest, mut worst) = (0, i128::MAX, 0);
    for passage in passages {
        lowest = lowest.min(passed - minted(passage.earliest));
        passed += i128::from(passage.tokens) * SECOND;
        worst = worst.max(passed - minted(passage.latest) - lowest);
    }
    let allowed = i128::from(burst) * SECOND + minted(slack);
    ((worst - allowed).max(0) / SECOND) as u64
}

fn overtaken(admitted: &[Arrival]) -> u64 {
    let mut furthest = 0;
    let mut count = 0;
    for arrival in admitted {
        count += u64::from(arrival.claim.place < furthest);
        furthest = furthest.max(arrival.claim.place);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;

    const LAW: Law = Law { rate: 1_000, burst: 10, ceiling: Some(20) };
    const MS: u64 = 1_000_000;

    /// Grants in order: (milliseconds, cost), each arriving a millisecond later.
    fn seen(admissions: &[(u64, u64)]) -> Seen {
        let arrival = |(number, &(ms, cost)): (usize, &(u64, u64))| {
            let (number, at) = (number as u64, ms * MS);
            let claim = Claim { cost, place: number, turn: number, asked: 0, earliest: at, latest: at };
            Arrival { at: at + MS, claim }
        };
        Seen { arrivals: admissions.iter().enumerate().map(arrival).collect(), in_flight_max: 20 }
    }

    #[test]
    fn a_perfect_limiter_holds_and_achieves_one() {
        let verdict = judge(&LAW, &seen(&[(0, 4), (0, 6), (3, 3), (10, 7), (11, 1)])).unwrap();
        assert!(verdict.holds(&LAW));
        assert!((verdict.achieved - 1.0).abs() < 1e-9 && (verdict.rate - 1_000.0).abs() < 1e-6);
        assert_eq!((verdict.tokens, verdict.elapsed, verdict.delivery), (21, 11 * MS, MS));
        assert_eq!(verdict.waits_us.max() / 1_000, 11);
    }

    #[test]
    fn the_worst_window_is_found_in_the_middle() {
        // Long idle, then 12 tokens within one millisecond: one more than 10 + 1. Every wider window is within the law.
        let verdict = judge(&LAW, &seen(&[(0, 1), (500, 6), (501, 6), (900, 1)])).unwrap();
        // The delivery time of a millisecond explains one token.
        assert_eq!((verdict.excess_admitted, verdict.excess_arrived), (1, 0));
        assert!(!verdict.holds(&LAW));
    }

    #[test]
    fn every_window_is_looked_at() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let mut now = 0;
            let run: Vec<(u64, u64)> = (0..20)
                .map(|_| {
                    now += random.u64(0..6);
                    (now, random.u64(1..8))
                })
                .collect();
            let windows = (0..20).flat_map(|from| (from..20).map(move |to| (from, to)));
            let over = |(from, to): (usize, usize)| {
                let tokens: u64 = run[from..=to].iter().map(|(_, cost)| cost).sum();
                tokens.saturating_sub(10 + run[to].0 - run[from].0)
            };
            assert_eq!(judge(&LAW, &seen(&run)).unwrap().excess_admitted, windows.map(over).max().unwrap());
        }
    }

    #[test]
    fn a_request_dearer_than_the_burst_may_pass_whole() {
        let verdict = judge(&LAW, &seen(&[(0, 4), (3, 9), (25, 22)])).unwrap();
        assert_eq!((verdict.achieved, verdict.excess()), (1.0, 0));
        let verdict = judge(&LAW, &seen(&[(0, 22), (5, 5)])).unwrap();
        assert_eq!((verdict.achieved, verdict.excess()), (1.0, 0));
    }

    #[test]
    fn an_admission_of_uncertain_instant_is_never_accused_wrongly() {
        let passages = |earliest, latest| {
            [Passage { tokens: 10, earliest, latest }, Passage { tokens: 2, earliest: 3 * MS, latest: 3 * MS }]
        };
        assert_eq!(excess(LAW.rate, LAW.burst, 0, passages(MS, 2 * MS).into_iter()), 0);
        assert_eq!(excess(LAW.rate, LAW.burst, 0, passages(2 * MS, 2 * MS).into_iter()), 1);
    }

    #[test]
    fn whoever_is_admitted_after_a_later_one_was_overtaken() {
        let mut seen = seen(&[(0, 1), (1, 1), (2, 1), (3, 1)]);
        for (arrival, place) in seen.arrivals.iter_mut().zip([0, 3, 1, 2]) {
            arrival.claim.place = place;
        }
        let verdict = judge(&LAW, &seen).unwrap();
        assert_eq!(verdict.overtaken, 2);
        assert!(!verdict.holds(&LAW));
    }

    #[test]
    fn the_ceiling_is_part_of_the_law() {
        let mut seen = seen(&[(0, 1)]);
        seen.in_flight_max = 21;
        assert!(!judge(&LAW, &seen).unwrap().holds(&LAW));
    }
}
