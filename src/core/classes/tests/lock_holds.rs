//! Calls that look at many classes, debts or waiters release the lock now and then.

use super::bounded_work::{FEW, classes, hundred};
use super::pending;
use crate::core::steps;
use crate::{Clock, Limiter, Quota, Share, TryAcquireError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_test::task::spawn;

/// Counts its readings, and notes the most steps between two of them. It is read whenever the lock is to be taken, and stands
/// still until the test moves it, which limiters do not learn.
#[derive(Debug, Default)]
struct StepClock {
    most: AtomicU64,
    readings: AtomicU64,
    secs: AtomicU64,
}

impl Clock for &'static StepClock {
    fn now(&self) -> Duration {
        self.most.fetch_max(steps::take(), Ordering::Relaxed);
        self.readings.fetch_add(1, Ordering::Relaxed);
        Duration::from_secs(self.secs.load(Ordering::Relaxed))
    }

    fn is_manual(&self) -> bool {
        true
    }
}

impl StepClock {
    fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    /// The most steps of `act` between two readings.
    fn most_of<R>(&'static self, act: impl FnOnce() -> R) -> u64 {
        self.most_and_holds_of(act).0
    }

    /// Also how often `act` took the lock, if it took it.
    fn most_and_holds_of<R>(&'static self, act: impl FnOnce() -> R) -> (u64, u64) {
        self.now();
        self.most.store(0, Ordering::Relaxed);
        self.readings.store(0, Ordering::Relaxed);
        drop(act());
        let holds = self.readings.load(Ordering::Relaxed);
        self.now();
        (self.most.load(Ordering::Relaxed), holds)
    }
}

/// A limiter with classes, and its clock.
fn divided(quota: Quota) -> (&'static StepClock, Limiter) {
    let clock = StepClock::new();
    (clock, Limiter::builder().quota(quota).classes().clock(clock).build().expect("valid"))
}

#[test]
fn the_wait_behind_a_long_queue_is_looked_at_in_steps() {
    let clock = StepClock::new();
    let builder = Limiter::builder().quota(Quota::per_second(100).burst(20)).quota(Quota::per_second(9).stepped());
    let limiter = builder.clock(clock).build().expect("valid");
    while limiter.try_acquire(1).is_ok() {}
    let mut waiting: Vec<_> = (0..40_000).map(|_| pending(limiter.consume(1))).collect();
    let wait = Some(Duration::from_secs(4_445));
    let calls: [&dyn Fn() -> bool; 3] = [
        &|| limiter.estimate(1) == wait,
        &|| {
            limiter
                .try_acquire(1)
                .is_err_and(|error| matches!(error, TryAcquireError::Denied(denied) if denied.retry_after == wait))
        },
        &|| spawn(limiter.consume(1).within(Duration::from_secs(1))).poll().is_ready(),
    ];
    for call in calls {
        // Voids what is known of the wait.
        drop(waiting.swap_remove(5_000));
        let (most, holds) = clock.most_and_holds_of(|| assert!(call()));
        assert!(
            (16_384..=16_384 + 20_000 + FEW).contains(&most) && holds == 3,
            "{most} claims, {holds} holds of the lock"
        );
        let (most, holds) = clock.most_and_holds_of(|| assert!(call()));
        assert!(most <= FEW && holds == 1, "{most} claims, {holds} holds of the lock");
        let last = pending(limiter.consume(1));
        waiting.push(last);
    }
}

#[test]
fn the_debts_of_classes_are_charged_at_once_and_taken_off_in_steps() {
    let (clock, limiter) = divided(Quota::per_second(100).burst(3_000).initial(1_000));
    let classes = classes(&limiter, 1_000);
    let mut grants: Vec<_> = classes.iter().map(|class| class.try_acquire(1).expect("there")).collect();
    let waiting = pending(limiter.consume(1));
    grants.iter_mut().for_each(|grant| grant.settle(2));
    let most = clock.most_of(|| drop(waiting));
    assert!((256..=256 + FEW).contains(&most), "{most} debts while the lock was held");
    assert!(clock.most_of(|| assert_eq!(limiter.deficiency(), 1_000)) <= 256 + FEW);
    limiter.replenish(2_000);
    assert!(clock.most_of(|| assert!(classes.iter().all(|class| class.try_acquire(1).is_ok()))) <= FEW);
    assert!(limiter.try_acquire(1).is_err());
}

