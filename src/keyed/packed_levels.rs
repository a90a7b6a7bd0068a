//! The table of keys that are words: groups of seven, each two neighbouring cache lines with keys of 8 bytes, which
//! processors fetch together.

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

    /// How many entries there can be before the table has to be rebuilt.
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(super) fn slots(&self) -> usize {
        self.0.slots()
    }

    /// Keeps a word for which there is room, and of a key that is not there.
    pub(super) fn insert(&mut self, hash: u64, key: K, packed: NonZeroU64) {
        self.0.insert(hash, (key, packed));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, NonZeroU64)> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (K, NonZeroU64)> {
        self.0.iter_mut()
    }

    /// Takes out all entries whose word says so.
    pub(super) fn extract(&mut self, mut is_it: impl FnMut(NonZeroU64) -> bool, mut to: impl FnMut(K, NonZeroU64)) {
        self.0.extract(|(_, packed)| is_it(*packed), |(key, packed)| to(key, packed));
    }

    /// Sees to it that one entry can be inserted, and some more before this is asked again.
    pub(super) fn make_space(&mut self, hash_of: impl Fn(&K) -> u64) {
        self.0.make_space(|(key, _)| hash_of(key));
    }

    /// Shrinks a table of which more than three quarters are empty, down to `least` entries.
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
