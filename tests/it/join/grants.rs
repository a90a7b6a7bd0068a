//! When joint claims are granted, and what they take.

use super::{MS, costs, done, empty, full, limiter, pass, spent, tick};
use std::time::Duration;
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready};
use tollgate::{Join, Limiter, ManualClock, Quota, join};

#[test]
fn a_joint_claim_is_granted_at_once_if_all_tokens_are_available() {
    let clock = ManualClock::new();
    let (a, b) = (full(&clock, 5), full(&clock, 9));
    let mut claim = spawn(join([(&a, 2), (&b, 9)]));
    assert_eq!(costs(&mut claim), [2, 9]);
    assert_eq!((a.available(), b.available()), (3, 0));
    assert_eq!((spent(&a), spent(&b)), (2, 9));
}

#[test]
fn a_joint_claim_waits_for_the_slower_limiter() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 5), empty(&clock, 5));
    let mut claim = spawn(join([(&a, 2), (&b, 4)]));
    assert_pending!(claim.poll());
    pass(3, &clock, &[&a, &b]);
    assert!(!claim.is_woken(), "2 of 2 in one, 3 of 4 in the other");
    assert_pending!(claim.poll());
    pass(1, &clock, &[&a, &b]);
    assert!(claim.is_woken());
    assert_eq!(costs(&mut claim), [2, 4]);
    assert_eq!((a.available(), b.available()), (2, 0));
}

#[test]
fn either_queue_can_be_the_slower_one_and_be_served_first_or_last() {
    for (costs_of, order) in [([4, 1], [0, 1]), ([4, 1], [1, 0]), ([1, 4], [0, 1]), ([1, 4], [1, 0])] {
        let clock = ManualClock::new();
        let limiters = [empty(&clock, 5), empty(&clock, 5)];
        let mut claim = spawn(join([(&limiters[0], costs_of[0]), (&limiters[1], costs_of[1])]));
        assert_pending!(claim.poll());
        let looked_at = order.map(|index: usize| &limiters[index]);
        pass(3, &clock, &looked_at);
        assert!(!claim.is_woken());
        pass(1, &clock, &looked_at);
        assert!(claim.is_woken(), "{costs_of:?} {order:?}");
        assert_eq!(costs(&mut claim), costs_of);
    }
}

#[test]
fn nothing_is_taken_early_from_the_queue_that_is_ready_first() {
    let clock = ManualClock::new();
    let (a, b) = (full(&clock, 5), empty(&clock, 20));
    let mut claim = spawn(join([(&a, 5), (&b, 20)]));
    assert_pending!(claim.poll());
    pass(19, &clock, &[&a, &b]);
    assert_eq!((spent(&a), spent(&b)), (0, 0));
    assert_eq!(a.snapshot().quotas[0].level, 5, "the tokens are kept, up to the burst");
    pass(1, &clock, &[&a, &b]);
    assert_eq!((spent(&a), spent(&b)), (5, 20));
    assert_eq!((a.available(), b.available()), (0, 0), "the rate law of the first limiter counts from this instant");
    assert_eq!(costs(&mut claim), [5, 20]);
    pass(3, &clock, &[&a, &b]);
    assert_eq!((a.available(), b.available()), (3, 3));
}

#[test]
fn a_held_giant_saves_up_its_cost_and_not_a_token_more() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 5), empty(&clock, 50));
    let mut claim = spawn(join([(&a, 12), (&b, 30)]));
    assert_pending!(claim.poll());
    pass(29, &clock, &[&a, &b]);
    assert_eq!(a.snapshot().quotas[0].level, 12);
    pass(1, &clock, &[&a, &b]);
    assert_eq!(costs(&mut claim), [12, 30]);
    assert_eq!((a.available(), b.available()), (0, 0));
}

