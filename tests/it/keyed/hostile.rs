//! Hostile keys and hashers.

use super::manual;
use crate::fixture::*;
use equivalent::Equivalent;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use tollgate::{Refused, ToKey};

/// All keys collide.
#[derive(Default)]
struct Nothing;

impl Hasher for Nothing {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn keys_that_all_collide_are_kept_apart() {
    let (keyed, clock) = manual(|it| {
        it.quota(Quota::per_second(1).burst(2)).max_keys(500).hasher(BuildHasherDefault::<Nothing>::default())
    });
    let keys: Vec<u32> = (0..500).collect();
    for key in &keys {
        drop(keyed.try_acquire(key, 1 + u64::from(key % 2)).unwrap());
    }
    assert!(keys.iter().all(|key| keyed.available(key) == 1 - u64::from(key % 2)));
    let mut waiting: Vec<_> = keys.iter().map(|key| pending(keyed.consume(key, 2))).collect();
    assert!(keyed.try_acquire(&1_000, 1).is_err(), "the map is full");
    tick_after(&clock, &keyed, Duration::from_secs(1));
    for (key, waiting) in waiting.iter_mut().enumerate() {
        assert_eq!(waiting.poll().is_ready(), key % 2 == 0, "key {key}");
    }
}

/// A hasher that gives all keys the same upper bits.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

#[test]
fn an_identity_hasher_still_spreads_keys_over_shards() {
    let builder = KeyedLimiter::builder().quota(Quota::per_hour(1).burst(1));
    let keyed: KeyedLimiter<u64, _> = builder.hasher(BuildHasherDefault::<Plain>::default()).build().unwrap();
    assert!((0..50_000).all(|key| keyed.try_acquire(&key, 1).is_ok()));
    assert!((0..50_000).all(|key| keyed.try_acquire(&key, 1).is_err()));
    assert_eq!(keyed.snapshot().keys, 50_000);
}

thread_local! {
    /// The number of calls of the keys' methods before the next panic; negative if none panics.
    static CALLS_LEFT: Cell<i64> = const { Cell::new(-1) };
}

/// None of these panics is printed: they are intended.
fn count_call() {
    let left = CALLS_LEFT.get();
    if left == 0 {
        resume_unwind(Box::new("a key panics on purpose"));
    }
    CALLS_LEFT.set(left - 1);
}

/// A key that can panic in each of its methods.
#[derive(Debug)]
pub(crate) struct PanickingKey(pub(crate) u32);

impl Hash for PanickingKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        count_call();
        self.0.hash(hasher);
    }
}

impl PartialEq for PanickingKey {
    fn eq(&self, other: &Self) -> bool {
        count_call();
        self.0 == other.0
    }
}

impl Eq for PanickingKey {}

impl Clone for PanickingKey {
    fn clone(&self) -> Self {
        count_call();
        Self(self.0)
    }
}

impl Drop for PanickingKey {
    fn drop(&mut self) {
        if CALLS_LEFT.get() >= 0 && !std::thread::panicking() {
            count_call();
        }
    }
}

/// Repeats `act`, which panics after one more call of the keys' methods each time, until it succeeds. Returns how often
/// it panicked.
pub(crate) fn panic_at_each_call(act: impl Fn()) -> i64 {
    for calls in 0.. {
        CALLS_LEFT.set(calls);
        let succeeded = catch_unwind(AssertUnwindSafe(&act)).is_ok();
        CALLS_LEFT.set(-1);
        if succeeded {
            return calls;
        }
    }
    unreachable!("`act` makes fewer calls")
}

#[test]
fn keys_that_panic_leave_the_map_unchanged() {
    let builder = || KeyedLimiter::builder().quota(Quota::per_second(1).burst(3));
    unchanged_by_panics(builder());
    // Ranks compare and clone keys too.
    unchanged_by_panics(builder().top(Duration::from_secs(60)));
}

