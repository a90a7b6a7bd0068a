//! When joint claims are granted, and what they take.

use super::{MS, costs, done, empty, full, limiter, on_a_clock, pass, spent, tick};
use crate::fixture::*;

#[test]
fn three_queues_and_thirty_two_grant_together() {
    let (clock, [a, b, c]) = on_a_clock([(); 3].map(|()| empty(10)));
    let mut claim = pending(join([(&a, 3), (&b, 1), (&c, 2)]));
    pass(2, &clock, &[&a, &b, &c]);
    assert_eq!(spent(&a) + spent(&b) + spent(&c), 0);
    pass(1, &clock, &[&c, &b, &a]);
    assert_eq!(costs(&mut claim), [3, 1, 2]);

    let limiters: [Limiter; 32] = std::array::from_fn(|_| limiter(&clock, empty(40)));
    let mut claim = pending(join(std::array::from_fn::<_, 32, _>(|index| (&limiters[index], index as u64 + 1))));
    let all: Vec<&Limiter> = limiters.iter().collect();
    pass(31, &clock, &all);
    assert!(!claim.is_woken() && limiters.iter().all(|limiter| spent(limiter) == 0));
    pass(1, &clock, &all);
    assert_eq!(costs(&mut claim), std::array::from_fn(|index| index as u64 + 1));
}

#[test]
fn a_joint_claim_in_no_limiter_is_granted() {
    assert!(assert_ready!(spawn(join::<Limiter, 0>([])).poll()).unwrap().is_empty());
    assert!(tollgate::try_join::<Limiter, 0>([]).unwrap().is_empty());
}

#[test]
fn each_grant_is_settled_on_its_own() {
    let (_clock, [a, b]) = on_a_clock([full(10), full(10)]);
    let [mut of_a, mut of_b] = done(&mut spawn(join([(&a, 6), (&b, 6)]))).unwrap();
    of_a.settle(2);
    of_b.settle(9);
    assert_eq!((of_a.cost(), of_b.cost()), (2, 9));
    assert_eq!((a.available(), b.available()), (8, 1));
    assert_eq!((spent(&a), spent(&b)), (2, 9));
}

#[test]
fn queues_on_different_clocks_grant_together() {
    let (hours, minutes) = (ManualClock::new(), ManualClock::new());
    let a = limiter(&hours, Quota::per_hour(1).initial(0));
    let b = limiter(&minutes, Quota::per_minute(1).initial(0));
    let mut claim = pending(join([(&a, 1), (&b, 1)]));
    minutes.advance(Duration::from_secs(60));
    tick(&[&a, &b]);
    assert!(!claim.is_woken());
    hours.advance(Duration::from_secs(3_600));
    tick(&[&a]);
    assert!(claim.is_woken());
    assert_eq!(costs(&mut claim), [1, 1]);
}

#[test]
fn rovers_wrap_under_a_joint_claim() {
    for start in [u64::MAX - 4, i64::MAX as u64 - 4] {
        let clock = ManualClock::new();
        let build = |at| {
            let quota = Quota::per_second(1_000).burst(10).initial(0);
            Limiter::builder().quota(quota).clock(clock.clone()).rovers_at(at).build().unwrap()
        };
        let (a, b) = (build(start), build(0));
        for _ in 0..3 {
            let mut claim = pending(join([(&a, 3), (&b, 2)]));
            pass(3, &clock, &[&a, &b]);
            assert_eq!(costs(&mut claim), [3, 2]);
        }
        assert_eq!((a.available(), b.available()), (0, 3));
    }
}

/// However late the timer is, the claims that fell due meanwhile are served, as with `consume`.
#[test]
fn a_late_tick_costs_joint_claims_no_more_than_plain_ones() {
    let (clock, [a, b]) = on_a_clock([empty(1), full(1_000)]);
    let plain: Vec<_> = (0..10).map(|_| pending(a.consume(1))).collect();
    clock.advance(10 * MS);
    tick(&[&a]);
    assert_eq!(woken(&plain), 10);

    let joint: Vec<_> = (0..10).map(|_| pending(join([(&a, 1), (&b, 1)]))).collect();
    clock.advance(10 * MS);
    tick(&[&a, &b]);
    assert_eq!(woken(&joint), 10);
}