#[test]
fn plain_claims_pass_a_joint_one_only_until_it_is_held() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 10), empty(&clock, 10));
    let mut first = spawn(a.consume(1));
    assert_pending!(first.poll());
    let mut second = spawn(join([(&b, 3), (&a, 1)]));
    assert_pending!(second.poll());
    let (mut third, mut other) = (spawn(a.consume(1)), spawn(b.consume(1)));
    assert_pending!(third.poll());
    assert_pending!(other.poll());
    let mut fourth = spawn(join([(&a, 1), (&b, 1)]));
    assert_pending!(fourth.poll());

    pass(2, &clock, &[&a, &b]);
    assert!(first.is_woken() && other.is_woken(), "while the first waited, the second was set aside in b");
    assert!(third.is_woken() && !second.is_woken(), "b mints the three tokens of the second until 4 ms");
    pass(2, &clock, &[&a, &b]);
    assert!(second.is_woken() && !fourth.is_woken());
    pass(1, &clock, &[&a, &b]);
    assert!(fourth.is_woken());
    assert_eq!((spent(&a), spent(&b)), (4, 5));
}

#[test]
fn no_claim_overtakes_a_held_joint_claim() {
    let clock = ManualClock::new();
    let (a, b) = (full(&clock, 10), empty(&clock, 10));
    let mut held = spawn(join([(&a, 1), (&b, 1)]));
    assert_pending!(held.poll());
    assert_eq!(a.available(), 0);
    assert!(a.try_acquire(1).is_err());
    let mut behind = spawn(a.consume(1));
    assert_pending!(behind.poll());
    pass(1, &clock, &[&b]);
    assert!(held.is_woken() && behind.is_woken(), "the commit has the other queue served");
}

#[test]
fn three_queues_and_thirty_two_grant_together() {
    let clock = ManualClock::new();
    let [a, b, c] = [1, 2, 3].map(|_| empty(&clock, 10));
    let mut claim = spawn(join([(&a, 3), (&b, 1), (&c, 2)]));
    assert_pending!(claim.poll());
    pass(2, &clock, &[&a, &b, &c]);
    assert_eq!(spent(&a) + spent(&b) + spent(&c), 0);
    pass(1, &clock, &[&c, &b, &a]);
    assert_eq!(costs(&mut claim), [3, 1, 2]);

    let limiters: [Limiter; 32] = std::array::from_fn(|_| empty(&clock, 40));
    let mut claim = spawn(join(std::array::from_fn::<_, 32, _>(|index| (&limiters[index], index as u64 + 1))));
    assert_pending!(claim.poll());
    let all: Vec<&Limiter> = limiters.iter().collect();
    pass(31, &clock, &all);
    assert!(!claim.is_woken() && limiters.iter().all(|limiter| spent(limiter) == 0));
    pass(1, &clock, &all);
    assert_eq!(costs(&mut claim), std::array::from_fn(|index| index as u64 + 1));
}

#[test]
fn a_joint_claim_in_one_limiter_is_a_plain_one() {
    let clock = ManualClock::new();
    let a = full(&clock, 2);
    assert_eq!(costs(&mut spawn(join([(&a, 2)]))), [2]);
    let mut waiting = spawn(join([(&a, 1)]));
    assert_pending!(waiting.poll());
    pass(1, &clock, &[&a]);
    assert!(waiting.is_woken());
    assert_eq!(costs(&mut waiting), [1]);
}

#[test]
fn a_joint_claim_in_no_limiter_is_granted() {
    assert!(assert_ready!(spawn(join::<Limiter, 0>([])).poll()).unwrap().is_empty());
    assert!(tollgate::try_join::<Limiter, 0>([]).unwrap().is_empty());
}

#[test]
fn a_member_of_cost_zero_changes_nothing_and_never_waits() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 5), limiter(&clock, Quota::manual(1).initial(0)));
    let mut in_front = spawn(b.consume(1));
    assert_pending!(in_front.poll());
    let mut claim = spawn(join([(&b, 0), (&a, 2)]));
    assert_pending!(claim.poll());
    assert_eq!(b.snapshot().waiting_tasks, 1);
    pass(2, &clock, &[&a]);
    assert!(claim.is_woken());
    assert_eq!(costs(&mut claim), [0, 2]);
    assert_eq!((spent(&a), spent(&b)), (2, 0));
    assert_eq!(
        costs(&mut spawn(join([(&a, 0), (&b, 0)]))),
        [0, 0],
        "though a claim waits in one and the other is empty"
    );
}

