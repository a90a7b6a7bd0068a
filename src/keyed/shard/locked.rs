//! The lock of a shard.

use super::Shard;
use crate::sync::{ShardMutex, lock_with_backoff};
use std::ops::DerefMut;

/// A shard and its lock, aligned to cache lines of their own.
#[repr(align(128))]
pub(in crate::keyed) struct Locked<K>(ShardMutex<Shard<K>>);

impl<K> Locked<K> {
    pub(in crate::keyed) fn new(shard: Shard<K>) -> Self {
        Self(ShardMutex::new(shard))
    }

    #[inline]
    pub(in crate::keyed) fn lock(&self) -> impl DerefMut<Target = Shard<K>> + '_ {
        lock_with_backoff(|| self.0.try_lock(), || self.0.lock())
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
