//! The tables of packed levels: keys that owe tokens under the common quotas, have no waiters and have no tokens in
//! flight.
//!
//! A packed level is one `NonZeroU64`, from which the level of a bucket at any instant of a window follows; see
//! [`rate`](super::rate) for the encoding and the window. A key has one for each of its quotas. The entry of a key does
//! not change while time passes, and the table does not store the quotas: all packed levels of a shard have the shard's
//! quotas.
//!
//! A shard has a table for keys with one quota and a table for keys with two; at most one of them is in use. Both are
//! made of [groups](super::groups) of seven entries. With 8-byte keys and one quota, a group is two neighbouring cache
//! lines, which processors fetch together: so finding a key that is in no cache waits for memory once. With two quotas
//! it is three lines, which the lookup requests together.

use super::groups::{Groups, OneLine, TwoLines};
use std::num::NonZeroU64;

const SLOTS: usize = 7;

/// Keys with one quota.
pub(super) type PackedLevels<K> = PackedTable<K, 1, TwoLines>;
/// Keys with two quotas.
pub(super) type PackedPairs<K> = PackedTable<K, 2, OneLine>;

/// Keys with `N` quotas.
#[derive(Debug)]
pub(super) struct PackedTable<K, const N: usize, A>(Groups<(K, [NonZeroU64; N]), SLOTS, A>);

impl<K, const N: usize, A> PackedTable<K, N, A> {
    pub(super) fn new() -> Self {
        Self(Groups::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the table has to be rebuilt before another entry fits.
    pub(super) fn is_filled(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    pub(super) fn slots(&self) -> usize {
        self.0.slots()
    }

    /// Inserts packed levels. The caller guarantees that there is space and that the key is not in the table.
    pub(super) fn insert(&mut self, hash: u64, key: K, packed: [NonZeroU64; N]) {
        self.0.insert(hash, (key, packed));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, [NonZeroU64; N])> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (K, [NonZeroU64; N])> {
        self.0.iter_mut()
    }

    /// Removes all entries with packed levels for which `is_it` returns true, and passes their keys to `to`. `is_it` may
    /// change the packed levels.
    pub(super) fn extract(&mut self, mut is_it: impl FnMut(&mut [NonZeroU64; N]) -> bool, mut to: impl FnMut(K)) {
        self.0.extract(|(_, packed)| is_it(packed), |(key, _)| to(key));
    }

    /// Makes space for one entry, and for some more so that the next insertions need no rebuild.
    pub(super) fn make_space(&mut self, hash_of: impl Fn(&K) -> u64) {
        self.0.make_space(|(key, _)| hash_of(key));
    }

    /// Makes space for `more` entries, if the table is empty. Runs no user code.
    pub(super) fn make_space_in_empty(&mut self, more: usize) {
        self.0.make_space_in_empty(more);
    }

    /// Shrinks the table if more than three quarters of it are empty, down to `least` entries.
    pub(super) fn shrink(&mut self, least: usize, hash_of: impl Fn(&K) -> u64) {
        self.0.shrink(least, |(key, _)| hash_of(key));
    }
}

impl<K: Eq, const N: usize, A> PackedTable<K, N, A> {
    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, key: &K) -> Option<&mut [NonZeroU64; N]> {
        self.0.find_mut(hash, |(own, _)| own == key).map(|(_, packed)| packed)
    }

    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<(K, [NonZeroU64; N])> {
        let index = self.0.index_of(hash, |(own, _)| own == key)?;
        self.0.take(index)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_quota_takes_eight_bytes_beside_the_key() {
        assert_eq!(size_of::<Option<(u64, [NonZeroU64; 1])>>(), 16);
        assert_eq!(size_of::<Option<(u64, [NonZeroU64; 2])>>(), 24);
        assert_eq!(Groups::<(u64, [NonZeroU64; 1]), SLOTS, TwoLines>::group_bytes(), 2 * 64);
        assert_eq!(Groups::<(u64, [NonZeroU64; 2]), SLOTS, OneLine>::group_bytes(), 3 * 64);
    }
}
