//! Pauses of one key and of all keys, and in-flight caps changed at run time. The histories of `histories.rs` pause
//! too, and compare with the oracle.

use crate::fixture::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio_test::{assert_pending, assert_ready, task};
use tollgate::{Bound, ConfigError, KeyedLimiter, ManualClock, Quota, TryAcquireError};

const SECOND: Duration = Duration::from_secs(1);

fn manual(quota: Quota) -> (KeyedLimiter<u8>, ManualClock) {
    let clock = ManualClock::new();
    (KeyedLimiter::builder().quota(quota).clock(clock.clone()).shards(1).build().unwrap(), clock)
}

#[test]
fn a_pause_delays_its_key_and_no_other() {
    let (keyed, clock) = manual(Quota::per_second(10));
    keyed.pause_for(&1, 2 * SECOND);
    keyed.pause_for(&1, SECOND);
    let Err(TryAcquireError::Denied(denied)) = keyed.try_acquire(&1, 3) else { panic!("not denied") };
    assert_eq!((denied.by, denied.retry_after, denied.remaining), (Bound::Pause, Some(2 * SECOND), 0));
    assert!(keyed.try_acquire(&2, 10).is_ok());
    // A sweep does not remove the key, although it is not in debt.
    keyed.tick();
    assert_eq!(keyed.available(&1), 0);
    clock.advance(2 * SECOND);
    assert_eq!(keyed.available(&1), 10);
    keyed.tick();
    assert_eq!(keyed.snapshot().keys, 0);
}

#[test]
fn a_pause_of_all_delays_keys_of_every_kind_and_new_keys() {
    let (keyed, clock) = manual(Quota::per_second(10));
    drop(keyed.try_acquire(&1, 4).unwrap());
    keyed.set_quota_for(&2, [Quota::per_second(7), Quota::per_day(50)]).unwrap();
    let mut waiting = pending(keyed.consume(&3, 12));
    keyed.pause_all_for(3 * SECOND);
    let mut newcomer = pending(keyed.consume(&4, 1));
    clock.advance(SECOND);
    keyed.tick();
    assert_pending!(waiting.poll());
    for key in [1, 2, 5] {
        let Err(TryAcquireError::Denied(denied)) = keyed.try_acquire(&key, 1) else { panic!("not denied: {key}") };
        assert_eq!((denied.by, denied.retry_after), (Bound::Pause, Some(2 * SECOND)));
    }
    assert!(keyed.entries().all(|entry| entry.available == 0));
    clock.advance(2 * SECOND);
    keyed.tick();
    assert!(assert_ready!(waiting.poll()).is_ok() && assert_ready!(newcomer.poll()).is_ok());
    assert_eq!([1, 2, 5].map(|key| keyed.available(&key)), [10, 7, 10]);
}

#[test]
fn a_pause_is_kept_in_a_full_map_and_the_key_is_removed_after_it() {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(1)).max_keys(1).clock(clock.clone());
    let keyed = builder.build().unwrap();
    drop(keyed.try_acquire(&1, 1).unwrap());
    keyed.pause_for(&2, 3 * SECOND);
    assert!(matches!(keyed.try_acquire(&2, 1), Err(TryAcquireError::Denied(denied)) if denied.by == Bound::Pause));
    clock.advance(2 * SECOND);
    assert!(keyed.try_acquire(&1, 1).is_ok(), "the key is full again, and its entry is free or still its own");
    clock.advance(2 * SECOND);
    assert!(keyed.try_acquire(&3, 1).is_ok());
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_paused_key_are_served_at_the_end_of_the_pause() {
    let keyed = KeyedLimiter::new(Quota::per_second(100)).unwrap();
    let start = tokio::time::Instant::now();
    keyed.pause_until(&"ann", start + SECOND);
    let claims = ["ann", "bob"].map(|key| tokio::spawn(keyed.clone().consume_owned(key, 1)));
    for (claim, due) in claims.into_iter().rev().zip([0, 1_000]) {
        drop(claim.await.unwrap().unwrap());
        let waited = start.elapsed().as_millis();
        assert!((due..=due + 1).contains(&waited), "{waited} instead of {due} ms");
    }
    keyed.pause_all_until(start + 3 * SECOND);
    drop(keyed.consume(&"bob", 1).await.unwrap());
    assert!(start.elapsed() >= 3 * SECOND);
}