fn unchanged_by_panics(builder: KeyedBuilder<PanickingKey>) {
    let clock = ManualClock::new();
    // One shard, so that all keys interfere with each other, and tables are rebuilt with all of them.
    let keyed: KeyedLimiter<PanickingKey> = builder.clock(clock.clone()).shards(1).build().unwrap();
    let mut harmed = 0;
    for number in 0..300 {
        let key = PanickingKey(number);
        // A try that panicked took nothing, or it took its token before a drop panicked: at most one per try.
        harmed += panic_at_each_call(|| drop(keyed.try_acquire(&key, 1)));
        harmed += panic_at_each_call(|| _ = keyed.available(&key));
        harmed += panic_at_each_call(|| _ = keyed.estimate(&key, 1));
    }
    assert!(harmed > 1_000, "keys panicked only {harmed} times");
    assert_eq!(keyed.snapshot().keys, 300, "a key was lost or is there twice");
    assert!((0..300).all(|number| keyed.available(&PanickingKey(number)) == 2), "each took one token");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_while_its_calls_are_fast_loses_no_token() {
    let quota = Quota::per_hour(1).burst(6_400);
    let keyed: KeyedLimiter<PanickingKey> = KeyedLimiter::builder().quota(quota).shards(1).build().unwrap();
    let key = PanickingKey(7);
    for _ in 0..1_000 {
        tokio::time::advance(Duration::from_nanos(100)).await;
        panic_at_each_call(|| keyed.try_acquire(&key, 1).unwrap().forget());
    }
    assert_eq!(keyed.available(&key), 5_400);
    assert_eq!(keyed.snapshot().granted, 1_000);
}

#[test]
fn keys_that_panic_while_waiting_changing_or_being_removed_keep_the_map_consistent() {
    let (keyed, clock): (KeyedLimiter<PanickingKey>, _) =
        manual(|it| it.quota(Quota::per_second(1).burst(3)).shards(1).max_keys(200));
    for number in 0..100 {
        let key = PanickingKey(number);
        drop(keyed.try_acquire(&key, 3).unwrap());
        panic_at_each_call(|| {
            let _waiting = pending(keyed.consume(&key, 1));
        });
    }
    panic_at_each_call(|| keyed.set_quota(Quota::per_second(2).burst(6)).unwrap());
    panic_at_each_call(|| keyed.set_quota_for(&PanickingKey(5), Quota::per_second(4).burst(8)).unwrap());
    panic_at_each_call(|| keyed.reset_quota_for(&PanickingKey(5)));
    assert!((0..100).all(|number| keyed.available(&PanickingKey(number)) == 0), "a key was reset");
    clock.advance(Duration::from_secs(1));
    assert!((0..100).all(|number| keyed.available(&PanickingKey(number)) == 2), "the quota is two per second now");
    clock.advance(Duration::from_secs(2));
    panic_at_each_call(|| keyed.tick());
    assert_eq!(keyed.snapshot().keys, 0);
    // The bound still counts correctly.
    let newcomers: Vec<PanickingKey> = (1_000..1_201).map(PanickingKey).collect();
    assert_eq!(newcomers.iter().filter(|key| keyed.try_acquire(*key, 1).is_ok()).count(), 200);
}

/// A form with another hash than its key.
struct Misled(u64);

impl Hash for Misled {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (!self.0).hash(hasher);
    }
}

impl Equivalent<u64> for Misled {
    fn equivalent(&self, key: &u64) -> bool {
        self.0 == *key
    }
}

impl ToKey<u64> for Misled {
    fn to_key(&self) -> u64 {
        self.0
    }
}

#[test]
fn keys_that_a_form_with_another_hash_has_misplaced_are_counted_once() {
    let quota = Quota::per_second(1);
    let (keyed, clock): (KeyedLimiter<u64>, _) = manual(|it| it.quota(quota).shards(1).max_keys(1_000));
    let newcomers = |keys: std::ops::Range<u64>| keys.filter(|key| keyed.try_acquire(key, 1).is_ok()).count();
    let misled: Vec<_> = (0..10).map(Misled).collect();
    let waiting: Vec<_> = misled.iter().map(|key| pending(keyed.consume(key, 2))).collect();
    // The table grows, so that the keys are where their own hashes say.
    newcomers(100..500);
    drop(waiting);
    clock.advance(Duration::from_secs(2));
    (0..100).for_each(|_| keyed.set_quota(quota).unwrap());
    keyed.tick();
    assert_eq!((keyed.snapshot().keys, newcomers(1_000..3_000)), (0, 1_000));
}

