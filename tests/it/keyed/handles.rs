//! The limiter of a key as a value: joint claims over keys of several keyed limiters.

use super::manual;
use crate::fixture::*;

fn keyed(clock: &ManualClock, quotas: impl Into<tollgate::Quotas>) -> KeyedLimiter<u8> {
    KeyedLimiter::builder().quotas(quotas).clock(clock.clone()).build().unwrap()
}

#[test]
fn a_joint_claim_takes_from_keys_of_two_limiters_or_from_neither() {
    let clock = ManualClock::new();
    let (hosts, users) =
        (keyed(&clock, Quota::per_second(2)), keyed(&clock, [Quota::per_second(9), Quota::per_day(3)]));
    let (host, user) = (hosts.limiter(&1).unwrap(), users.limiter(&7).unwrap());
    let [mut first, _] = try_join([(&host, 2), (&user, 2)]).unwrap();
    first.settle(1);
    let Err(JoinError::Refused { limiter, error }) = try_join([(&host, 1), (&user, 2)]) else { panic!("granted") };
    assert_eq!(limiter, 1);
    assert!(matches!(error, tollgate::TryAcquireError::Denied(denied) if denied.by == Bound::Quota(1)));
    assert_eq!((hosts.available(&1), users.available(&7), users.available(&8)), (1, 1, 3));
}

#[test]
fn a_dropped_joint_claim_leaves_the_keys_unchanged_and_they_are_removed() {
    let clock = ManualClock::new();
    let (hosts, users) = (keyed(&clock, Quota::per_second(1)), keyed(&clock, Quota::per_second(1)));
    drop(hosts.try_acquire(&1, 1).unwrap());
    {
        let (host, user) = (hosts.limiter(&1).unwrap(), users.limiter(&7).unwrap());
        let _both = pending(join([(&host, 1), (&user, 1)]));
        let waiting = |keyed: &KeyedLimiter<u8>| (keyed.snapshot().waiting_tasks, keyed.snapshot().waiting_tokens);
        assert_eq!((waiting(&hosts), waiting(&users)), ((1, 1), (1, 1)));
    }
    assert_eq!((hosts.available(&1), users.available(&7)), (0, 1));
    tick_after(&clock, &hosts, SECOND);
    users.tick();
    assert_eq!((hosts.snapshot().keys, users.snapshot().keys), (0, 0));
}

#[test]
fn a_key_with_a_dropped_handle_frees_its_entry_within_a_second() {
    let (keyed, clock): (KeyedLimiter<u8>, _) = manual(|it| it.quota(Quota::per_second(1)).max_keys(1));
    let handle = keyed.limiter(&1).unwrap();
    assert_eq!(keyed.limiter(&2).err(), Some(ConfigError::TooManyKeys { most: 1 }));
    clock.advance(SECOND);
    assert!(keyed.try_acquire(&2, 1).is_err(), "held");
    drop(handle);
    clock.advance(SECOND);
    assert!(keyed.try_acquire(&2, 1).is_ok());
}

#[test]
fn a_handle_is_the_key_itself_whatever_happens_to_the_map() {
    let clock = ManualClock::new();
    let keyed = keyed(&clock, Quota::per_second(5));
    let handle = keyed.limiter(&1).unwrap();
    drop(handle.try_acquire(2).unwrap());
    keyed.tick();
    assert_eq!((keyed.available(&1), handle.available()), (3, 3));
    keyed.set_quota(Quota::per_second(2)).unwrap();
    assert_eq!((keyed.available(&1), handle.available()), (2, 2));
    drop(handle);
    keyed.tick();
    clock.advance(SECOND / 2);
    assert_eq!(keyed.available(&1), 2, "the level was cut to the burst");
    keyed.close();
    assert!(keyed.limiter(&3).unwrap().is_closed());
}

#[tokio::test(start_paused = true)]
async fn many_joint_claims_over_keys_are_granted_at_the_pace_of_the_slower_key() {
    let (hosts, users) = (
        KeyedLimiter::new(Quota::per_second(10).burst(1)).unwrap(),
        KeyedLimiter::new(Quota::per_second(5).burst(1)).unwrap(),
    );
    let start = tokio::time::Instant::now();
    let claims: Vec<_> = (0..10)
        .map(|_| {
            let (host, user) = (hosts.limiter(&"host").unwrap(), users.limiter(&"user").unwrap());
            tokio::spawn(async move { join([(&host, 1), (&user, 1)]).await.map(drop) })
        })
        .collect();
    let lone = hosts.consume(&"other host", 1).await;
    assert!(lone.is_ok() && start.elapsed() < SECOND / 10);
    for claim in claims {
        assert_eq!(claim.await.unwrap(), Ok::<(), JoinError>(()));
    }
    let waited = start.elapsed().as_millis();
    assert!((1_800..=1_802).contains(&waited), "{waited}");
}