#[test]
fn a_key_whose_pause_has_ended_is_forgotten_when_it_is_full() {
    let (keyed, _clock) = manual(Quota::per_second(10));
    keyed.pause_for(&1, 9 * SECOND);
    keyed.set_quota_for(&2, Quota::per_second(7)).unwrap();
    keyed.pause_for(&2, 9 * SECOND);
    [1, 2, 3].iter().for_each(|key| keyed.resume(key));
    assert_eq!([1, 2, 3].map(|key| keyed.available(&key)), [10, 7, 10]);
    keyed.tick();
    assert_eq!(keyed.snapshot().keys, 1, "the key with a quota of its own is kept");
}

/// A new key finds the place of one whose pause has ended.
#[test]
fn a_key_whose_pause_has_ended_frees_its_place_in_a_full_map() {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(1)).max_keys(1).shards(1).clock(clock.clone());
    let keyed = builder.build().unwrap();
    keyed.pause_for(&1, 9 * SECOND);
    assert!(matches!(keyed.try_acquire(&2, 1), Err(TryAcquireError::TooManyKeys { .. })));
    keyed.resume(&1);
    assert!(keyed.try_acquire(&2, 1).is_ok());
}

#[test]
fn the_end_of_a_pause_asks_no_quota_of_a_key_that_is_not_stored() {
    let builder = KeyedLimiter::builder().quota_by(|_: &u8| -> Quota { panic!("asked for a quota") });
    let keyed = builder.clock(ManualClock::new()).build().unwrap();
    keyed.resume(&1);
    keyed.resume_all();
    assert_eq!(keyed.snapshot().keys, 0);
}

/// A key that is stored as nothing, as packed levels, as a custom entry and as a live entry.
#[test]
fn the_end_of_a_pause_of_all_resumes_keys_of_every_kind() {
    let (keyed, clock) = manual(Quota::per_second(10));
    drop(keyed.try_acquire(&1, 4).unwrap());
    keyed.set_quota_for(&2, [Quota::per_second(7), Quota::per_day(50)]).unwrap();
    let mut waiting = pending(keyed.consume(&3, 12));
    keyed.pause_all_for(9 * SECOND);
    clock.advance(SECOND);
    let mut newcomer = pending(keyed.consume(&4, 1));
    keyed.tick();
    assert!(!waiting.is_woken() && !newcomer.is_woken());
    keyed.resume_all();
    assert!(assert_ready!(waiting.poll()).is_ok() && assert_ready!(newcomer.poll()).is_ok());
    assert_eq!([1, 2].map(|key| keyed.available(&key)), [10, 7]);
    assert!(keyed.try_acquire(&5, 2).is_ok());
}

/// Each key is paused by itself, with and without a waiter, and all of them are paused for longer.
#[test]
fn the_pauses_of_a_key_and_of_all_keys_end_independently() {
    let (keyed, clock) = manual(Quota::per_second(10));
    let mut waiting = task::spawn(keyed.consume(&1, 1));
    [1, 2].iter().for_each(|key| keyed.pause_for(key, 3 * SECOND));
    assert_pending!(waiting.poll());
    keyed.pause_all_for(9 * SECOND);
    let estimates = || [1, 2, 3].map(|key| keyed.estimate(&key, 1).unwrap().as_secs());
    assert_eq!(estimates(), [9, 9, 9]);
    keyed.resume_all();
    assert!(!waiting.is_woken());
    assert_eq!(estimates(), [3, 3, 0]);
    keyed.pause_all_for(9 * SECOND);
    [1, 2].iter().for_each(|key| keyed.resume(key));
    assert_eq!(estimates(), [9, 9, 9]);
    clock.advance(5 * SECOND);
    keyed.resume_all();
    assert_eq!(estimates(), [0, 0, 0]);
    assert!(assert_ready!(waiting.poll()).is_ok());
}

