//! Claims that pass a joint claim because its other limiter has no tokens for it yet: neither costs the other anything.

use super::{MS, empty, full, holding, limiter, on_a_clock, pass, spent, tick};
use crate::fixture::*;
use std::time::SystemTime;

const SECOND: u32 = 1_000;

fn per_second(clock: &ManualClock, rate: u64, burst: u64) -> Limiter {
    limiter(clock, Quota::per_second(rate).burst(burst).initial(0))
}

/// Callers that claim again as soon as they are granted.
struct Callers<F> {
    claims: Vec<Spawn<F>>,
    granted: u64,
}

impl<T: Debug, E: Debug, F: Future<Output = Result<T, E>>> Callers<F> {
    fn new(count: usize, claim: impl Fn() -> F) -> Self {
        Self { claims: (0..count).map(|_| pending(claim())).collect(), granted: 0 }
    }

    /// Returns how many were granted and claimed again.
    fn claim_again(&mut self, claim: impl Fn() -> F) -> u64 {
        let before = self.granted;
        for place in &mut self.claims {
            while place.is_woken() {
                let granted = assert_ready_ok!(place.poll());
                drop(granted);
                self.granted += 1;
                *place = spawn(claim());
                if place.poll().is_ready() {
                    panic!("a claim was granted without waiting");
                }
            }
        }
        self.granted - before
    }
}

/// The tokens that ten plain and ten joint claims are granted in ten seconds, if all of them claim again at once.
fn share<'a, const N: usize>(clock: &ManualClock, limiters: [&'a Limiter; N], costs: [u64; N]) -> (u64, u64) {
    let claim = || join(std::array::from_fn(|index| (limiters[index], costs[index])));
    let plain = || limiters[0].consume(1);
    let (mut joint, mut others): (Callers<Join<'a, N>>, Callers<Consume<'a>>) =
        (Callers::new(10, claim), Callers::new(10, plain));
    for _ in 0..10 * SECOND {
        clock.advance(MS);
        tick(&limiters);
        while others.claim_again(plain) + joint.claim_again(claim) > 0 {}
    }
    (joint.granted, others.granted)
}

/// All tokens are there in the last millisecond of the ten seconds.
#[test]
fn a_slow_limiter_takes_nothing_from_claims_that_do_not_need_it() {
    let clock = ManualClock::new();
    let limiter = |(rate, burst)| per_second(&clock, rate, burst);
    for (bursts, costs, shares) in [
        ([1, 1], [1, 1], (500, 9_500)),
        ([10, 10], [1, 1], (500, 9_500)),
        ([100, 100], [1, 1], (500, 9_500)),
        ([10, 1], [10, 1], (500, 5_000)),
        ([100, 1], [10, 1], (500, 5_000)),
    ] {
        let (fast, slow) = (limiter((1_000, bursts[0])), limiter((50, bursts[1])));
        assert_eq!(share(&clock, [&fast, &slow], costs), shares, "bursts of {bursts:?}, costs of {costs:?}");
    }
    // Built in the opposite order, so that it comes first by its address or last.
    let (slow, fast) = (limiter((50, 1)), limiter((1_000, 1)));
    assert_eq!(share(&clock, [&fast, &slow], [1, 1]), (500, 9_500));
    let limiters = [1_000, 500, 50].map(|rate| limiter((rate, 1)));
    assert_eq!(share(&clock, limiters.each_ref(), [1, 1, 1]), (500, 9_500));
}

/// A joint claim has no need of the steps before the last one by which its slow limiter has its tokens.
#[test]
fn a_claim_takes_the_last_step_that_it_needs() {
    for steps in [Quota::new(10, HOUR).stepped(), Quota::per_calendar_hour(10)] {
        let clock = ManualClock::new();
        clock.set_wall(SystemTime::UNIX_EPOCH + 500_000 * HOUR);
        let [fast, slow] = [steps, Quota::new(2, HOUR).burst(11).initial(0)].map(|quota| limiter(&clock, quota));
        drop(fast.try_acquire(10).unwrap());
        let joint = pending(join([(&fast, 10), (&slow, 11)]));
        let others = [(); 5].map(|()| pending(fast.consume(10)));
        let granted = [(); 12].map(|()| {
            clock.advance(HOUR / 2);
            tick(&[&fast, &slow]);
            (woken(&others), joint.is_woken())
        });
        let before = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4].map(|others| (others, false));
        assert_eq!(granted[..10], before);
        assert_eq!(granted[10..], [(4, true), (5, true)]);
    }
}