#[test]
fn each_grant_is_settled_on_its_own() {
    let clock = ManualClock::new();
    let (a, b) = (full(&clock, 10), full(&clock, 10));
    let [mut of_a, mut of_b] = done(&mut spawn(join([(&a, 6), (&b, 6)]))).unwrap();
    of_a.settle(2);
    of_b.settle(9);
    assert_eq!((of_a.cost(), of_b.cost()), (2, 9));
    assert_eq!((a.available(), b.available()), (8, 1));
    assert_eq!((spent(&a), spent(&b)), (2, 9));
}

#[test]
fn a_refund_in_one_queue_grants_the_joint_claim_in_all() {
    let clock = ManualClock::new();
    let (a, b) = (limiter(&clock, Quota::manual(5)), full(&clock, 5));
    let mut grant = a.try_acquire(5).unwrap();
    let mut claim = spawn(join([(&b, 1), (&a, 3)]));
    assert_pending!(claim.poll());
    grant.settle(2);
    assert!(claim.is_woken());
    assert_eq!(costs(&mut claim), [1, 3]);
}

#[test]
fn grants_of_capped_limiters_release_themselves_one_by_one() {
    let clock = ManualClock::new();
    let capped =
        || Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(4).clock(clock.clone()).build().unwrap();
    let (a, b) = (capped(), capped());
    let [of_a, of_b] = done(&mut spawn(join([(&a, 4), (&b, 3)]))).unwrap();
    let mut next = spawn(join([(&b, 2), (&a, 2)]));
    assert_pending!(next.poll());
    drop(of_a);
    assert!(!next.is_woken());
    assert_eq!(
        (a.snapshot().in_flight, b.snapshot().in_flight),
        (Some(0), Some(3)),
        "no token of a is in flight while it waits"
    );
    drop(of_b);
    assert!(next.is_woken());
    let grants = done(&mut next).unwrap();
    assert_eq!((a.snapshot().in_flight, b.snapshot().in_flight), (Some(2), Some(2)));
    drop(grants);
    assert_eq!((a.snapshot().in_flight, b.snapshot().in_flight), (Some(0), Some(0)));
}

#[test]
fn queues_on_different_clocks_grant_together() {
    let (hours, minutes) = (ManualClock::new(), ManualClock::new());
    let a = limiter(&hours, Quota::per_hour(1).initial(0));
    let b = limiter(&minutes, Quota::per_minute(1).initial(0));
    let mut claim = spawn(join([(&a, 1), (&b, 1)]));
    assert_pending!(claim.poll());
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
            let mut claim = spawn(join([(&a, 3), (&b, 2)]));
            assert_pending!(claim.poll());
            pass(3, &clock, &[&a, &b]);
            assert_eq!(costs(&mut claim), [3, 2]);
        }
        assert_eq!((a.available(), b.available()), (0, 3));
    }
}

/// However late the timer is, the claims that fell due meanwhile are served, as with `consume`.
#[test]
fn a_late_tick_costs_joint_claims_no_more_than_plain_ones() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 1), full(&clock, 1_000));
    let mut plain: Vec<_> = (0..10).map(|_| spawn(a.consume(1))).collect();
    plain.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
    clock.advance(10 * MS);
    tick(&[&a]);
    assert_eq!(plain.iter().filter(|claim| claim.is_woken()).count(), 10);

    let mut joint: Vec<_> = (0..10).map(|_| spawn(join([(&a, 1), (&b, 1)]))).collect();
    joint.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
    clock.advance(10 * MS);
    tick(&[&a, &b]);
    assert_eq!(joint.iter().filter(|claim| claim.is_woken()).count(), 10);
}

#[test]
fn a_joint_claim_is_send_sync_and_unpin() {
    fn all<T: Send + Sync + Unpin>() {}
    all::<Join<'_, 3>>();
}
