//! Cancellation at every stage: no queue loses tokens, and the claims behind move up.

use super::{costs, done, empty, full, holding, limiter, pass, spent};
use tokio_test::assert_pending;
use tokio_test::task::spawn;
use tollgate::{ConsumeError, JoinError, Limiter, ManualClock, Quota, join};

fn closed(limiter: usize) -> JoinError {
    JoinError::Refused { limiter, error: ConsumeError::Closed }
}

fn waiting(limiter: &Limiter) -> usize {
    limiter.snapshot().waiting_tasks
}

#[test]
fn a_claim_dropped_before_its_first_poll_has_no_effect() {
    let clock = ManualClock::new();
    let (a, b) = (full(&clock, 5), full(&clock, 5));
    drop(spawn(join([(&a, 5), (&b, 5)])));
    assert_eq!((a.available(), b.available()), (5, 5));
    assert_eq!((a.snapshot().tail, b.snapshot().tail), (0, 0));
}

#[test]
fn a_claim_dropped_while_it_waits_leaves_both_queues() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 5), empty(&clock, 5));
    let mut claim = spawn(join([(&a, 3), (&b, 3)]));
    assert_pending!(claim.poll());
    let (mut behind_a, mut behind_b) = (spawn(a.consume(2)), spawn(b.consume(2)));
    assert_pending!(behind_a.poll());
    assert_pending!(behind_b.poll());
    pass(2, &clock, &[&a, &b]);
    drop(claim);
    assert!(behind_a.is_woken() && behind_b.is_woken(), "the tokens of the first are there for the second");
    assert_eq!((spent(&a), spent(&b)), (2, 2));
    pass(1, &clock, &[&a, &b]);
    assert_eq!((a.available(), b.available()), (1, 1));
}

#[test]
fn a_claim_dropped_while_one_queue_holds_it_ready_leaves_that_queue() {
    let clock = ManualClock::new();
    let (a, b) = (full(&clock, 5), empty(&clock, 5));
    let mut claim = spawn(join([(&a, 5), (&b, 5)]));
    assert_pending!(claim.poll());
    let mut behind = spawn(a.consume(5));
    assert_pending!(behind.poll());
    pass(4, &clock, &[&a, &b]);
    drop(claim);
    assert!(behind.is_woken());
    assert_eq!((spent(&a), spent(&b), b.available()), (5, 0, 4));
}

#[test]
fn a_claim_dropped_in_the_middle_of_both_queues_lets_the_claims_behind_move_up() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 9), empty(&clock, 9));
    let mut waiters: Vec<_> = (0..3).map(|_| spawn(join([(&a, 2), (&b, 2)]))).collect();
    waiters.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
    drop(waiters.remove(1));
    assert_eq!((waiting(&a), waiting(&b)), (2, 2));
    pass(4, &clock, &[&a, &b]);
    assert!(waiters.iter().all(|claim| claim.is_woken()));
    assert_eq!((spent(&a), spent(&b)), (4, 4));
}

#[test]
fn a_claim_dropped_after_its_grant_and_before_its_poll_refunds_all() {
    let clock = ManualClock::new();
    let build = |quota| Limiter::builder().quota(quota).max_in_flight(8).clock(clock.clone()).build().unwrap();
    let (a, b) = (build(Quota::manual(5).initial(0)), build(Quota::manual(5).initial(0)));
    let mut claim = spawn(join([(&a, 5), (&b, 4)]));
    assert_pending!(claim.poll());
    let (mut behind_a, mut behind_b) = (spawn(a.consume(5)), spawn(b.consume(5)));
    assert_pending!(behind_a.poll());
    assert_pending!(behind_b.poll());
    a.replenish(5);
    b.replenish(5);
    assert!(claim.is_woken() && !behind_a.is_woken() && !behind_b.is_woken());
    drop(claim);
    assert!(behind_a.is_woken() && behind_b.is_woken());
    assert_eq!((spent(&a), spent(&b)), (5, 5));
    assert_eq!((a.snapshot().in_flight, b.snapshot().in_flight), (Some(5), Some(5)));
}

#[test]
fn a_giant_that_saved_above_the_burst_and_leaves_burns_what_is_above_it() {
    let clock = ManualClock::new();
    let (a, b) = (holding(&clock, 5), limiter(&clock, Quota::manual(1).initial(0)));
    let mut claim = spawn(join([(&a, 20), (&b, 1)]));
    assert_pending!(claim.poll());
    pass(15, &clock, &[&a, &b]);
    assert_eq!(a.snapshot().quotas[0].level, 20);
    drop(claim);
    assert_eq!(a.available(), 5);
}

