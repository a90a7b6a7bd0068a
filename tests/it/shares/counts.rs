//! What snapshots of classes show.

use crate::fixture::pending;
use std::time::Duration;
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Class, Limiter, ManualClock, Quota, Share};

const MILLI: Duration = Duration::from_millis(1);

/// A token each millisecond, from a bucket of `burst` with `level` tokens.
fn limiter(burst: u64, level: u64) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let quota = Quota::new(1, MILLI).burst(burst).initial(level);
    (Limiter::builder().quota(quota).classes().clock(clock.clone()).build().unwrap(), clock)
}

/// The largest cost that `try_acquire` grants. Takes nothing.
fn largest(class: &Class) -> u64 {
    let granted = (1..=100).rev().find(|cost| class.try_acquire(*cost).map(|mut grant| grant.settle(0)).is_ok());
    granted.unwrap_or(0)
}

#[test]
fn tokens_served_by_the_floor_without_a_wait_are_counted() {
    let (limiter, clock) = limiter(10, 10);
    let share = Share::weight(1).floor(Quota::new(1, 2 * MILLI)).ceiling(Quota::new(1, MILLI).burst(10));
    let class = limiter.class("a", share).unwrap();
    let counts = || (class.snapshot().served, class.snapshot().served_by_floor);
    let _ = class.try_acquire(3).unwrap();
    assert_eq!(counts(), (3, 3), "the floor is due as soon as the class is backlogged");
    clock.advance(MILLI);
    let _ = class.try_acquire(1).unwrap();
    assert_eq!(counts(), (4, 3), "it is due again 6 ms after the 3 tokens");
    clock.advance(7 * MILLI);
    let _ = class.try_acquire(2).unwrap();
    assert_eq!(counts(), (6, 5));
}

#[test]
fn tokens_are_available_beside_claims_that_only_a_ceiling_holds_back() {
    let (limiter, clock) = limiter(10, 10);
    let held = limiter.class("held", Share::weight(1).ceiling(Quota::new(1, 10 * MILLI).burst(2))).unwrap();
    let free = limiter.class("free", Share::weight(1)).unwrap();
    let small = limiter.class("small", Share::weight(1).ceiling(Quota::new(1, MILLI).burst(4))).unwrap();
    let _waiting = pending(held.consume(3));
    // The first two tokens of the claim are set aside.
    assert!(held.snapshot().is_held);
    for (class, available) in [(&held, 0), (&free, 8)] {
        assert_eq!((class.available(), largest(class)), (available, available), "{class:?}");
    }
    assert_eq!((limiter.available(), small.available()), (8, 4));
    assert!(small.try_acquire(5).is_err());
    let _ = free.try_acquire(7).unwrap();
    assert_eq!((free.available(), small.available(), limiter.available()), (1, 1, 1));
    let mut behind = pending(free.consume(2));
    assert_eq!((free.available(), small.available(), limiter.available()), (0, 0, 0), "a claim is in service");
    clock.advance(MILLI);
    limiter.tick();
    let _ = assert_ready_ok!(behind.poll());
    free.remove();
    clock.advance(MILLI);
    assert_eq!((free.available(), small.available()), (0, 1));
}

#[test]
fn tokens_are_not_available_beside_a_claim_below_the_same_ceiling() {
    let (limiter, _clock) = limiter(10, 10);
    let outer = limiter.class("outer", Share::weight(1).ceiling(Quota::new(1, 10 * MILLI).burst(6))).unwrap();
    let [first, second] = ["first", "second"].map(|name| outer.class(name, Share::weight(1)).unwrap());
    let _ = second.try_acquire(4).unwrap();
    assert_eq!((first.available(), second.available()), (2, 2));
    let _waiting = pending(first.consume(5));
    assert_eq!((first.available(), second.available(), outer.available()), (0, 0, 0));
    let _ = second.try_acquire(1).expect("with equal start tags, the smaller claim is first");
    assert!(second.try_acquire(1).is_err(), "`second` is ahead of `first` now");
    let free = limiter.class("free", Share::weight(1)).unwrap();
    assert_eq!((free.available(), largest(&free)), (5, 5));
}

#[test]
fn waits_are_counted_in_percentiles() {
    let (limiter, clock) = limiter(1, 0);
    let [a, b] = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).unwrap());
    assert_eq!((a.snapshot().wait_p50, a.snapshot().wait_p99), (None, None));
    let mut claims: Vec<_> = (0..50).flat_map(|_| [spawn(a.consume(1)), spawn(b.consume(1))]).collect();
    claims.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
    for _ in 0..100 {
        clock.advance(MILLI);
        limiter.tick();
    }
    claims.iter_mut().for_each(|claim| drop(assert_ready_ok!(claim.poll())));
    // `a` waited 1, 3, .. 99 ms, `b` 2, 4, .. 100 ms.
    for (class, p50, p99) in [(&a, 49, 99), (&b, 50, 100)] {
        for (bound, exact) in [(class.snapshot().wait_p50, p50 * MILLI), (class.snapshot().wait_p99, p99 * MILLI)] {
            let bound = bound.unwrap();
            assert!(exact < bound && bound <= exact * 5 / 4, "{exact:?}: {bound:?}");
        }
    }
    let _ = limiter.class("c", Share::weight(1)).unwrap().try_acquire(1);
    assert_eq!(a.snapshot().wait_p50.map(|_| ()), Some(()));
}

#[test]
fn recent_shares_are_counted_against_weights() {
    let (limiter, clock) = limiter(1, 0);
    let a = limiter.class("a", Share::weight(3)).unwrap();
    let b = limiter.class("b", Share::weight(1)).unwrap();
    let inner = a.class("inner", Share::weight(5)).unwrap();
    let mut claims: Vec<_> = (0..40).flat_map(|_| [spawn(inner.consume(1)), spawn(b.consume(1))]).collect();
    claims.iter_mut().for_each(|claim| assert_pending!(claim.poll()));
    for _ in 0..40 {
        clock.advance(MILLI);
        limiter.tick();
    }
    let recent = |class: &Class| {
        let recent = class.snapshot().recent;
        (recent.served, recent.served_to_parent, recent.weight, recent.weights)
    };
    assert_eq!((recent(&a), recent(&b), recent(&inner)), ((30, 40, 3, 4), (10, 40, 1, 4), (30, 30, 5, 5)));
    assert_eq!(a.snapshot().recent.window, 40 * MILLI);
    assert_eq!((a.snapshot().recent.received(), a.snapshot().recent.due()), (Some(0.75), 0.75));
    assert_eq!(a.snapshot().served, 0, "of the class itself, without those in it");
    b.set_share(Share::weight(7)).unwrap();
    assert_eq!(recent(&a).3, 10);
    drop(claims);
    drop(b);
    assert_eq!(recent(&a).3, 3);
    clock.advance(Duration::from_secs(10));
    assert_eq!(a.snapshot().recent.received(), None);
    inner.remove();
    assert_eq!(recent(&inner).2, 5);
    assert_eq!(inner.snapshot().recent.due(), 1.0);
}