/// Joint claims of the same limiters that wait behind the first delay no claim, and no grant examines them.
#[test]
fn many_joint_claims_that_wait_cost_the_others_nothing() {
    let (clock, [fast, slow]) = on_a_clock([full(1_000), Quota::manual(1).initial(0).into()]);
    let joint: Vec<_> = (0..100).map(|_| pending(join([(&fast, 1), (&slow, 1)]))).collect();
    let mut others: Vec<_> = (0..1_000).map(|_| spawn(fast.consume(1))).collect();
    others.iter_mut().for_each(|claim| drop(assert_ready_ok!(claim.poll())));
    slow.replenish(1);
    pass(1, &clock, &[&fast]);
    assert!(joint[0].is_woken() && woken(&joint) == 1, "in order, and with the next token");
}

/// One slow limiter beside the common one delays only its own joint claims.
#[test]
fn joint_claims_over_other_limiters_pass_too() {
    let (clock, [all, stuck, free]) = on_a_clock([full(10), Quota::manual(1).initial(0).into(), full(10)]);
    let waits = pending(join([(&all, 1), (&stuck, 1)]));
    let mut passes: Vec<_> = (0..10).map(|_| spawn(join([(&all, 1), (&free, 1)]))).collect();
    passes.iter_mut().for_each(|claim| drop(assert_ready_ok!(claim.poll())));
    assert!(!waits.is_woken());
    assert_eq!((spent(&all), spent(&free), spent(&stuck)), (10, 10, 0));
    stuck.replenish(1);
    pass(1, &clock, &[&all]);
    assert!(waits.is_woken());
}

#[test]
fn a_debt_charged_while_a_claim_is_aside_does_not_delay_it() {
    let (clock, [fast, slow]) = on_a_clock([full(5), Quota::new(1, 10 * MS).burst(1).initial(0).into()]);
    let mut earlier = fast.try_acquire(2).unwrap();
    let joint = pending(join([(&fast, 3), (&slow, 1)]));
    earlier.settle(22);
    pass(9, &clock, &[&fast, &slow]);
    assert!(!joint.is_woken());
    pass(1, &clock, &[&fast, &slow]);
    assert!(joint.is_woken(), "it waited before the debt");
    assert_eq!(fast.deficiency(), 10, "5 and 10 minted, 2 and 3 granted, 20 owed");
    let newcomer = pending(fast.consume(1));
    pass(10, &clock, &[&fast]);
    assert!(!newcomer.is_woken());
    pass(1, &clock, &[&fast]);
    assert!(newcomer.is_woken());
}

/// The slow limiter holds the younger claim, which is ready there, and its bucket is full. Its tokens are lost until the
/// older claim comes to the front.
#[test]
fn an_older_claim_saves_tokens_above_the_burst_only_from_when_it_comes_to_the_front() {
    let (clock, [shared, busy]) = on_a_clock([holding(5), empty(1)]);
    let never = limiter(&clock, Quota::manual(1).initial(0));
    let limiters = [&shared, &busy, &never];
    let first = pending(busy.consume(20));
    let older = pending(join([(&shared, 15), (&busy, 1)]));
    let younger = pending(join([(&shared, 1), (&never, 1)]));
    pass(20, &clock, &limiters);
    assert!(first.is_woken(), "the older claim has come to the front of both");
    pass(9, &clock, &limiters);
    assert!(!older.is_woken(), "5 tokens at 20 ms and 9 minted since");
    pass(1, &clock, &limiters);
    assert!(older.is_woken() && !younger.is_woken());
}

/// All queues are served late, 20 ms after the beginning. The older joint claim came to the front of the slow limiter at
/// 15 ms, so the fast limiter receives an update as of 15 ms. The fast limiter must grant its own claims that were due
/// before, although it learns only now that the younger joint claim was granted at 12 ms.
#[test]
fn a_late_update_does_not_count_from_an_earlier_grant() {
    let (clock, [fast, slow, other]) = on_a_clock([empty(1), empty(1), holding(1)]);
    let first = pending(slow.consume(15));
    let older = pending(join([(&fast, 3), (&slow, 1)]));
    let younger = pending(join([(&fast, 12), (&other, 1)]));
    // Due at 14 ms and, behind the older joint claim, which is granted at 17 ms, at 20 ms.
    let plain = [2, 3].map(|cost| pending(fast.consume(cost)));
    tick_after(&clock, &slow, 20 * MS);
    assert!(first.is_woken() && older.is_woken() && younger.is_woken());
    assert_eq!(plain.each_ref().map(|claim| claim.is_woken()), [true, true]);
}
