//! Claims that pass a joint claim whose other limiter has no tokens for it yet: neither of them pays for the other.

use super::{MS, done, empty, full, limiter, pass, spent, tick};
use std::fmt::Debug;
use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Consume, Join, Limiter, ManualClock, Quota, join};

const SECOND: u32 = 1_000;

fn per_second(clock: &ManualClock, rate: u64, burst: u64) -> Limiter {
    limiter(clock, Quota::per_second(rate).burst(burst).initial(0))
}

/// Callers who claim anew as soon as they are granted.
struct Crowd<F> {
    line: Vec<Spawn<F>>,
    granted: u64,
}

impl<T: Debug, E: Debug, F: Future<Output = Result<T, E>>> Crowd<F> {
    fn new(count: usize, claim: impl Fn() -> F) -> Self {
        let mut crowd = Self { line: (0..count).map(|_| spawn(claim())).collect(), granted: 0 };
        crowd.line.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
        crowd
    }

    /// The number of those that were granted and claimed again.
    fn claim_again(&mut self, claim: impl Fn() -> F) -> u64 {
        let before = self.granted;
        for place in &mut self.line {
            while place.is_woken() {
                let granted = assert_ready_ok!(place.poll());
                drop(granted);
                self.granted += 1;
                *place = spawn(claim());
                if place.poll().is_ready() {
                    panic!("nobody is granted without waiting where all wait");
                }
            }
        }
        self.granted - before
    }
}

/// What ten plain and ten joint claims are granted in ten seconds, all of which claim again at once.
fn share<'a, const N: usize>(clock: &ManualClock, limiters: [&'a Limiter; N], costs: [u64; N]) -> (u64, u64) {
    let claim = || join(std::array::from_fn(|index| (limiters[index], costs[index])));
    let plain = || limiters[0].consume(1);
    let (mut joint, mut others): (Crowd<Join<'a, N>>, Crowd<Consume<'a>>) =
        (Crowd::new(10, claim), Crowd::new(10, plain));
    for _ in 0..10 * SECOND {
        clock.advance(MS);
        tick(&limiters);
        while others.claim_again(plain) + joint.claim_again(claim) > 0 {}
    }
    (joint.granted, others.granted)
}

/// The scenario of the issue. In the last millisecond of the ten seconds all are there.
#[test]
fn a_slow_limiter_takes_nothing_from_those_who_do_not_need_it() {
    for burst in [1, 10, 100] {
        let clock = ManualClock::new();
        let (fast, slow) = (per_second(&clock, 1_000, burst), per_second(&clock, 50, burst));
        assert_eq!(share(&clock, [&fast, &slow], [1, 1]), (500, 9_500), "bursts of {burst}");
    }
}

#[test]
fn the_order_of_the_limiters_makes_no_difference() {
    let clock = ManualClock::new();
    let (slow, fast) = (per_second(&clock, 50, 1), per_second(&clock, 1_000, 1));
    assert_eq!(share(&clock, [&fast, &slow], [1, 1]), (500, 9_500));
}

#[test]
fn three_limiters_with_bursts_of_one() {
    let clock = ManualClock::new();
    let rates = [1_000, 500, 50];
    let limiters = rates.map(|rate| per_second(&clock, rate, 1));
    assert_eq!(share(&clock, limiters.each_ref(), [1, 1, 1]), (500, 9_500));
}

#[test]
fn a_joint_claim_of_ten_among_claims_of_one() {
    for burst in [10, 100] {
        let clock = ManualClock::new();
        let (fast, slow) = (per_second(&clock, 1_000, burst), per_second(&clock, 50, 1));
        assert_eq!(share(&clock, [&fast, &slow], [10, 1]), (500, 5_000), "a burst of {burst}");
    }
}