#[test]
fn claims_dropped_in_any_order_leave_nothing_behind() {
    for drops in [[0, 0, 0, 0], [3, 2, 1, 0], [1, 1, 1, 0], [2, 0, 1, 0]] {
        let clock = ManualClock::new();
        let [a, b, c] = [1, 2, 3].map(|_| empty(&clock, 20));
        let mut waiters: Vec<_> = [[&a, &b], [&b, &c], [&c, &a], [&b, &a]]
            .map(|[one, other]| spawn(join([(one, 2), (other, 3)])))
            .into_iter()
            .collect();
        waiters.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
        for place in drops {
            pass(1, &clock, &[&a, &b, &c]);
            drop(waiters.remove(place));
        }
        for limiter in [&a, &b, &c] {
            assert_eq!((waiting(limiter), limiter.snapshot().waiting_tokens, limiter.deficiency()), (0, 0, 0));
            assert_eq!(limiter.available() + spent(limiter), 4, "{drops:?}");
        }
    }
}

#[test]
fn a_closed_limiter_is_named_and_the_other_queue_moves_on() {
    for one_that_closes in [0, 1] {
        let clock = ManualClock::new();
        let limiters = [full(&clock, 5), full(&clock, 5)];
        let _taken = limiters.each_ref().map(|limiter| limiter.try_acquire(5).unwrap());
        let open = &limiters[1 - one_that_closes];
        let mut claim = spawn(join([(&limiters[0], 5), (&limiters[1], 5)]));
        assert_pending!(claim.poll());
        let mut behind = spawn(open.consume(2));
        assert_pending!(behind.poll());
        pass(2, &clock, &[&limiters[0], &limiters[1]]);
        limiters[one_that_closes].close();
        assert!(claim.is_woken() && behind.is_woken(), "though the claim was not polled again");
        assert_eq!(done(&mut claim).unwrap_err(), closed(one_that_closes));
        assert_eq!((spent(&limiters[one_that_closes]), spent(open)), (5, 7));
    }
}

#[test]
fn a_limiter_closed_before_the_first_poll_is_named() {
    let clock = ManualClock::new();
    let (a, b) = (full(&clock, 5), full(&clock, 5));
    b.close();
    assert_eq!(done(&mut spawn(join([(&a, 1), (&b, 1)]))).unwrap_err(), closed(1));
    assert_eq!(done(&mut spawn(join([(&b, 0), (&a, 1)]))).unwrap_err(), closed(0));
    assert_eq!((spent(&a), waiting(&a)), (0, 0));
}

#[test]
fn a_claim_refused_in_the_middle_of_the_other_queue_is_skipped_there() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 5), empty(&clock, 5));
    let mut in_front = spawn(a.consume(2));
    assert_pending!(in_front.poll());
    let mut stalled = spawn(join([(&a, 2), (&b, 2)]));
    assert_pending!(stalled.poll());
    let mut behind = spawn(a.consume(1));
    assert_pending!(behind.poll());
    b.close();
    pass(3, &clock, &[&a]);
    assert!(in_front.is_woken() && behind.is_woken(), "the stalled claim takes nothing and delays no other");
    assert_eq!(spent(&a), 3);
    assert_eq!(waiting(&a), 0);
}

#[test]
fn closing_after_the_grant_leaves_it_valid() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 5), empty(&clock, 5));
    let mut claim = spawn(join([(&a, 2), (&b, 2)]));
    assert_pending!(claim.poll());
    pass(2, &clock, &[&a, &b]);
    a.close();
    b.close();
    assert_eq!(costs(&mut claim), [2, 2]);
}

#[test]
fn a_claim_polled_once_and_then_stalled_delays_no_other() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 5), empty(&clock, 5));
    let mut stalled = spawn(join([(&a, 2), (&b, 3)]));
    assert_pending!(stalled.poll());
    let mut waiters: Vec<_> = (0..10).map(|_| spawn(join([(&b, 1), (&a, 1)]))).collect();
    waiters.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
    pass(13, &clock, &[&a, &b]);
    assert!(waiters.iter().all(|claim| claim.is_woken()));
    assert_eq!((spent(&a), spent(&b)), (12, 13), "the stalled claim has its tokens, though it has not seen them");
    assert_eq!(costs(&mut stalled), [2, 3]);
}

#[test]
fn a_leaked_claim_keeps_its_place_and_nothing_else() {
    let clock = ManualClock::new();
    let (a, b) = (empty(&clock, 5), empty(&clock, 5));
    let mut leaked = spawn(join([(&a, 1), (&b, 1)]));
    assert_pending!(leaked.poll());
    std::mem::forget(leaked);
    let mut behind = spawn(join([(&a, 1), (&b, 1)]));
    assert_pending!(behind.poll());
    pass(2, &clock, &[&a, &b]);
    assert_eq!(costs(&mut behind), [1, 1]);
}
