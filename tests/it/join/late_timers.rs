//! A timer that is late, by many grants: joint claims over several sets have their own instants all the same.

use super::{on_a_clock, tick};
use crate::fixture::*;

/// Time passes for this long, in nanoseconds.
const SPAN: u32 = 100_000;

/// The tokens that four limiters grant, in a row of which each two neighbours have a set of joint claims, if they are served
/// every `step` nanoseconds.
fn granted(burst: u64, costs: [u64; 2], with_plain: bool, step: u32) -> Vec<u64> {
    let quotas = [900, 500, 1_000, 700].map(|period| Quota::new(1, period * NANO).burst(burst).into());
    let (clock, limiters) = on_a_clock(quotas);
    let pairs = (0..300).map(|claim| [&limiters[claim % 3], &limiters[claim % 3 + 1]]);
    // Claims that are granted and not seen are refunded when they are dropped.
    let joint: Vec<_> = pairs.map(|[one, other]| pending_or_done(join([(one, costs[0]), (other, costs[1])]))).collect();
    let plain = limiters.iter().flat_map(|limiter| (0..30).map(move |_| pending_or_done(limiter.consume(2))));
    let plain: Vec<_> = plain.take(if with_plain { usize::MAX } else { 0 }).collect();
    for _ in 0..SPAN / step {
        clock.advance(step * NANO);
        tick(&limiters.each_ref());
    }
    let granted = limiters.iter().map(|limiter| limiter.snapshot().granted).collect();
    drop((joint, plain));
    granted
}

fn pending_or_done<F: Future>(future: F) -> Spawn<F>
where
    F::Output: Debug,
{
    let mut future = spawn(future);
    drop(future.poll());
    future
}

#[test]
fn a_late_timer_grants_as_many_joint_claims_of_each_set_as_timers_in_time() {
    for (burst, costs) in [(1, [1, 1]), (10, [5, 3]), (2, [24, 4])] {
        for with_plain in [false, true] {
            let in_time = granted(burst, costs, with_plain, 100);
            for late in [2_000, 10_000, SPAN] {
                let name = format!("burst {burst}, {costs:?}, plain {with_plain}, {late} ns late");
                assert_eq!(granted(burst, costs, with_plain, late), in_time, "{name}");
            }
        }
    }
}

/// The tokens that two limiters grant to joint claims and to plain claims in one of them, each of which comes after ten joint
/// ones: the next joint claim waits for its turn behind it.
fn granted_with_turns(periods: [u32; 2], costs: [u64; 2], plain: usize, step: u32) -> u64 {
    let (clock, limiters) = on_a_clock(periods.map(|period| Quota::new(1, period * NANO).burst(4).into()));
    let [one, other] = &limiters;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let joint = (0..10).map(|_| pending_or_done(join([(one, costs[0]), (other, costs[1])])));
        waiting.push((joint.collect::<Vec<_>>(), pending_or_done(limiters[plain].consume(2))));
    }
    for _ in 0..SPAN / step {
        clock.advance(step * NANO);
        tick(&[one, other]);
    }
    let granted = limiters.iter().map(|limiter| limiter.snapshot().granted).sum();
    drop(waiting);
    granted
}

#[test]
fn a_late_timer_finds_the_turn_of_each_joint_claim_at_its_instant() {
    for (periods, costs) in [([700, 300], [1, 5]), ([300, 1_000], [5, 1]), ([300, 500], [2, 2])] {
        for plain in [0, 1] {
            let in_time = granted_with_turns(periods, costs, plain, 100);
            let late = granted_with_turns(periods, costs, plain, SPAN);
            assert_eq!(late, in_time, "{periods:?}, {costs:?}, plain claims in {plain}");
        }
    }
}
