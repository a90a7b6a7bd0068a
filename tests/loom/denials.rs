//! The published denial, which is repeated without the lock.

use crate::{SECOND, build, drain, empty, ends, explore, explore_bounded, taken, try_keep};
use loom::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::Arc;
use tollgate::{Limiter, ManualClock, Quota, TryAcquireError};

/// A token is replenished while the last denial is published. A caller that knows of the replenish is granted.
///
/// Plant `denial_is_not_cleared_when_the_state_changes`: the state changes, and the denial stays.
#[test]
fn a_denial_against_a_replenish() {
    explore(|race| {
        let limiter = empty(1);
        assert!(!try_keep(&limiter, 1), "the setup must cause a denial");
        let (one, other) = (limiter.clone(), limiter.clone());
        let done = Arc::new(AtomicBool::new(false));
        let replenish = race.on(&done, move |done| {
            one.replenish(1);
            done.store(true, Release);
        });
        let claim = race.actor(move || (done.load(Acquire), try_keep(&other, 1)));
        let ((), (was_done, granted)) = ends(replenish, claim);
        assert!(granted || !was_done, "denied by an outdated denial");
        assert_eq!(u64::from(granted) + drain(&limiter), 1);
    });
}

/// A grant is dropped after a denial: that takes no lock, and does not clear the denial.
///
/// Plant `denial_ignores_releases`: the denial is repeated whatever was released.
#[test]
fn a_denial_against_a_drop() {
    explore(|race| {
        let limiter = build(Limiter::builder().quota(Quota::manual(2)).max_in_flight(1));
        let grant = taken(&limiter, 1);
        assert!(!try_keep(&limiter, 1), "the setup must cause a denial");
        let done = Arc::new(AtomicBool::new(false));
        let release = race.on(&done, move |done| {
            drop(grant);
            done.store(true, Release);
        });
        let claim = race.on(&limiter, move |limiter| (done.load(Acquire), try_keep(limiter, 1)));
        let ((), (was_done, granted)) = ends(release, claim);
        assert!(granted || !was_done, "denied by an outdated denial");
    });
}

/// A denial is overwritten by the next while another thread reads it: the parts of the answer belong together.
///
/// Plants `denial_version_is_checked_only_once`: the version is not checked again;
/// `denial_is_overwritten_without_a_mark`: the version does not show that a write is in progress.
///
/// Bounded: each of the reader's eight loads has two possible values.
#[test]
fn a_denial_against_the_next() {
    explore_bounded(Some(2), |race| {
        let quota = Quota::per_second(1).burst(4).initial(1);
        let limiter = Limiter::builder().quota(quota).clock(ManualClock::new()).build().unwrap();
        assert_eq!(denied(&limiter), (1, 1));
        let next = race.on(&limiter, |limiter| {
            assert!(try_keep(limiter, 1));
            denied(limiter)
        });
        let again = race.on(&limiter, denied);
        assert_eq!(next.join().unwrap(), (0, 2));
        let answer = again.join().unwrap();
        assert!(answer == (1, 1) || answer == (0, 2), "torn: {answer:?}");
    });
}

/// The denial of a claim on two tokens: the tokens available, and the seconds to wait.
fn denied(limiter: &Limiter) -> (u64, u64) {
    let Err(TryAcquireError::Denied(denied)) = limiter.try_acquire(2) else { panic!("the setup must cause a denial") };
    let wait = denied.retry_after.expect("the denial has a retry_after");
    assert_eq!(wait.as_nanos() % SECOND.as_nanos(), 0);
    (denied.remaining, wait.as_secs())
}
