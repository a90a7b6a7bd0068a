//! Work on all keys is done in parts: no call goes through the whole map.

use crate::fixture::*;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

const SHARDS: usize = 512;
/// So slow that every key stays in debt for the whole test.
const SLOW: Quota = Quota::per_day(1).burst(2);

thread_local! {
    /// How many keys were dropped.
    static DROPPED: Cell<u64> = const { Cell::new(0) };
}

/// A key that counts how often it is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Counting(u64);

impl Drop for Counting {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

fn dropped(act: impl FnOnce()) -> u64 {
    let before = DROPPED.get();
    act();
    DROPPED.get() - before
}

/// Keys that were in debt, and are full again at the instant at which their quota is changed. A key that a change is
/// applied to is forgotten then, which tells how many were.
fn full_again() -> KeyedLimiter<Counting> {
    let clock = ManualClock::new();
    let keyed = KeyedLimiter::builder().quota(SLOW).clock(clock.clone()).shards(16).build().unwrap();
    (0..1_600).for_each(|key| drop(keyed.try_acquire(&Counting(key), 2).unwrap()));
    clock.advance(2 * Duration::from_secs(86_400));
    keyed
}

#[test]
fn a_quota_for_all_is_applied_to_a_shard_by_the_next_call_there() {
    let keyed = full_again();
    assert_eq!(dropped(|| keyed.set_quota(SLOW.burst(5)).unwrap()), 0, "no key is visited");
    let mut all = 0;
    for key in 0..1_600 {
        let count = dropped(|| assert_eq!(keyed.available(&Counting(key)), 5));
        // The key's own shard once, about a sixteenth of the map, and the key itself.
        assert!(count <= 1 + 200, "key {key} led to {count}");
        all += count;
    }
    assert_eq!(all, 2 * 1_600, "every key was visited once");
}

/// However often the quota changes without a call, a shard has a bounded number of changes to catch up with, and no
/// change goes through more than a part of the map.
#[test]
fn quotas_set_without_calls_do_not_pile_up() {
    let keyed = full_again();
    let mut all = 0;
    for burst in 3..20 {
        let count = dropped(|| keyed.set_quota(SLOW.burst(burst)).unwrap());
        assert!(count <= 500, "change to {burst} led to {count}");
        all += count;
    }
    assert_eq!(all, 1_600, "each shard was visited");
}

type Bounded = KeyedLimiter<u64, BuildHasherDefault<DefaultHasher>>;

/// As many keys as the bound allows, all of them in debt except the one that was settled to zero.
fn full_map(owes_nothing: u64) -> Bounded {
    let builder = KeyedLimiter::builder().quota(SLOW).max_keys(1_000).clock(ManualClock::new()).shards(SHARDS);
    let keyed: Bounded = builder.hasher(BuildHasherDefault::default()).build().unwrap();
    let keys: Vec<u64> = (0..1_000).collect();
    let mut grants: Vec<_> = keys.iter().map(|key| keyed.try_acquire(key, 1).unwrap()).collect();
    // After this, every shard may have a key that is not in debt.
    keyed.set_quota(SLOW.burst(3)).unwrap();
    grants[owes_nothing as usize].settle(&owes_nothing, 0);
    drop(grants);
    keyed
}

#[test]
fn each_new_key_visits_a_part_of_a_full_map() {
    let mut most_calls = 0;
    for owes_nothing in [1, 222, 333, 444, 555, 666, 777, 888] {
        let keyed = full_map(owes_nothing);
        // The key is in debt by one: of a burst of two it had one, and got one of three back.
        keyed.set_quota(SLOW.burst(2)).unwrap();
        let newcomer = 5_000 + owes_nothing;
        let mut calls = 1;
        while let Err(error) = keyed.try_acquire(&newcomer, 1).map(drop) {
            assert!(matches!(error, TryAcquireError::TooManyKeys { most: 1_000 }), "{error:?}");
            calls += 1;
            assert!(calls <= SHARDS, "a free entry is found at last");
        }
        most_calls = most_calls.max(calls);
        // A slot of a shard with two changes to catch up with counts three times: a 47th of the map in each call.
        assert!(calls <= 48, "{calls} calls");
    }
    assert!(most_calls > 1, "one call went through the whole map");
}
