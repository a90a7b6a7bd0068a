//! The modes other than Balanced: Strict, and manual-only replenish.

use super::{NANO, Scene, ms, secs};
use std::task::Poll;
use tokio_test::{assert_pending, task};
use tollgate::{Bound, Limiter, ManualClock, Quota};

// ---- Strict mode -----------------------------------------------------------------------------------------------------

#[test]
fn strict_nothing_before_the_boundary_and_all_of_it_there() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).stepped());
    assert!(scene.take(10));
    for at in [ms(0), ms(1), ms(100), ms(500), ms(999), secs(1) - NANO] {
        scene.at(at);
        assert_eq!(scene.available(), 0, "at {at:?}");
        let denied = scene.refusal(1);
        assert_eq!((denied.retry_after, denied.remaining), (Some(secs(1) - at), 0), "at {at:?}");
        assert_eq!(scene.refusal(10).retry_after, Some(secs(1) - at), "ten come as early as one does");
    }
    scene.at(secs(1));
    assert_eq!(scene.available(), 10, "the budget jumps to capacity");
    assert!(scene.take(10));
}

#[test]
fn strict_a_budget_partly_used_jumps_to_capacity_and_not_beyond() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).stepped());
    let mut row = |at, before, request, after| {
        scene.at(ms(at));
        assert_eq!(scene.available(), before, "before the request at {at} ms");
        assert!(scene.take(request), "at {at} ms");
        assert_eq!(scene.available(), after, "after the request at {at} ms");
    };
    row(300, 10, 7, 3);
    row(999, 3, 1, 2);
    row(1_000, 10, 4, 6);
    row(1_700, 6, 6, 0);
    row(3_400, 10, 5, 5); // two boundaries passed: the budget is still the capacity
    row(4_000, 10, 10, 0);
}

#[test]
fn strict_boundaries_never_drift_whatever_is_taken_or_looked_at_in_between() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).stepped());
    for period in 0..50 {
        // Emptied at a different moment of each period, also after idle periods.
        let moment = secs(period * 3) + ms(period * 19);
        scene.at(moment);
        assert!(scene.take(10), "at {moment:?}");
        let boundary = secs(period * 3 + 1);
        scene.at(boundary - NANO);
        assert_eq!(scene.available(), 0, "just before {boundary:?}");
        scene.at(boundary);
        assert_eq!(scene.available(), 10, "at {boundary:?}");
    }
}

#[test]
fn strict_boundaries_never_drift_whatever_is_replenished_by_hand_in_between() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).stepped());
    for (period, hand) in (0..50).zip([1, 5, 10, 100, 3].into_iter().cycle()) {
        let start = secs(period);
        scene.at(start);
        assert!(scene.take(10), "at {start:?}");
        scene.at(start + ms(period * 19));
        scene.limiter.replenish(hand);
        assert_eq!(scene.available(), hand.min(10), "capped, and available at once");
        assert!(scene.take(hand.min(10)));
        scene.at(start + secs(1) - NANO);
        assert_eq!(scene.available(), 0, "the replenish does not bring the boundary forward");
    }
}

#[test]
fn strict_periods_are_counted_from_the_birth_of_the_limiter() {
    let clock = ManualClock::new();
    clock.advance(ms(123_456));
    let limiter = Limiter::builder().quota(Quota::new(10, secs(1)).stepped()).clock(clock.clone()).build().unwrap();
    assert!(limiter.try_acquire(10).is_ok());
    clock.advance(secs(1) - NANO);
    assert_eq!(limiter.available(), 0);
    clock.advance(NANO);
    assert_eq!(limiter.available(), 10);
}

#[test]
fn strict_consumers_wait_for_the_boundary_in_order() {
    let mut scene = Scene::new(Quota::new(10, secs(1)).stepped().initial(0));
    let limiter = scene.limiter.clone();
    let mut waiters = [7, 2, 6].map(|cost| task::spawn(limiter.consume(cost)));
    for waiting in &mut waiters {
        assert_pending!(waiting.poll());
    }
    assert_eq!(scene.limiter.estimate(1), Some(secs(2)), "behind 7 and 2 of the first period and 6 of the second");
    scene.at(secs(1) - NANO);
    scene.limiter.tick();
    assert_eq!(waiters.each_ref().map(|waiting| waiting.is_woken()), [false, false, false]);
    scene.at(secs(1));
    scene.limiter.tick();
    assert_eq!(waiters.each_ref().map(|waiting| waiting.is_woken()), [true, true, false]);
    scene.at(secs(2));
    scene.limiter.tick();
    assert!(waiters.iter_mut().all(|waiting| matches!(waiting.poll(), Poll::Ready(Ok(_)))));
}

// ---- manual-only replenish (fillDuration = 0) ------------------------------------------------------------------------

#[test]
fn manual_only_time_mints_nothing() {
    let mut scene = Scene::new(Quota::manual(10));
    assert!(scene.take(10));
    scene.at(secs(100 * 365 * 86_400));
    assert_eq!(scene.available(), 0);
    let denied = scene.refusal(1);
    assert_eq!((denied.retry_after, denied.remaining, denied.by), (None, 0, Bound::Quota(0)), "no clock can tell when");
    assert_eq!(scene.limiter.estimate(1), None);
}

#[test]
fn manual_only_replenish_is_capped_at_capacity() {
    let scene = Scene::new(Quota::manual(10).initial(3));
    scene.limiter.replenish(4);
    assert_eq!(scene.available(), 7);
    scene.limiter.replenish(4);
    assert_eq!(scene.available(), 10);
    scene.limiter.replenish(u64::MAX);
    assert_eq!(scene.available(), 10);
    scene.limiter.replenish(0);
    assert_eq!(scene.available(), 10);
    assert!(scene.take(10) && !scene.take(1));
}

#[test]
fn manual_only_replenish_wakes_pending_consumers_in_order() {
    let limiter = Scene::new(Quota::manual(10).initial(0)).limiter;
    let mut waiters = [4, 1, 3].map(|cost| task::spawn(limiter.consume(cost)));
    for waiting in &mut waiters {
        assert_pending!(waiting.poll());
    }
    let woken = |tokens| {
        limiter.replenish(tokens);
        waiters.each_ref().map(|waiting| waiting.is_woken())
    };
    assert_eq!(woken(3), [false, false, false], "enough for the two behind, but they must not overtake");
    assert_eq!(woken(1), [true, false, false]);
    assert_eq!(woken(2), [true, true, false]);
    assert_eq!(woken(2), [true, true, true]);
    assert_eq!(limiter.available(), 0);
}
