//! Joint claims with classes that are given up, forgotten, or made beside claims that ceilings hold back.

use super::timeline::{any, divided, divided_by};
use super::{MS, limiter, on_a_clock};
use crate::fixture::*;

/// Polls a joint claim once, and then neither polls nor drops it.
fn forget(joint: impl Future) {
    let mut joint = Box::pin(joint);
    assert!(joint.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::mem::forget(joint);
}

/// The claim removes its part and its place in the queue of its class one after the other. The turn of the place comes
/// between the two. (It was served for ever.)
#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_while_its_claim_is_dropped_stops_no_limiter() {
    // It advances by 100 ms at the second reading after it is armed.
    let (left, time) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let armed = Arc::clone(&left);
    let clock = ClockFn::moving(move || {
        if armed.load(Relaxed) > 0 && armed.fetch_sub(1, Relaxed) == 1 {
            time.fetch_add(100, Relaxed);
        }
        Duration::from_millis(time.load(Relaxed))
    });
    let quota = Quota::per_second(1_000).burst(10).initial(0);
    let shared = Limiter::builder().quota(quota).classes().clock(clock.clone()).build().unwrap();
    let other = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let [a, b] = ["a", "b"].map(|name| shared.class(name, Share::weight(1)).unwrap());
    let mut plain = pending(a.consume(1));
    let (b, other) = (AnyLimiter::from(b), AnyLimiter::from(other));
    let joint = pending(join([(&b, 1), (&other, 1)]));
    left.store(2, Relaxed);
    drop(joint);
    shared.tick();
    drop(assert_ready_ok!(plain.poll()));
    assert_eq!(shared.snapshot().waiting_tasks, 0);
}

/// A class whose handle is dropped ends the joint claims of it that were forgotten.
#[test]
fn forgotten_joint_claims_of_a_dropped_class_end() {
    let clock = ManualClock::new();
    let shared = divided(&clock);
    let slow = limiter(&clock, Quota::per_second(10).burst(10).initial(0));
    let other = shared.class("other", Share::weight(1)).unwrap();
    let dropped = AnyLimiter::from(shared.class("dropped", Share::weight(1)).unwrap());
    let all = AnyLimiter::from(slow.clone());
    for _ in 0..2 {
        forget(join([(&dropped, 1), (&all, 1)]));
    }
    drop(dropped);
    let mut plain: Vec<_> = (0..100).map(|_| pending(other.consume(1))).collect();
    assert_eq!((shared.snapshot().waiting_tasks, slow.snapshot().waiting_tasks), (100, 0));
    let _new = shared.class("new", Share::weight(1)).unwrap();
    for _ in 0..1_000 {
        tick_after(&clock, &shared, MS);
        slow.tick();
    }
    assert_eq!(plain.iter_mut().filter(|claim| claim.is_woken()).count(), 100);
    assert_eq!(slow.snapshot().granted, 0);
}

#[test]
fn try_join_passes_claims_that_ceilings_hold_back_as_try_acquire_does() {
    let clock = ManualClock::new();
    let shared = divided_by(&clock, Quota::per_second(100).burst(10));
    let other = limiter(&clock, Quota::per_second(10));
    let a = shared.class("a", Share::weight(1)).unwrap();
    let held = shared.class("held", Share::weight(1).ceiling(Quota::per_hour(1).burst(1))).unwrap();
    drop(held.try_acquire(1).unwrap());
    let _waits = pending(held.consume(1));
    drop(a.try_acquire(1).unwrap());
    let (joint, other) = (AnyLimiter::from(a.clone()), AnyLimiter::from(other));
    drop(try_join([(&joint, 8), (&other, 1)]).unwrap());
    assert!(try_join([(&joint, 1), (&other, 1)]).is_err());
    assert!(a.try_acquire(1).is_err());
}

/// Claims that wait aside need no positions in the sequence of tokens, so their sum is not bounded by it.
#[test]
fn joint_claims_that_want_more_tokens_than_there_are_numbers_are_counted_as_the_largest_number() {
    let (_clock, [a, b]) = on_a_clock([(); 2].map(|()| Quota::per_second(1).initial(0).into()));
    let cost = 1 << 48;
    let waits: Vec<_> = (0..(1 << 16) + 1).map(|_| pending(join([(&a, cost), (&b, cost)]))).collect();
    assert_eq!(a.snapshot().waiting_tokens, u64::MAX);
    drop(waits);
    assert_eq!((a.snapshot().waiting_tasks, a.snapshot().waiting_tokens), (0, 0));
}

