//! Cancellation at every stage: no queue loses tokens, and the claims behind move up.

use super::{costs, done, empty, full, holding, on_a_clock, pass, spent};
use crate::fixture::*;

fn closed(limiter: usize) -> JoinError {
    JoinError::Refused { limiter, error: ConsumeError::Closed }
}

fn waiting(limiter: &Limiter) -> u64 {
    limiter.snapshot().waiting_tasks
}

#[test]
fn a_claim_dropped_before_its_first_poll_has_no_effect() {
    let (_clock, [a, b]) = on_a_clock([full(5), full(5)]);
    drop(spawn(join([(&a, 5), (&b, 5)])));
    assert_eq!((a.available(), b.available()), (5, 5));
    assert_eq!((a.snapshot().tail, b.snapshot().tail), (0, 0));
}

#[test]
fn a_giant_that_saved_above_the_burst_and_leaves_burns_what_is_above_it() {
    let (clock, [a, b]) = on_a_clock([holding(5), Quota::manual(1).initial(0).into()]);
    let claim = pending(join([(&a, 20), (&b, 1)]));
    pass(15, &clock, &[&a, &b]);
    assert_eq!(a.snapshot().quotas[0].level, 20);
    drop(claim);
    assert_eq!(a.available(), 5);
}

#[test]
fn a_closed_limiter_is_named_and_the_other_queue_moves_on() {
    for one_that_closes in [0, 1] {
        let (clock, limiters) = on_a_clock([full(5), full(5)]);
        let _taken = limiters.each_ref().map(|limiter| limiter.try_acquire(5).unwrap());
        let open = &limiters[1 - one_that_closes];
        let mut claim = pending(join([(&limiters[0], 5), (&limiters[1], 5)]));
        let behind = pending(open.consume(2));
        pass(2, &clock, &[&limiters[0], &limiters[1]]);
        limiters[one_that_closes].close();
        assert!(claim.is_woken() && behind.is_woken(), "though the claim was not polled again");
        assert_eq!(done(&mut claim).unwrap_err(), closed(one_that_closes));
        assert_eq!((spent(&limiters[one_that_closes]), spent(open)), (5, 7));
    }
}

#[test]
fn a_limiter_closed_before_the_first_poll_is_named() {
    let (_clock, [a, b]) = on_a_clock([full(5), full(5)]);
    b.close();
    assert_eq!(done(&mut spawn(join([(&a, 1), (&b, 1)]))).unwrap_err(), closed(1));
    assert_eq!(done(&mut spawn(join([(&b, 0), (&a, 1)]))).unwrap_err(), closed(0));
    assert_eq!((spent(&a), waiting(&a)), (0, 0));
}

#[test]
fn a_claim_refused_in_the_middle_of_the_other_queue_is_skipped_there() {
    let (clock, [a, b]) = on_a_clock([empty(5), empty(5)]);
    let in_front = pending(a.consume(2));
    let _stalled = pending(join([(&a, 2), (&b, 2)]));
    let behind = pending(a.consume(1));
    b.close();
    pass(3, &clock, &[&a]);
    assert!(in_front.is_woken() && behind.is_woken(), "the stalled claim takes nothing and delays no other");
    assert_eq!(spent(&a), 3);
    assert_eq!(waiting(&a), 0);
}

#[test]
fn a_claim_over_other_limiters_takes_the_place_of_one_that_leaves() {
    let (clock, [a, b]) = on_a_clock([empty(5), full(5)]);
    let giant = pending(join([(&a, 1_000), (&b, 1)]));
    let behind = pending(join([(&a, 1)]));
    pass(5, &clock, &[&a, &b]);
    drop(giant);
    assert!(behind.is_woken());
}

#[test]
fn a_leaked_claim_keeps_its_place_and_nothing_else() {
    let (clock, [a, b]) = on_a_clock([empty(5), empty(5)]);
    let leaked = pending(join([(&a, 1), (&b, 1)]));
    std::mem::forget(leaked);
    let mut behind = pending(join([(&a, 1), (&b, 1)]));
    pass(2, &clock, &[&a, &b]);
    assert_eq!(costs(&mut behind), [1, 1]);
}

#[test]
fn a_leaked_claim_over_a_limiter_that_is_gone_takes_nothing_of_the_others() {
    let (clock, [a, b]) = on_a_clock([empty(5), full(5)]);
    std::mem::forget(pending(join([(&a, 1), (&b, 5)])));
    drop(a);
    let mut behind = pending(b.consume(6));
    pass(1, &clock, &[&b]);
    assert!(behind.is_woken());
    drop(assert_ready_ok!(behind.poll()));
    assert_eq!((spent(&b), waiting(&b)), (6, 0));
}
