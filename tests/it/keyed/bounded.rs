//! Bounded memory, which clients cannot exploit.

use super::manual;
use crate::fixture::*;
use std::hash::RandomState;
use tollgate::KeyedConsumeOwned;

/// One token per second and a burst of two, for at most `most` keys.
fn bounded(most: u64) -> (KeyedLimiter<u64>, ManualClock) {
    manual(|it| it.quota(Quota::per_second(1).burst(2)).max_keys(most))
}

fn is_turned_away(keyed: &KeyedLimiter<u64>, key: u64) -> bool {
    match keyed.try_acquire(&key, 1).map(drop) {
        Err(TryAcquireError::TooManyKeys { .. }) => true,
        Ok(()) => false,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_new_key_is_refused_exactly_while_all_keys_are_in_debt() {
    // Compared with a list of the keys' debts and their ends, over random calls in all of several shards.
    let (keyed, clock): (KeyedLimiter<u64>, _) =
        manual(|it| it.quota(Quota::per_second(1).burst(2)).max_keys(20).shards(7));
    let (mut owing, mut now, mut turned_away) = (HashMap::<u64, u64>::new(), 0_u64, 0);
    let mut random = Rng::with_seed(12_345);
    for _ in 0..20_000 {
        let (key, millis) = (random.u64(..60), random.u64(..90));
        clock.advance(Duration::from_millis(millis));
        now += millis;
        owing.retain(|_, full_at| *full_at > now);
        // A bucket is full when the tokens taken have come back, at a second each.
        let full_at = owing.get(&key).copied().unwrap_or(now);
        let expected = if full_at + 1_000 > now + 2_000 {
            "denied"
        } else if !owing.contains_key(&key) && owing.len() == 20 {
            turned_away += 1;
            "map full"
        } else {
            owing.insert(key, full_at + 1_000);
            "granted"
        };
        let answer = match keyed.try_acquire(&key, 1) {
            Ok(_) => "granted",
            Err(TryAcquireError::Denied(_)) => "denied",
            Err(TryAcquireError::TooManyKeys { .. }) => "map full",
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(answer, expected, "key {key} at {now} ms");
    }
    assert!(turned_away > 1_000, "too few refusals: {turned_away}");
}

#[test]
fn tokens_in_flight_keep_a_key_and_their_release_frees_it() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(1).burst(2)).max_keys(1).max_in_flight(1));
    let grant = keyed.try_acquire(&1, 1).unwrap();
    clock.advance(10 * SECOND);
    assert!(is_turned_away(&keyed, 2));
    assert!(keyed.try_acquire(&1, 1).is_err(), "the cap is one token in flight");
    drop(grant);
    assert!(!is_turned_away(&keyed, 2));
    clock.advance(10 * SECOND);
    let forgotten = keyed.try_acquire(&1, 1).unwrap();
    forgotten.forget();
    clock.advance(10 * SECOND);
    assert!(is_turned_away(&keyed, 2), "the key owes a token of a manual quota");
    keyed.release(&1, 1).unwrap();
    assert!(keyed.release(&1, 1).is_err());
    assert!(!is_turned_away(&keyed, 2));
}

#[test]
#[should_panic(expected = "another key than its own")]
fn a_grant_cannot_be_settled_with_another_key() {
    let (keyed, _) = bounded(2);
    keyed.try_acquire(&1, 1).unwrap().settle(&2, 5);
}

#[test]
fn a_debt_is_recorded_even_beyond_max_keys() {
    let (keyed, clock) = bounded(1);
    let mut grant = keyed.try_acquire(&1, 1).unwrap();
    clock.advance(SECOND);
    assert!(!is_turned_away(&keyed, 2), "1 owes nothing, and 2 takes its place");
    grant.settle(&1, 5);
    assert_eq!((keyed.available(&1), keyed.deficiency(&1)), (0, 2));
    assert!(is_turned_away(&keyed, 3));
    assert_eq!(keyed.snapshot().keys, 2, "beyond the bound, one key for each such grant");
}

#[test]
fn a_quota_of_its_own_is_never_forgotten_and_counts() {
    let (keyed, clock) = bounded(2);
    keyed.set_quota_for(&1, Quota::per_second(5)).unwrap();
    keyed.set_quota_for(&2, Quota::per_second(5)).unwrap();
    assert_eq!(keyed.set_quota_for(&3, Quota::per_second(5)), Err(ConfigError::TooManyKeys { most: 2 }));
    clock.advance(100 * SECOND);
    assert!(is_turned_away(&keyed, 3));
    assert_eq!(keyed.available(&1), 5);
    keyed.reset_quota_for(&1);
    assert_eq!(keyed.available(&1), 2);
    assert!(!is_turned_away(&keyed, 3));
    assert_eq!(keyed.available(&2), 5, "the other key keeps its own quota");
}

