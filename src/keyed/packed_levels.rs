//! The table of packed levels: keys that owe tokens under the common quota, have no waiters and have no tokens in
//! flight.
//!
//! A packed level is one `NonZeroU64`, from which the level of the bucket at any instant of a window follows; see
//! [`rate`](super::rate) for the encoding and the window. The entry of a key does not change while time passes, and the
//! table does not store the quota: all packed levels of a shard have the shard's quota.
//!
//! The table is made of [groups](super::groups) of seven entries. With 8-byte keys a group is two neighbouring cache
//! lines, which processors fetch together: so finding a key that is in no cache waits for memory once.

use super::groups::Groups;
use std::num::NonZeroU64;

const SLOTS: usize = 7;

#[derive(Debug)]
pub(super) struct PackedLevels<K>(Groups<(K, NonZeroU64), SLOTS>);

impl<K> PackedLevels<K> {
    pub(super) fn new() -> Self {
        Self(Groups::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of entries that fit before the table has to be rebuilt.
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(super) fn slots(&self) -> usize {
        self.0.slots()
    }

    /// Inserts a packed level. The caller guarantees that there is space and that the key is not in the table.
    pub(super) fn insert(&mut self, hash: u64, key: K, packed: NonZeroU64) {
        self.0.insert(hash, (key, packed));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, NonZeroU64)> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (K, NonZeroU64)> {
        self.0.iter_mut()
    }

    /// Removes all entries with a packed level for which `is_it` returns true, and passes them to `to`.
    pub(super) fn extract(&mut self, mut is_it: impl FnMut(NonZeroU64) -> bool, mut to: impl FnMut(K, NonZeroU64)) {
        self.0.extract(|(_, packed)| is_it(*packed), |(key, packed)| to(key, packed));
    }

    /// Makes space for one entry, and for some more so that the next insertions need no rebuild.
    pub(super) fn make_space(&mut self, hash_of: impl Fn(&K) -> u64) {
        self.0.make_space(|(key, _)| hash_of(key));
    }

    /// Shrinks the table if more than three quarters of it are empty, down to `least` entries.
    pub(super) fn shrink(&mut self, least: usize, hash_of: impl Fn(&K) -> u64) {
        self.0.shrink(least, |(key, _)| hash_of(key));
    }
}

impl<K: Eq> PackedLevels<K> {
    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, key: &K) -> Option<&mut NonZeroU64> {
        self.0.find_mut(hash, |(own, _)| own == key).map(|(_, packed)| packed)
    }

    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<(K, NonZeroU64)> {
        let place = self.0.place(hash, |(own, _)| own == key)?;
        self.0.take(place)
    }
}
