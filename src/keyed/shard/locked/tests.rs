use super::*;
use crate::{Clock, KeyedLimiter, Quota};
use std::sync::OnceLock;
use std::time::Duration;

static KEYED: OnceLock<KeyedLimiter<u8>> = OnceLock::new();

/// A clock that looks whether a shard is locked while it is read.
#[derive(Debug)]
struct Looking;

impl Clock for Looking {
    fn now(&self) -> Duration {
        let is_free = |shard: &Locked<u8>| shard.0.try_lock().is_some();
        assert!(KEYED.get().is_none_or(|keyed| keyed.map.shards.iter().all(is_free)), "a shard is locked");
        Duration::ZERO
    }
}

#[test]
fn a_users_clock_is_read_outside_of_the_lock() {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(5));
    let keyed = KEYED.get_or_init(|| builder.clock(Looking).build().unwrap());
    assert!([1, 1, 2].iter().all(|key| keyed.try_acquire(key, 1).is_ok()));
}

#[test]
fn a_shard_is_two_cache_lines_and_what_the_fast_path_needs_is_on_the_first() {
    assert_eq!(size_of::<Locked<String>>(), 128);
    let lock = size_of::<ShardMutex<u64>>() - size_of::<u64>();
    // The address and the length of the table are the first part of `slots`.
    assert!(lock + std::mem::offset_of!(Shard<String>, slots) + size_of::<Box<[u8]>>() <= 64);
}
