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

    /// Whether the key with this hash may run ahead.
    #[inline]
    pub(in crate::keyed) fn may_be_ahead(&self, hash: u64) -> bool {
        self.hash_ahead.load(Relaxed) == hash
    }

    /// Records which key runs ahead in the shard, which is locked.
    pub(in crate::keyed) fn set_ahead(&self, shard: &Shard<K>) {
        if !self.may_be_ahead(shard.hash_ahead()) {
            self.hash_ahead.store(shard.hash_ahead(), Relaxed);
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_two_cache_lines_and_the_written_fields_are_on_the_first() {
        assert_eq!(size_of::<Locked<String>>(), 128);
        let lock = size_of::<ShardMutex<u64>>() - size_of::<u64>();
        assert!(8 + lock + std::mem::offset_of!(Shard<String>, granted) + size_of::<u64>() <= 64);
    }
}