#[test]
fn keys_without_debt_are_removed_over_time_without_a_bound() {
    let (keyed, clock): (KeyedLimiter<u64>, _) = manual(|it| it.quota(Quota::per_second(1).burst(2)).shards(4));
    for key in 0..100_000 {
        let _ = keyed.try_acquire(&key, 1);
        clock.advance(Duration::from_millis(1));
    }
    let keys = keyed.snapshot().keys;
    assert!((1_000..4_000).contains(&keys), "a thousand are in debt at any time, {keys} are in memory");
    tick_after(&clock, &keyed, 100 * SECOND);
    assert_eq!(keyed.snapshot().keys, 0);
}

#[test]
fn invalid_configurations_are_errors() {
    assert_eq!(KeyedLimiter::<u8>::builder().build().map(drop), Err(ConfigError::NoQuota));
    let good = Quota::per_second(1);
    for (quota, quota_name) in [(0, None), (1, None), (1, Some("day"))] {
        let error = |bad| {
            let quotas = match quota_name {
                Some(name) => Quotas::from([("second", good), (name, bad)]),
                None if quota == 0 => Quotas::from(bad),
                None => Quotas::from([good, bad]),
            };
            KeyedLimiter::<u8>::new(quotas).map(drop)
        };
        for (bad, reason) in [
            (Quota::manual(5), QuotaError::KeyedManual),
            (Quota::per_second(5).initial(2), QuotaError::KeyedInitial { initial: 2, burst: 5 }),
            (Quota::per_second(0), QuotaError::ZeroAmount),
        ] {
            assert_eq!(error(bad), Err(ConfigError::BadQuota { quota, quota_name, reason }));
        }
    }
    let none = KeyedLimiter::<u8>::builder().quota(Quota::per_second(1)).max_keys(0).build().map(drop);
    assert_eq!(none, Err(ConfigError::NoKeys));
    let keyed = KeyedLimiter::<u8>::new(Quota::per_second(1)).unwrap();
    assert_eq!(keyed.set_quota(Quota::manual(1)), Err(QuotaError::KeyedManual.into()));
    assert_eq!(keyed.set_quota_for(&1, Quota::manual(1)), Err(QuotaError::KeyedManual.into()));
}

#[test]
fn every_key_in_memory_is_listed_once_with_its_tokens() {
    let (keyed, clock) = manual(|it| it.quota(Quota::per_second(1).burst(5)).shards(3).max_in_flight(4));
    let held: Vec<_> = (0..50_u64).map(|key| keyed.try_acquire(Box::leak(Box::new(key)), key % 5).unwrap()).collect();
    keyed.set_quota_for(&100, Quota::per_second(1).burst(9)).unwrap();
    let waiting = pending(keyed.consume(&49, 3));
    let mut entries: Vec<_> = keyed.entries().collect();
    entries.sort_by_key(|entry| entry.key);
    // A key that took nothing is known because of its live entry, which a cap requires from the start.
    assert_eq!(entries.iter().map(|entry| entry.key).collect::<Vec<_>>(), (0..50).chain([100]).collect::<Vec<_>>());
    for entry in &entries[..49] {
        let spent = entry.key % 5;
        let seen = (entry.available, entry.in_flight, entry.waiting_tasks, entry.deficiency);
        assert_eq!(seen, (4 - spent, Some(spent), 0, 0), "key {}", entry.key);
    }
    assert_eq!((entries[49].waiting_tasks, entries[49].available, entries[49].deficiency), (1, 0, 3));
    assert_eq!(entries[50].available, 4, "the level, up to the cap");
    drop((waiting, held));
    clock.advance(10 * SECOND);
    // Whether they were removed yet or not, no key is in debt.
    assert!(keyed.entries().all(|entry| entry.available == 4 && entry.in_flight == Some(0)));
    keyed.tick();
    assert_eq!(keyed.entries().map(|entry| entry.key).collect::<Vec<_>>(), [100]);
}

type Claim = Option<Pin<Box<KeyedConsumeOwned<u64, RandomState>>>>;