/// A call that serves the last waiter finds debts that were charged and are not taken off yet. They have no turn.
#[test]
fn debts_that_the_call_itself_has_charged_hold_no_claim_back() {
    let (clock, limiter) = divided(Quota::per_second(2_000));
    let classes = classes(&limiter, 1_000);
    let capped = limiter.class("capped", Share::weight(1).ceiling(Quota::per_second(2_000))).expect("free");
    let mut grants: Vec<_> = classes.iter().map(|class| class.try_acquire(1).expect("there")).collect();
    limiter.try_acquire(1_000).expect("there").forget();
    let mut waiting = pending(limiter.consume(1));
    grants.iter_mut().for_each(|grant| grant.settle(2));
    clock.secs.store(5, Ordering::Relaxed);
    assert!(capped.try_acquire(1).is_ok());
    assert!(waiting.poll().is_ready());
}

#[test]
fn floors_that_exceed_the_rate_are_scaled_in_steps() {
    let (clock, limiter) = divided(Quota::per_second(1_000).burst(10).initial(0));
    let share = Share::weight(1).floor(Quota::per_second(1));
    let classes: Vec<_> = (0..1_000).map(|name| limiter.class(name.to_string(), share).expect("fits")).collect();
    let _waiting: Vec<_> = classes.iter().map(|class| pending(class.consume(5))).collect();
    let check = |is_scaled: bool| {
        let mut state = limiter.core().state.lock();
        let tree = &state.classes_mut().expect("built with classes").scheduler.tree;
        let floors = (0..tree.len()).filter_map(|id| tree.rare[id].floor.as_ref());
        floors.for_each(|floor| {
            assert_eq!(floor.applied, tree.scaled(floor.rate));
            assert_eq!(floor.applied != floor.rate, is_scaled);
        });
    };
    for (rate, is_scaled) in [(100, true), (50, true), (1_000, false), (500, true)] {
        let quota = Quota::per_second(rate).burst(10);
        let most = clock.most_of(|| limiter.set_quota(0, quota).expect("no ceiling"));
        assert!((256..=256 + FEW).contains(&most), "{most} floors while the lock was held");
        check(is_scaled);
    }
    for (index, class) in classes.iter().enumerate() {
        assert!(clock.most_of(|| class.remove()) <= 256 + 1 + FEW);
        check(index < 499);
    }
}

#[test]
fn classes_with_scaled_floors_are_removed_together_in_steps() {
    let (clock, limiter) = divided(Quota::per_second(1_000));
    let outer = limiter.class("outer", Share::weight(1)).expect("free");
    let share = Share::weight(1).floor(Quota::per_second(1));
    let _inner: Vec<_> = (0..1_000).map(|name| outer.class(name.to_string(), share).expect("fits")).collect();
    limiter.set_quota(0, Quota::per_second(1).burst(10)).expect("no ceiling");
    let most = clock.most_of(|| outer.remove());
    assert!((256..=256 + 128 + FEW).contains(&most), "{most} classes while the lock was held");
}

#[test]
fn a_meter_looks_at_the_classes_in_steps() {
    let (clock, limiter) = divided(hundred());
    let classes = classes(&limiter, 3_000);
    let most = clock.most_of(|| assert_eq!(limiter.core().class_totals().len(), classes.len()));
    assert!((1_024..=1_024 + FEW).contains(&most), "{most} classes while the lock was held");
}

#[test]
fn the_classes_in_a_removed_class_are_removed_in_steps() {
    let (clock, limiter) = divided(hundred());
    let share = Share::weight(1);
    let outer = limiter.class("outer", share).expect("free");
    let inner: Vec<_> = (0..1_000).map(|name| outer.class(name.to_string(), share).expect("free")).collect();
    let mut waiting: Vec<_> = inner.iter().map(|class| pending(class.consume(1))).collect();
    let most = clock.most_of(|| outer.remove());
    assert!((256..=256 + FEW).contains(&most), "{most} classes while the lock was held");
    assert!(waiting.iter_mut().all(|claim| claim.poll().is_ready()));
    assert!(inner.iter().all(|class| class.try_acquire(1).is_err()));
    assert!(limiter.class("outer", share).is_ok(), "its name is free");
}
