//! Every set of cancelled claims, in every order: the other claims are served as if the cancelled ones had never come.
//!
//! The results are compared with arithmetic, not with a second limiter. All cancellations happen at one instant, before
//! the front is due. If the front stays, the bucket serves the remaining claims as if they had been alone from the
//! start. If the front is cancelled, no claim has been served yet, and the remaining claims find the tokens of an idle
//! bucket: the minted ones, up to the burst.

use super::*;
use tokio_test::assert_ready_ok;

const BURST: u64 = 4;
/// Small and large costs in turn, all equal, and with giants in front, in the middle and at the back.
const LINES: [[u64; 5]; 5] = [[3, 1, 4, 1, 2], [4, 4, 4, 4, 4], [9, 1, 2, 4, 1], [2, 1, 9, 3, 1], [6, 7, 2, 1, 8]];

/// Every ordered choice of any number of `0..n`.
fn ordered_choices(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    let mut grown = 0;
    while grown < all.len() {
        let choice = all[grown].clone();
        all.extend((0..n).filter(|next| !choice.contains(next)).map(|next| [&choice[..], &[next]].concat()));
        grown += 1;
    }
    all
}

/// When each remaining claim is granted, in milliseconds, according to the arithmetic.
fn expected(costs: &[u64], leavers: &[usize], at: u64) -> Vec<(usize, u64)> {
    let front_stays = !leavers.contains(&0);
    let (mut now, mut level) = if front_stays { (0, 0) } else { (at, at.min(BURST)) };
    let staying = costs.iter().enumerate().filter(|(place, _)| !leavers.contains(place));
    let passes = |(place, &cost): (usize, &u64)| {
        let lack = cost.saturating_sub(level);
        now += lack;
        level = level + lack - cost;
        (place, now)
    };
    staying.map(passes).collect()
}

/// When each remaining claim is actually granted.
fn observed(costs: &[u64], leavers: &[usize], at: u64) -> Vec<(usize, u64)> {
    let fixture = Fixture::new(one_per_milli(BURST));
    let mut waiters: Vec<_> = costs.iter().map(|&cost| Some(fixture.enter(cost))).collect();
    fixture.pass(at as u32 * MILLI);
    for &leaver in leavers {
        waiters[leaver] = None;
    }
    let mut passed = vec![];
    for now in at..=at + costs.iter().sum::<u64>() {
        for (place, slot) in waiters.iter_mut().enumerate() {
            if slot.as_ref().is_some_and(|waiting| waiting.is_woken()) {
                let _grant = assert_ready_ok!(slot.as_mut().unwrap().poll());
                *slot = None;
                passed.push((place, now));
            }
        }
        fixture.pass(MILLI);
    }
    passed
}

#[test]
fn cancellations_in_any_order_do_not_affect_the_other_claims() {
    for costs in LINES {
        for leavers in ordered_choices(costs.len()) {
            // At once, halfway, and a moment before the front is due.
            for at in [0, costs[0] / 2, costs[0] - 1] {
                assert_eq!(
                    observed(&costs, &leavers, at),
                    expected(&costs, &leavers, at),
                    "costs {costs:?}, {leavers:?} left at {at} ms"
                );
            }
        }
    }
}

#[test]
fn cancellations_in_any_order_leave_the_same_level() {
    for costs in LINES {
        for leavers in ordered_choices(costs.len()).into_iter().filter(|leavers| leavers.len() == costs.len()) {
            let at = costs[0] - 1;
            let fixture = Fixture::new(one_per_milli(BURST));
            let mut waiters: Vec<_> = costs.iter().map(|&cost| Some(fixture.enter(cost))).collect();
            fixture.pass(at as u32 * MILLI);
            for &leaver in &leavers {
                waiters[leaver] = None;
            }
            let (available, deficiency) = (fixture.limiter.available(), fixture.limiter.deficiency());
            assert_eq!((available, deficiency), (at.min(BURST), 0), "costs {costs:?}, all left in order {leavers:?}");
        }
    }
}
