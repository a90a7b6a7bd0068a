//! The lock of a shard.

use super::{AtOnce, Plain, Shard};
use crate::keyed::ToKey;
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
    pub(in crate::keyed) fn new(rates: Arc<Rates>, by_key: bool) -> Self {
        Self { hash_ahead: AtomicU64::new(0), shard: ShardMutex::new(Shard::new(rates, by_key)) }
    }

    #[inline]
    pub(in crate::keyed) fn lock(&self) -> impl DerefMut<Target = Shard<K>> + '_ {
        lock_with_backoff(|| self.shard.try_lock(), || self.shard.lock())
    }
}

impl<K: Clone + Eq> Locked<K> {
    /// Takes `cost` tokens on the fast path; see [`Shard::take_quickly`]. `now` reads the time, unless the key runs
    /// ahead: then the end of the stride reads it.
    #[inline(always)]
    pub(in crate::keyed) fn take_quickly(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        hash: u64,
        cost: u64,
        plain: Plain<'_>,
        now: impl FnOnce() -> u64,
    ) -> AtOnce {
        let hash_ahead = self.hash_ahead.load(Relaxed);
        let (mut shard, now) = if hash_ahead == hash && plain.may_run_ahead {
            let mut shard = self.lock();
            if let Some(left) = shard.take_ahead(key, hash, cost) {
                return Ok(left);
            }
            let now = if shard.is_ahead(hash) { shard.synced() } else { now() };
            (shard, now)
        } else {
            let now = now();
            (self.lock(), now)
        };
        let taken = shard.take_quickly(key, hash, cost, now, Some(plain), || true);
        if plain.may_run_ahead && shard.hash_ahead() != hash_ahead {
            self.hash_ahead.store(shard.hash_ahead(), Relaxed);
        }
        taken
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
