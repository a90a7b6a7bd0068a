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
mod tests;