/// The entry of a key is retired, and created again, while all keys are paused.
#[test]
fn a_key_that_waits_and_leaves_during_a_pause_of_all_is_not_paused_by_itself() {
    let (keyed, _clock) = manual(Quota::per_second(10));
    keyed.pause_all_for(9 * SECOND);
    let waiting = pending(keyed.consume(&1, 1));
    drop(waiting);
    keyed.tick();
    assert_eq!(keyed.snapshot().keys, 0);
    keyed.pause_for(&1, 3 * SECOND);
    let waiting = pending(keyed.consume(&1, 1));
    drop(waiting);
    keyed.tick();
    keyed.resume_all();
    assert_eq!(keyed.estimate(&1, 1), Some(3 * SECOND));
}

#[test]
fn a_handle_ends_the_pause_of_its_key_and_not_that_of_all_keys() {
    let (keyed, _clock) = manual(Quota::per_second(10));
    let limiter = keyed.limiter(&1).unwrap();
    limiter.pause_for(3 * SECOND);
    keyed.pause_all_for(2 * SECOND);
    limiter.resume();
    assert_eq!(limiter.estimate(1), Some(2 * SECOND));
    keyed.resume_all();
    assert!(limiter.try_acquire(1).is_ok());
}

/// The background task had its timer set to the end of the pause.
#[tokio::test(start_paused = true)]
async fn waiters_are_timed_anew_when_a_pause_ends_early() {
    let keyed = KeyedLimiter::new(Quota::per_second(1).burst(1)).unwrap();
    let start = tokio::time::Instant::now();
    keyed.pause_for(&"ann", 60 * SECOND);
    keyed.pause_all_for(90 * SECOND);
    let claims = ["ann", "bob"].map(|key| {
        let keyed = keyed.clone();
        tokio::spawn(async move {
            drop(keyed.consume(&key, 1).await.unwrap());
            drop(keyed.consume(&key, 1).await.unwrap());
            start.elapsed().as_millis()
        })
    });
    tokio::time::sleep(5 * SECOND).await;
    keyed.resume_all();
    tokio::time::sleep(5 * SECOND).await;
    keyed.resume(&"ann");
    for (claim, due) in claims.into_iter().zip([11_000, 6_000]) {
        let waited = claim.await.unwrap();
        assert!((due..=due + 100).contains(&waited), "{waited} instead of {due} ms");
    }
}

#[test]
fn a_raised_cap_serves_waiters_and_a_lowered_one_holds_them_back() {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(100)).max_in_flight(1).clock(clock.clone());
    let keyed = Arc::new(builder.build().unwrap());
    let held = keyed.try_acquire(&1, 1).unwrap();
    let mut waiting = pending(keyed.consume(&1, 1));
    keyed.set_max_in_flight(2).unwrap();
    let second = assert_ready!(waiting.poll()).unwrap();
    keyed.set_max_in_flight(1).unwrap();
    drop(held);
    assert!(keyed.try_acquire(&1, 1).is_err(), "one token is still in flight");
    drop(second);
    assert!(keyed.try_acquire(&1, 1).is_ok());
    assert_eq!(keyed.available(&2), 1);
    assert!(matches!(keyed.set_max_in_flight(0), Err(ConfigError::BadMaxInFlight { .. })));
    let (uncapped, _) = manual(Quota::per_second(1));
    assert_eq!(uncapped.set_max_in_flight(3), Err(ConfigError::NotCapped));
}

#[test]
fn an_owned_grant_is_taken_at_once_and_settled_later() {
    let (keyed, _clock) = manual(Quota::per_second(10));
    let mut grant = keyed.clone().try_acquire_owned(1, 4).unwrap();
    assert_eq!((grant.cost(), grant.remaining(), keyed.available(&1)), (4, 6, 6));
    grant.settle(1);
    assert_eq!(keyed.available(&1), 9);
    keyed.replenish(&1, 5);
    assert_eq!((keyed.available(&1), keyed.is_closed()), (10, false));
    keyed.close();
    assert!(keyed.is_closed());
    assert!(matches!(keyed.try_acquire_owned(1, 1), Err(TryAcquireError::Closed)));
}
