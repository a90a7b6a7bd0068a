//! The lock of a shard.

use super::Shard;
use crate::keyed::rates::Rates;
use crate::sync::{ShardMutex, lock_with_backoff};
use std::ops::DerefMut;
use std::sync::Arc;

/// A shard and its lock, aligned to cache lines of their own.
#[repr(align(128))]
pub(in crate::keyed) struct Locked<K>(ShardMutex<Shard<K>>);

impl<K> Locked<K> {
    pub(in crate::keyed) fn new(rates: Arc<Rates>, by_key: bool) -> Self {
        Self(ShardMutex::new(Shard::new(rates, by_key)))
    }

    #[inline]
    pub(in crate::keyed) fn lock(&self) -> impl DerefMut<Target = Shard<K>> + '_ {
        lock_with_backoff(|| self.0.try_lock(), || self.0.lock())
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_two_cache_lines_and_the_written_fields_are_on_the_first() {
        assert_eq!(size_of::<Locked<String>>(), 128);
        let lock = size_of::<ShardMutex<u64>>() - size_of::<u64>();
        assert!(lock + std::mem::offset_of!(Shard<String>, granted) + size_of::<u64>() <= 64);
    }
}
