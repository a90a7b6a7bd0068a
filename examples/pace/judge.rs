//! Checks the rate law on the grants, in exact integers.

use crate::load::Granted;
use std::time::Duration;

const SECOND: i128 = 1_000_000_000;

pub(crate) struct Law {
    /// Tokens per second.
    pub(crate) rate: u64,
    pub(crate) burst: u64,
}

pub(crate) struct Verdict {
    pub(crate) tokens: u64,
    /// Tokens granted / (burst + rate x time from the first grant to the last). At most 1 by the law. Exactly 1 if there is
    /// always a waiter and no grant is late: the last grant is then made at the instant at which its last token is minted.
    pub(crate) achieved: f64,
    /// Whole tokens above burst + rate x window, in the worst window between two grants.
    pub(crate) excess: u64,
    /// Requests granted after one that claimed later.
    pub(crate) overtaken: usize,
    /// Sorted.
    pub(crate) waits: Vec<Duration>,
}

impl Verdict {
    /// Returns `None` if there are no grants.
    pub(crate) fn of(law: &Law, mut granted: Vec<Granted>) -> Option<Self> {
        granted.sort_by_key(|grant| grant.turn);
        let (first, last) = (granted.first()?, granted.last()?);
        let tokens = granted.iter().map(|grant| grant.cost).sum();
        // The tokens of a cost above the burst are saved up, and granted as a whole.
        let dearest = granted.iter().map(|grant| grant.cost).max().unwrap_or(0).max(law.burst);
        let seconds = (last.latest - first.earliest) as f64 / 1e9;
        let mut furthest = 0;
        let overtaken = granted.iter().filter(|grant| {
            let is_overtaken = grant.place < furthest;
            furthest = furthest.max(grant.place);
            is_overtaken
        });
        let overtaken = overtaken.count();
        let wait = |grant: &Granted| Duration::from_nanos(grant.latest - grant.asked);
        let mut waits: Vec<_> = granted.iter().map(wait).collect();
        waits.sort();
        let achieved = tokens as f64 / (law.burst.max(first.cost) as f64 + law.rate as f64 * seconds);
        Some(Self { tokens, achieved, excess: excess(law.rate, dearest, &granted), overtaken, waits })
    }
}

/// The largest excess over `burst + rate x window` of all windows, each from one grant to itself or a later one.
///
/// With `before(i)` tokens granted before i, the window i..=j holds `before(j + 1) - before(i)` tokens, and the rate allows
/// `rate x (t(j) - t(i))` of them. So the worst window that ends at j begins where `before(i) - rate x t(i)` is lowest: one
/// pass covers all windows. In billionths of a token, so nothing is rounded.
fn excess(rate: u64, burst: u64, granted: &[Granted]) -> u64 {
    let minted = |nanos: u64| i128::from(rate) * i128::from(nanos);
    let (mut passed, mut lowest, mut worst) = (0, i128::MAX, 0);
    for grant in granted {
        lowest = lowest.min(passed - minted(grant.earliest));
        passed += i128::from(grant.cost) * SECOND;
        worst = worst.max(passed - minted(grant.latest) - lowest);
    }
    ((worst - i128::from(burst) * SECOND).max(0) / SECOND) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law { rate: 1_000, burst: 10 };
    const MS: u64 = 1_000_000;

    /// Grants in order: (milliseconds, cost).
    fn judge(granted: &[(u64, u64)]) -> Verdict {
        let grant = |(number, &(ms, cost)): (usize, &(u64, u64))| {
            let (place, at) = (number as u64, ms * MS);
            Granted { cost, place, turn: place, asked: 0, earliest: at, latest: at }
        };
        Verdict::of(&LAW, granted.iter().enumerate().map(grant).collect()).unwrap()
    }

    #[test]
    fn a_perfect_limiter_achieves_one() {
        let verdict = judge(&[(0, 4), (0, 6), (3, 3), (10, 7), (11, 1)]);
        assert_eq!((verdict.tokens, verdict.achieved, verdict.excess, verdict.overtaken), (21, 1.0, 0, 0));
        assert_eq!(verdict.waits[4], Duration::from_millis(11));
        // A cost above the burst may be granted as a whole.
        assert_eq!(judge(&[(0, 4), (3, 9), (25, 22)]).excess, 0);
    }

    #[test]
    fn every_window_is_looked_at() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let mut now = 0;
            let run = std::iter::repeat_with(|| {
                now += random.u64(0..6);
                (now, random.u64(1..8))
            });
            let run: Vec<(u64, u64)> = run.take(20).collect();
            let windows = (0..20).flat_map(|from| (from..20).map(move |to| (from, to)));
            let over = |(from, to): (usize, usize)| {
                let tokens: u64 = run[from..=to].iter().map(|(_, cost)| cost).sum();
                tokens.saturating_sub(10 + run[to].0 - run[from].0)
            };
            assert_eq!(judge(&run).excess, windows.map(over).max().unwrap());
        }
    }

    #[test]
    fn a_grant_of_uncertain_instant_is_never_accused_wrongly() {
        let grants = |earliest, latest| {
            let grant = Granted { cost: 10, place: 0, turn: 0, asked: 0, earliest, latest };
            [grant, Granted { cost: 2, earliest: 3 * MS, latest: 3 * MS, ..grant }]
        };
        assert_eq!(excess(LAW.rate, LAW.burst, &grants(MS, 2 * MS)), 0);
        assert_eq!(excess(LAW.rate, LAW.burst, &grants(2 * MS, 2 * MS)), 1);
    }

    #[test]
    fn a_request_granted_after_a_later_one_was_overtaken() {
        let places = [0, 3, 1, 2].into_iter().enumerate();
        let grant = |(turn, place)| Granted { cost: 1, place, turn: turn as u64, asked: 0, earliest: 0, latest: 0 };
        assert_eq!(Verdict::of(&LAW, places.map(grant).collect()).unwrap().overtaken, 2);
    }
}
