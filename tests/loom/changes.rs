//! Changes of the rules, against those who claim without the lock and those who wait.

use crate::{SECOND, build, drain, empty, explore, is_served, try_keep, waiting};
use loom::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::sync::Arc;
use std::task::Poll;
use tokio_test::task;
use tollgate::{ConsumeError, Limiter, ManualClock, Quota};

/// Four tokens, all published.
fn published() -> Limiter {
    let limiter = build(Limiter::builder().quota(Quota::per_second(4)).stride(4));
    limiter.tick();
    limiter
}

/// The rate changes while somebody claims without the lock: the level stays what it is.
///
/// Plant `retract_stores_the_tail`: what is published is taken back by a store, over a claim made meanwhile.
#[test]
fn set_quota_against_a_claim_without_the_lock() {
    explore(|race| {
        let limiter = published();
        let other = limiter.clone();
        let claim = race.actor(move || try_keep(&other, 1));
        let other = limiter.clone();
        let change = race.actor(move || other.set_quota(0, Quota::per_second(1).burst(4)).unwrap());
        assert!(claim.join().unwrap(), "there was enough, before and after");
        change.join().unwrap();
        assert_eq!(drain(&limiter), 3);
    });
}

/// The burst is lowered to one while somebody claims without the lock: after the change, one token passes.
///
/// Plant `set_quota_without_retract`: what was published stays so.
#[test]
fn a_smaller_burst_against_a_claim_without_the_lock() {
    explore(|race| {
        let limiter = published();
        let other = limiter.clone();
        let claim = race.actor(move || try_keep(&other, 1));
        let other = limiter.clone();
        let change = race.actor(move || {
            other.set_quota(0, Quota::per_second(1)).unwrap();
            drain(&other)
        });
        let (claimed, after) = (claim.join().unwrap(), change.join().unwrap());
        assert!(after <= 1, "{after} at once from a burst of 1");
        assert!(claimed || after == 1, "the one token was lost");
        assert_eq!(limiter.available(), 0);
    });
}

/// While somebody claims without the lock, somebody else pauses, says so, and tries. Nobody passes who was told.
///
/// Plants `retract_tries_once`: a claim made meanwhile leaves the rest published; `pause_without_retract`.
#[test]
fn a_pause_against_a_claim_without_the_lock() {
    nobody_passes_after(|limiter| limiter.pause_for(SECOND));
}

/// The same for the end of it all.
///
/// Plants `retract_tries_once` and `close_without_retract`.
#[test]
fn close_against_a_claim_without_the_lock() {
    nobody_passes_after(Limiter::close);
}

fn nobody_passes_after(stop: fn(&Limiter)) {
    explore(move |race| {
        let limiter = published();
        let told = Arc::new(AtomicU64::new(0));
        let (ear, other) = (told.clone(), limiter.clone());
        let claim = race.actor(move || {
            let told = ear.fetch_add(0, AcqRel) == 1;
            (told, try_keep(&other, 1))
        });
        let stopper = race.actor(move || {
            stop(&limiter);
            told.fetch_add(1, AcqRel);
            drain(&limiter)
        });
        assert_ne!(claim.join().unwrap(), (true, true), "passed after it was told to stop");
        assert_eq!(stopper.join().unwrap(), 0, "passed after it had stopped everybody");
    });
}

/// A claim enters the line while it is closed: nobody is left behind.
///
/// Plant `claim_enters_after_the_check`.
#[test]
fn close_against_enqueue() {
    explore(|race| {
        let limiter = empty(1);
        let mut claim = task::spawn(limiter.clone().consume_owned(1));
        let enter = race.actor(move || {
            let answered = claim.poll().map(|answer| answer.is_ok());
            (answered, claim)
        });
        let other = limiter.clone();
        let close = race.actor(move || other.close());
        let (answered, mut claim) = enter.join().unwrap();
        close.join().unwrap();
        let closed = match answered {
            Poll::Ready(granted) => !granted,
            Poll::Pending => claim.is_woken() && matches!(claim.poll(), Poll::Ready(Err(ConsumeError::Closed))),
        };
        assert!(closed, "left behind in a closed line: {answered:?}");
    });
}

/// A waiter's token is added while the line is closed: it was granted and hears so, or it was not and hears that.
///
/// Plant `granted_waiter_hears_closed`: who was granted and has not looked yet hears `Closed`.
#[test]
fn close_against_grant() {
    explore(|race| {
        let limiter = empty(1);
        let mut waiter = waiting(&limiter, 1);
        let other = limiter.clone();
        let grant = race.actor(move || other.replenish(1));
        let other = limiter.clone();
        let close = race.actor(move || other.close());
        grant.join().unwrap();
        close.join().unwrap();
        assert!(waiter.is_woken());
        let granted = is_served(&mut waiter);
        assert_eq!(limiter.snapshot().granted, u64::from(granted));
    });
}

/// A waiter's token is added while somebody pauses: it passes before the pause, or when that is over, and no sooner.
///
/// Plant `waiters_ignore_the_pause`.
#[test]
fn a_pause_against_grant() {
    explore(|race| {
        let clock = ManualClock::new();
        let quota = Quota::manual(1).initial(0);
        let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
        let mut waiter = waiting(&limiter, 1);
        let other = limiter.clone();
        let grant = race.actor(move || other.replenish(1));
        let other = limiter.clone();
        let pause = race.actor(move || {
            other.pause_for(SECOND);
            other.snapshot().granted == 1
        });
        grant.join().unwrap();
        let before = pause.join().unwrap();
        assert_eq!(is_served(&mut waiter), before, "passed during the pause");
        clock.advance(SECOND);
        limiter.tick();
        assert!(before || is_served(&mut waiter), "the pause is over");
    });
}
