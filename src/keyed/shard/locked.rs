//! The lock of a shard.

use super::Shard;
use crate::keyed::rates::Rates;
use crate::sync::{ShardMutex, lock_with_backoff};
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A shard and its lock, aligned to cache lines of their own.
#[repr(C, align(128))]
pub(in crate::keyed) struct Locked<K> {
    /// The hash of the key that [runs ahead](super::ahead), or 0. A hint: the lock protects what is true.
    hash_ahead: AtomicU64,
    shard: ShardMutex<Shard<K>>,
}

impl<K> Locked<K> {
    pub(in crate::keyed) fn new(rates: Arc<Rates>, may_run_ahead: bool) -> Self {
        Self { hash_ahead: AtomicU64::new(0), shard: ShardMutex::new(Shard::new(rates, may_run_ahead)) }
    }

    #[inline]
    pub(in crate::keyed) fn lock(&self) -> impl DerefMut<Target = Shard<K>> + '_ {
        lock_with_backoff(|| self.shard.try_lock(), || self.shard.lock())
    }

    /// Whether the key with this hash may run ahead: no key does on a clock of a user, where the hint is always 0. A key with
    /// the hash 0 reads the time like one that does not.
    #[inline]
    pub(in crate::keyed) fn may_be_ahead(&self, hash: u64) -> bool {
        self.hash_ahead.load(Relaxed) == hash && hash != 0
    }

    /// Records which key runs ahead in the shard, which is locked.
    pub(in crate::keyed) fn set_ahead(&self, shard: &Shard<K>) {
        let hash = shard.hash_ahead();
        if self.hash_ahead.load(Relaxed) != hash {
            self.hash_ahead.store(hash, Relaxed);
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
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
}