/// A claim that is dropped when it is woken, and lets a new one enter.
struct Leaving {
    keyed: KeyedLimiter<u64>,
    claim: Mutex<Claim>,
}

impl Wake for Leaving {
    fn wake(self: Arc<Self>) {
        drop(self.claim.lock().unwrap().take());
        is_turned_away(&self.keyed, 2);
    }
}

#[test]
fn a_live_entry_that_is_read_while_it_is_released_frees_its_place() {
    let (keyed, clock) = bounded(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _inside = runtime.enter();
    let mut replenisher = pending(keyed.replenisher());
    drop(keyed.try_acquire(&1, 2).unwrap());
    let claim = Mutex::new(Some(Box::pin(keyed.clone().consume_owned(1, 2))));
    let leaving = Arc::new(Leaving { keyed: keyed.clone(), claim });
    let waker = Waker::from(Arc::clone(&leaving));
    let poll = |claim: &mut Claim| {
        claim.as_mut().is_some_and(|claim| claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending())
    };
    assert!(poll(&mut leaving.claim.lock().unwrap()));
    assert!(replenisher.poll().is_pending());
    clock.advance(2 * SECOND);
    // Grants, and holds the lock while it wakes the claims that leave with unused tokens: so no key can be removed
    // there.
    assert!(replenisher.poll().is_pending());
    assert!(leaving.claim.lock().unwrap().is_none());
    assert!(!is_turned_away(&keyed, 2), "no key is in debt, and no claim waits");
}

/// The claim is woken because its runtime ends, while the driver holds the live entries of all keys.
#[test]
fn a_live_entry_that_is_read_while_its_driver_ends_frees_its_place() {
    let keyed = KeyedLimiter::builder().quota(Quota::per_second(1_000).burst(1)).max_keys(2).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let inside = runtime.enter();
    let mut claim = Box::pin(keyed.clone().consume_owned(1, 1_000_000));
    let leaving = Arc::new(Leaving { keyed: keyed.clone(), claim: Mutex::new(None) });
    assert!(claim.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&leaving)))).is_pending());
    *leaving.claim.lock().unwrap() = Some(claim);
    drop(keyed.try_acquire(&3, 1).unwrap());
    drop(pending(keyed.consume(&3, 1)));
    std::thread::sleep(Duration::from_millis(9));
    drop(inside);
    drop(runtime);
    assert!(leaving.claim.lock().unwrap().is_none());
    assert!(!is_turned_away(&keyed, 2), "no key is in debt, and no claim waits");
}

#[test]
fn by_default_a_million_keys_are_the_bound() {
    let clock = ManualClock::new();
    let builder = || KeyedLimiter::builder().quota(Quota::per_day(1)).clock(clock.clone());
    let (bounded, unbounded) = (builder().build().unwrap(), builder().unbounded_keys().build().unwrap());
    for key in 0..1_000_000_u32 {
        let _ = bounded.try_acquire(&key, 1).unwrap();
    }
    assert_eq!(bounded.try_acquire(&u32::MAX, 1).unwrap_err(), TryAcquireError::TooManyKeys { most: 1_000_000 });
    for key in 0..1_000_001_u32 {
        let _ = unbounded.try_acquire(&key, 1).unwrap();
    }
    assert_eq!((bounded.snapshot().keys, unbounded.snapshot().keys), (1_000_000, 1_000_001));
}

#[tokio::test(start_paused = true)]
async fn wait_is_refused_under_an_in_flight_cap() {
    let quota = Quota::per_second(1).burst(1);
    let free = KeyedLimiter::new(quota).unwrap();
    let start = tokio::time::Instant::now();
    for _ in 0..2 {
        free.wait(&1, 1).await.unwrap();
    }
    assert_eq!(start.elapsed(), SECOND);
    assert!(free.wait(&1, 1).within(SECOND / 2).await.is_err());
    let capped = KeyedLimiter::builder().quota(quota).max_in_flight(3).build().unwrap();
    let parent = tollgate::Limiter::builder().max_in_flight(3).build().unwrap();
    let child = KeyedLimiter::builder().quota(quota).parent(&parent).build().unwrap();
    for keyed in [capped, child] {
        assert_eq!(keyed.wait(&1, 1).await, Err(ConsumeError::MustHold));
        assert_eq!(keyed.wait(&1, 1).within(SECOND).await, Err(ConsumeError::MustHold));
    }
}
