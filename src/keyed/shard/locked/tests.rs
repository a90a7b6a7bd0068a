use super::*;
use crate::{Clock, KeyedLimiter, Quota};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;
use std::time::Duration;

/// All keys have the hash 0.
#[derive(Default)]
struct Nothing;

impl Hasher for Nothing {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _: &[u8]) {}
}

static KEYED: OnceLock<KeyedLimiter<u8, BuildHasherDefault<Nothing>>> = OnceLock::new();

/// A clock that looks whether a shard is locked while it is read.
#[derive(Debug)]
struct Looking;

impl Clock for Looking {
    fn now(&self) -> Duration {
        let is_free = |shard: &Locked<u8>| shard.shard.try_lock().is_some();
        assert!(KEYED.get().is_none_or(|keyed| keyed.map.shards.iter().all(is_free)), "a shard is locked");
        Duration::ZERO
    }
}

/// 0 is also the hint that no key runs ahead.
#[test]
fn a_users_clock_is_read_outside_of_the_lock_for_a_key_with_hash_0_too() {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(5)).hasher(BuildHasherDefault::default());
    let keyed = KEYED.get_or_init(|| builder.clock(Looking).build().unwrap());
    assert!([1, 1, 2].iter().all(|key| keyed.try_acquire(key, 1).is_ok()));
}

#[test]
fn a_shard_is_two_cache_lines_and_the_written_fields_are_on_the_first() {
    assert_eq!(size_of::<Locked<String>>(), 128);
    let lock = size_of::<ShardMutex<u64>>() - size_of::<u64>();
    assert!(8 + lock + std::mem::offset_of!(Shard<String>, granted) + size_of::<u64>() <= 64);
}
