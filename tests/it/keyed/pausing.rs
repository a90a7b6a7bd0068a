//! Pauses of one key and of all keys, and in-flight caps changed at run time. The histories of `histories.rs` pause
//! too, and compare with the oracle.

use super::manual;
use crate::fixture::*;

/// A limiter of one shard.
fn plain(quota: Quota) -> (KeyedLimiter<u8>, ManualClock) {
    manual(|it| it.quota(quota).shards(1))
}

#[test]
fn a_pause_is_kept_in_a_full_map_and_the_key_is_removed_after_it() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(1)).max_keys(1));
    drop(keyed.try_acquire(&1, 1).unwrap());
    keyed.pause_for(&2, 3 * SECOND);
    assert!(matches!(keyed.try_acquire(&2, 1), Err(TryAcquireError::Denied(denied)) if denied.by == Bound::Pause));
    clock.advance(2 * SECOND);
    assert!(keyed.try_acquire(&1, 1).is_ok(), "the key is full again, and its entry is free or still its own");
    clock.advance(2 * SECOND);
    assert!(keyed.try_acquire(&3, 1).is_ok());
}

#[test]
fn a_key_whose_pause_has_ended_is_forgotten_when_it_is_full() {
    let (keyed, _clock) = plain(Quota::per_second(10));
    keyed.pause_for(&1, 9 * SECOND);
    keyed.set_quota_for(&2, Quota::per_second(7)).unwrap();
    keyed.pause_for(&2, 9 * SECOND);
    [1, 2, 3].iter().for_each(|key| keyed.resume(key));
    assert_eq!([1, 2, 3].map(|key| keyed.available(&key)), [10, 7, 10]);
    keyed.tick();
    assert_eq!(keyed.snapshot().keys, 1, "the key with a quota of its own is kept");
}

#[test]
fn a_pause_stores_no_key_of_a_closed_limiter() {
    let (keyed, _clock) = plain(Quota::per_second(10));
    keyed.close();
    keyed.pause_for(&1, SECOND);
    assert_eq!(keyed.snapshot().keys, 0);
}

#[test]
fn the_end_of_a_pause_asks_no_quota_of_a_key_that_is_not_stored() {
    let builder = KeyedLimiter::builder().quota_by(|_: &u8| -> Quota { panic!("asked for a quota") });
    let keyed = builder.clock(ManualClock::new()).build().unwrap();
    keyed.resume(&1);
    keyed.resume_all();
    assert_eq!(keyed.snapshot().keys, 0);
}

#[test]
fn a_handle_ends_the_pause_of_its_key_and_not_that_of_all_keys() {
    let (keyed, _clock) = plain(Quota::per_second(10));
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
fn an_owned_grant_is_taken_at_once_and_settled_later() {
    let (keyed, _clock) = plain(Quota::per_second(10));
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

#[test]
fn a_cap_of_zero_or_where_there_was_none_is_refused() {
    let (keyed, _): (KeyedLimiter<u64>, _) = manual(|it| it.quota(Quota::per_second(100)).max_in_flight(1));
    assert!(matches!(keyed.set_max_in_flight(0), Err(ConfigError::BadMaxInFlight { .. })));
    let (uncapped, _) = plain(Quota::per_second(1));
    assert_eq!(uncapped.set_max_in_flight(3), Err(ConfigError::NotCapped));
}