thread_local! {
    static CLONES: Cell<u32> = const { Cell::new(0) };
}

/// A key that counts its clones. The clones panic when they are dropped.
#[derive(Debug)]
pub(crate) struct Clinging {
    pub(crate) number: u32,
    is_clone: bool,
}

impl Clinging {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, is_clone: false }
    }
}

impl Hash for Clinging {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl PartialEq for Clinging {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Clinging {}

impl Clone for Clinging {
    fn clone(&self) -> Self {
        CLONES.set(CLONES.get() + 1);
        Self { number: self.number, is_clone: true }
    }
}

impl Drop for Clinging {
    fn drop(&mut self) {
        if self.is_clone {
            resume_unwind(Box::new("a key panics when it is dropped"));
        }
    }
}

#[test]
fn keys_that_panic_when_they_are_removed_do_so_one_by_one() {
    let (keyed, clock): (KeyedLimiter<Clinging>, _) = manual(|it| it.quota(Quota::per_second(1)).shards(1));
    for number in 0..10 {
        drop(keyed.try_acquire(&Clinging::new(number), 1).unwrap());
    }
    tick_after(&clock, &keyed, Duration::from_secs(1));
    assert_eq!(keyed.snapshot().keys, 0);
}

#[test]
fn a_key_refused_by_a_full_map_is_not_cloned() {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(2)).max_keys(1).clock(ManualClock::new());
    let keyed: KeyedLimiter<Clinging> = builder.build().unwrap();
    drop(keyed.try_acquire(&Clinging::new(0), 2).unwrap());
    CLONES.set(0);
    let newcomer = Clinging::new(1);
    let error = ConfigError::TooManyKeys { most: 1 };
    assert_eq!(keyed.set_quota_for(&newcomer, Quota::per_second(5)), Err(error));
    assert_eq!(CLONES.get(), 0);
    assert_eq!(keyed.try_acquire(&newcomer, 1).map(drop), Err(TryAcquireError::TooManyKeys { most: 1 }));
    assert_eq!(CLONES.get(), 1, "one clone is kept in the list of the most refused keys");
    assert_eq!(keyed.try_acquire(&newcomer, 1).map(drop), Err(TryAcquireError::TooManyKeys { most: 1 }));
    assert!(matches!(task::spawn(keyed.consume(&newcomer, 3)).poll(), Poll::Ready(Err(_))));
    assert_eq!(CLONES.get(), 1);
    // The others would panic when they are dropped.
    std::mem::forget(keyed);
}

#[test]
fn a_quota_by_that_panics_changes_nothing() {
    let clock = ManualClock::new();
    let quota_by = |key: &u32| match key {
        0 => panic!("no such key"),
        _ => Quota::per_second((*key).into()),
    };
    let keyed = KeyedLimiter::builder().quota_by(quota_by).clock(clock).max_keys(2).build().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(keyed.try_acquire(&0, 1)))).is_err());
    assert_eq!(keyed.snapshot().keys, 0);
    assert_eq!(keyed.try_acquire(&7, 1).map(|grant| grant.remaining()), Ok(6));
    assert_eq!(keyed.try_acquire(&9, 1).map(|grant| grant.remaining()), Ok(8));
    assert!(keyed.try_acquire(&11, 1).is_err(), "the map is full");
}

#[test]
fn a_weight_by_that_panics_settles_a_grant_nowhere() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(10);
    let parent = Limiter::builder().quota(quota).classes().clock(clock.clone()).build().unwrap();
    let builder = KeyedLimiter::builder().quota(quota).clock(clock).parent(&parent);
    let keyed = builder.weight_by(|_: &u32| -> u64 { panic!("no plan") }).build().unwrap();
    let mut grant = keyed.try_acquire(&1, 1).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| grant.settle(&1, 4))).is_err());
    assert_eq!((grant.cost(), keyed.available(&1), parent.available()), (1, 9, 9));
}