/// What was set aside for the first claim goes back, and pays a part of the debt. The second claim has its tokens earlier
/// than was known when it arrived.
#[test]
fn what_was_set_aside_for_a_joint_claim_that_is_dropped_pays_a_debt_before_a_later_claim_is_granted() {
    let clock = ManualClock::new();
    let shared = divided_by(&clock, Quota::per_second(1_000).burst(4));
    let [a, b] = ["a", "b"].map(|name| AnyLimiter::from(shared.class(name, Share::weight(1)).unwrap()));
    let never = any(&limiter(&clock, Quota::manual(1).initial(0)));
    let mut earlier = shared.try_acquire(1).unwrap();
    let dropped = pending(join([(&a, 8), (&never, 1)]));
    // Four tokens are set aside, and the claim has its turn for the other four.
    tick_after(&clock, &shared, MS);
    earlier.settle(21);
    let joint = pending(join([(&b, 4), (&never, 0)]));
    assert_eq!(shared.snapshot().quotas[0].level, -20);
    drop(dropped);
    assert_eq!(shared.snapshot().quotas[0].level, -16);
    for _ in 0..20 {
        tick_after(&clock, &shared, MS);
        assert!(shared.try_acquire(1).is_err());
    }
    assert!(joint.is_woken());
}

/// The bucket fills up again after what was set aside, and is emptied: nothing of what was set aside fits into it any more.
#[test]
fn what_was_set_aside_for_a_joint_claim_does_not_come_back_on_top_of_a_burst_that_was_granted() {
    for by_class in [false, true] {
        let clock = ManualClock::new();
        let shared = divided_by(&clock, Quota::per_second(1_000).burst(4));
        let a = AnyLimiter::from(shared.class("a", Share::weight(1)).unwrap());
        let b = shared.class("b", Share::weight(1)).unwrap();
        let never = any(&limiter(&clock, Quota::manual(1).initial(0)));
        let dropped = pending(join([(&a, 8), (&never, 1)]));
        tick_after(&clock, &shared, 4 * MS);
        // The claim has had its turn for the last four, which are there for others.
        for _ in 0..4 {
            if by_class { b.try_acquire(1).unwrap().forget() } else { shared.try_acquire(1).unwrap().forget() }
        }
        drop(dropped);
        assert!(shared.try_acquire(1).is_err());
    }
}

/// What was set aside for a plain claim comes in between two steps of the quota, and is enough for the joint claim that waits
/// for the next step.
#[test]
fn what_was_set_aside_for_a_plain_claim_that_is_dropped_goes_to_the_joint_claim_that_waits_for_a_step() {
    let clock = ManualClock::new();
    let shared = divided_by(&clock, Quota::new(10, 10 * MS).burst(10).stepped());
    let other = any(&limiter(&clock, Quota::per_second(1)));
    let [a, b] = ["a", "b"].map(|name| shared.class(name, Share::weight(1)).unwrap());
    let b = AnyLimiter::from(b);
    let dropped = pending(a.consume(25));
    let joint = pending(join([(&b, 5), (&other, 1)]));
    tick_after(&clock, &shared, 5 * MS);
    assert!(!joint.is_woken());
    drop(dropped);
    assert!(shared.try_acquire(10).is_err() && joint.is_woken());
}

/// The joint claim is in front of the plain one and has no turn yet, because another class is served first.
#[test]
fn a_debt_behind_a_plain_claim_that_is_dropped_is_paid_in_the_turns_of_its_class() {
    let clock = ManualClock::new();
    let shared = divided_by(&clock, Quota::per_second(1_000).burst(4));
    let [a, b] = ["a", "b"].map(|name| shared.class(name, Share::weight(1)).unwrap());
    let own = AnyLimiter::from(a.clone());
    let other = any(&limiter(&clock, Quota::per_second(1_000)));
    let mut earlier = a.try_acquire(4).unwrap();
    let others: Vec<_> = (0..12).map(|_| pending(b.consume(1))).collect();
    let _joint = pending(join([(&own, 1), (&other, 1)]));
    let dropped = pending(a.consume(1));
    earlier.settle(9);
    drop(dropped);
    let served = [(); 12].map(|()| {
        tick_after(&clock, &shared, MS);
        woken(&others)
    });
    // The debt is paid as four at 5 ms and one at 10, in turn with the claims of the other class.
    assert_eq!(served, [1, 1, 1, 1, 1, 2, 3, 4, 5, 5, 6, 6]);
}
