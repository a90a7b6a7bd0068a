//! What snapshots of classes show.

use crate::fixture::*;

/// A token each millisecond, from a bucket of `burst` with `level` tokens.
fn limiter(burst: u64, level: u64) -> (Limiter, ManualClock) {
    super::divided(Quota::new(1, MILLI).burst(burst).initial(level))
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
    tick_after(&clock, &limiter, MILLI);
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
fn a_class_is_not_served_what_the_classes_in_it_are() {
    let (limiter, clock) = limiter(1, 0);
    let outer = limiter.class("outer", Share::weight(1)).unwrap();
    let inner = outer.class("inner", Share::weight(1)).unwrap();
    let mut claim = pending(inner.consume(3));
    tick_after(&clock, &limiter, 3 * MILLI);
    let _ = assert_ready_ok!(claim.poll());
    assert_eq!((outer.snapshot().served, inner.snapshot().served), (0, 3));
}
