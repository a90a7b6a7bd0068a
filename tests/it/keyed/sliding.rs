//! Keys with sliding quotas: each is a limiter, has a live entry while its windows hold tokens, and is forgotten then.

use super::manual;
use crate::fixture::*;
use std::mem::discriminant;

const KEYS: [u64; 3] = [0, 1, 2];

fn random_quota(random: &mut fastrand::Rng) -> Quota {
    let most = if random.bool() { 9 } else { 80 };
    Quota::new(random.u64(1..=most), random.u32(1..150) * NANO).sliding()
}

/// Each key does what a limiter of its own does, to the nanosecond.
#[test]
fn each_key_is_a_limiter() {
    let (mut granted, mut idle) = (0, 0);
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut quotas: Vec<Quota> = (0..random.usize(1..3)).map(|_| random_quota(&mut random)).collect();
        let clock = ManualClock::new();
        let keyed = KeyedLimiter::<u64>::builder().clock(clock.clone()).shards(1);
        // A parent that always has the tokens changes nothing but what is known of waits.
        let parent =
            Limiter::builder().quota(Quota::per_second(1 << 30).burst(1 << 40)).clock(clock.clone()).build().unwrap();
        let has_parent = random.bool();
        let keyed = if has_parent { keyed.parent(&parent) } else { keyed };
        let keyed = quotas.iter().fold(keyed, |keyed, quota| keyed.quota(*quota)).build().unwrap();
        let limiters = KEYS
            .map(|_| quotas.iter().fold(Limiter::builder(), |limiter, quota| limiter.quota(*quota)))
            .map(|limiter| limiter.clock(clock.clone()).build().unwrap());
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for step in 0..60 {
            let key = random.u64(0..3);
            let limiter = &limiters[key as usize];
            let cost = random.u64(1..=quotas[0].amount() + 1);
            match random.u8(0..16) {
                0..4 => match (keyed.try_acquire(&key, cost), limiter.try_acquire(cost)) {
                    (Ok(own), Ok(grant)) => held.push((key, own, grant)),
                    (Err(own), Err(error)) if has_parent => assert_eq!(discriminant(&own), discriminant(&error)),
                    (Err(own), Err(error)) => assert_eq!(own, error, "seed {seed}, step {step}"),
                    (own, grant) => panic!("seed {seed}, step {step}: {own:?}, {grant:?}"),
                },
                4..8 => {
                    waiting.push((key, spawn(keyed.consume(&KEYS[key as usize], cost)), spawn(limiter.consume(cost))))
                }
                8 if !waiting.is_empty() => drop(waiting.remove(random.usize(0..waiting.len()))),
                9..11 if !held.is_empty() => {
                    let place = random.usize(0..held.len());
                    let (key, own, grant) = &mut held[place];
                    let actual = random.u64(0..grant.cost() + 3);
                    own.settle(key, actual);
                    grant.settle(actual);
                    assert_eq!((own.cost(), own.remaining()), (grant.cost(), grant.remaining()), "seed {seed}");
                }
                11 => held.clear(),
                12 => {
                    let (index, quota) = (random.usize(0..quotas.len()), random_quota(&mut random));
                    quotas[index] = quota;
                    keyed.set_quota(quotas.iter().copied().collect::<Quotas>()).unwrap();
                    limiters.iter().for_each(|limiter| limiter.set_quota(index, quota).unwrap());
                }
                _ => clock.advance(random.u32(0..200) * NANO),
            }
            keyed.tick();
            limiters.iter().for_each(Limiter::tick);
            for (key, mut own, mut claim) in std::mem::take(&mut waiting) {
                match (own.poll(), claim.poll()) {
                    (Poll::Pending, Poll::Pending) => waiting.push((key, own, claim)),
                    (Poll::Ready(Ok(own)), Poll::Ready(Ok(grant))) => {
                        granted += 1;
                        held.push((key, own, grant));
                    }
                    (Poll::Ready(Err(own)), Poll::Ready(Err(error))) => assert_eq!(own, error, "seed {seed}"),
                    (own, grant) => panic!("seed {seed}, step {step}: {own:?}, {grant:?}"),
                }
            }
            for (key, limiter) in KEYS.iter().zip(&limiters) {
                assert_eq!(keyed.available(key), limiter.available(), "seed {seed}, step {step}, key {key}");
            }
            idle += usize::from(keyed.snapshot().keys == 0);
        }
    }
    assert!(granted > 10_000 && idle > 10_000, "{granted} grants, {idle} times without a key");
}

#[test]
fn a_key_is_forgotten_once_its_windows_are_empty() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_minute(60).sliding()).max_keys(1).shards(1));
    let error = too_large(61, 60, Bound::Quota(0));
    let too_large = TryAcquireError::TooLarge { cost: 61, most: 60, by: Bound::Quota(0), quota_name: None };
    assert_eq!(keyed.try_acquire(&1, 61).unwrap_err(), too_large);
    assert!(matches!(spawn(keyed.consume(&1, 61)).poll(), Poll::Ready(Err(answer)) if answer == error));
    assert_eq!((keyed.snapshot().keys, keyed.estimate(&1, 61)), (0, None), "nothing is stored for them");
    drop(keyed.try_acquire(&1, 60).unwrap());
    tick_after(&clock, &keyed, Duration::from_secs(59));
    assert!(keyed.try_acquire(&2, 1).is_err() && keyed.snapshot().keys == 1, "it is in use");
    clock.advance(Duration::from_secs(3));
    drop(keyed.try_acquire(&2, 60).unwrap());
    assert_eq!((keyed.snapshot().keys, keyed.available(&1)), (1, 60));
}

/// What another kind of quota has left counts as granted when the key is used first.
#[test]
fn changes_to_and_from_a_sliding_quota_keep_the_level() {
    let bucket = Quota::per_minute(60);
    let (keyed, clock) = manual(|it| it.quota(bucket));
    drop(keyed.try_acquire(&1, 40).unwrap());
    keyed.set_quota(bucket.sliding()).unwrap();
    assert_eq!(keyed.available(&1), 20);
    drop(keyed.try_acquire(&1, 20).unwrap());
    clock.advance(Duration::from_secs(59));
    assert_eq!(keyed.available(&1), 0);
    clock.advance(Duration::from_secs(3));
    assert_eq!(keyed.available(&1), 60);
    drop(keyed.try_acquire(&1, 60).unwrap());
    keyed.set_quota(bucket).unwrap();
    clock.advance(Duration::from_secs(30));
    assert_eq!(keyed.available(&1), 30);
    keyed.set_quota_for(&2, Quotas::from([bucket, Quota::per_hour(3).sliding()])).unwrap();
    drop(keyed.try_acquire(&2, 3).unwrap());
    assert_eq!((keyed.available(&2), keyed.available(&3)), (0, 60));
}