/// The key kept its entry, which nothing looked at any more, and the map stayed full.
#[test]
fn a_key_whose_weight_by_panics_takes_no_place() {
    let clock = ManualClock::new();
    let parent = Limiter::builder().quota(Quota::per_second(1)).classes().clock(clock.clone()).build().unwrap();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).clock(clock.clone()).parent(&parent);
    let weight_by = |key: &u32| if *key == 1 { resume_unwind(Box::new("no plan")) } else { 1 };
    let keyed = builder.weight_by(weight_by).max_keys(1).build().unwrap();
    for call in 0..3 {
        drop(parent.try_acquire(1).unwrap());
        let act = || match call {
            0 => drop(keyed.try_acquire(&1, 1)),
            1 => assert!(spawn(keyed.consume(&1, 1)).poll().is_pending()),
            _ => drop(keyed.blocking_consume(&1, 1)),
        };
        assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
        clock.advance(Duration::from_secs(1));
        drop(keyed.try_acquire(&2, 1).unwrap_or_else(|error| panic!("after call {call}: {error}")));
        clock.advance(Duration::from_secs(1));
    }
}

/// Plans come from a table, in which anything may stand.
#[test]
fn calls_on_a_key_with_bad_quotas_are_refused_and_name_what_is_wrong() {
    let quota_by = |key: &u32| match key {
        0 => Quotas::from(Quota::manual(17)),
        1 => Quotas::default(),
        2 => Quota::per_second(5).burst(0).into(),
        _ => Quota::per_second((*key).into()).into(),
    };
    let kinds: [fn(KeyedBuilder<u32>) -> KeyedBuilder<u32>; 3] =
        [KeyedBuilder::unbounded_keys, |builder| builder.max_in_flight(5), |builder| builder.dry_run()];
    for settings in kinds {
        let keyed = settings(KeyedLimiter::builder().quota_by(quota_by).clock(ManualClock::new())).build().unwrap();
        for (key, says) in [(0, "manual"), (1, "nothing is limited"), (2, "a burst of 0")] {
            let refused = Refused::from(keyed.try_acquire(&key, 1).map(drop).unwrap_err());
            assert!(matches!(refused, Refused::AtOnce(TryAcquireError::BadQuota(_))), "{refused}");
            let Poll::Ready(Err(waits)) = task::spawn(keyed.consume(&key, 1)).poll() else { panic!("it is granted") };
            for text in
                [refused.to_string(), waits.to_string(), keyed.blocking_consume(&key, 1).unwrap_err().to_string()]
            {
                assert!(text.starts_with("`quota_by` returned") && text.contains(says), "{text}");
            }
            assert_eq!((keyed.available(&key), keyed.deficiency(&key), keyed.estimate(&key, 1)), (0, 0, None));
            assert!(keyed.quotas(&key).is_empty() && keyed.quota_snapshots(&key).is_empty());
            assert!(keyed.limiter(&key).is_err());
            keyed.pause_for(&key, Duration::from_secs(1));
            keyed.reset_quota_for(&key);
        }
        assert!(keyed.snapshot().refused >= 9);
        assert!(keyed.try_acquire(&7, 5).is_ok());
    }
}

thread_local! {
    static IS_CLONED: Cell<bool> = const { Cell::new(true) };
}

/// A key that panics when it is cloned, if that is switched on. Its clones panic when they are dropped.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Spiteful(Clinging);

impl Clone for Spiteful {
    fn clone(&self) -> Self {
        if !IS_CLONED.get() {
            resume_unwind(Box::new("a key panics when it is cloned"));
        }
        Self(self.0.clone())
    }
}

/// Keys that panic when they are removed during the panic of another key do not abort the process.
#[test]
fn keys_that_panic_when_removed_do_not_abort_during_another_panic() {
    let (keyed, clock): (KeyedLimiter<Spiteful>, _) = manual(|it| it.quota(Quota::per_second(1)).shards(1));
    let key = |number| Spiteful(Clinging::new(number));
    // As many as the bound allows.
    for number in 0..6 {
        drop(keyed.try_acquire(&key(number), 1).unwrap());
    }
    clock.advance(Duration::from_secs(1));
    IS_CLONED.set(false);
    let comes = AssertUnwindSafe(|| keyed.try_acquire(&key(77), 1).map(drop));
    assert!(catch_unwind(comes).is_err(), "the key has to be cloned");
    IS_CLONED.set(true);
    assert_eq!(keyed.snapshot().keys, 0, "the map was full, so all keys with full buckets are removed");
}
