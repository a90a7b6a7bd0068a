//! The table of live entries: keys with waiters or tokens in flight, under the common quota.
//!
//! Like the table of [packed levels](super::packed_levels), it is made of groups of seven entries, each of them two
//! cache lines with 8-byte keys: a key with waiters is looked up again and again.

use super::groups::{EntryIndex, Groups};
use crate::core::Core;
use std::cell::Cell;
use std::sync::Arc;

const SLOTS: usize = 7;

type LiveEntry<K> = (K, Arc<Core>);

#[derive(Debug)]
pub(super) struct LiveEntries<K>(Groups<LiveEntry<K>, SLOTS>);

/// The hash of the key of this live entry.
pub(super) fn hash_of(live: &Core) -> u64 {
    live.key_hash().expect("every live entry stores the hash of its key")
}

impl<K> LiveEntries<K> {
    pub(super) fn new() -> Self {
        Self(Groups::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn slots(&self) -> usize {
        self.0.slots()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LiveEntry<K>> {
        self.0.iter()
    }

    /// Inserts the live entry of a key that is not in the table. Runs no user code.
    pub(super) fn insert(&mut self, key: K, live: Arc<Core>) {
        self.0.make_space(|(_, live)| hash_of(live));
        self.0.insert(hash_of(&live), (key, live));
    }

    /// Removes all entries for which `found` returns `Some`, and returns them with that value.
    pub(super) fn extract<T>(&mut self, mut found: impl FnMut(&Arc<Core>) -> Option<T>) -> Vec<(LiveEntry<K>, T)> {
        let (mut gone, last) = (Vec::new(), Cell::new(None));
        let is_it = |(_, live): &mut LiveEntry<K>| {
            last.set(found(live));
            let found = last.take();
            let is_found = found.is_some();
            last.set(found);
            is_found
        };
        self.0.extract(is_it, |live_entry| gone.extend(last.take().map(|found| (live_entry, found))));
        gone
    }

    /// Where exactly this live entry is, compared by address.
    pub(super) fn index_of(&self, hash: u64, live: *const Core) -> Option<EntryIndex> {
        self.0.index_of(hash, |(_, own)| Arc::as_ptr(own) == live)
    }

    pub(super) fn take(&mut self, index: EntryIndex) -> Option<LiveEntry<K>> {
        self.0.take(index)
    }

    /// Shrinks the table if more than three quarters of it are empty, down to `least` entries.
    pub(super) fn shrink(&mut self, least: usize) {
        self.0.shrink(least, |(_, live)| hash_of(live));
    }
}

impl<K: Eq> LiveEntries<K> {
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<&Arc<Core>> {
        self.0.find(hash, |(own, _)| own == key).map(|(_, live)| live)
    }

    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<LiveEntry<K>> {
        let index = self.0.index_of(hash, |(own, _)| own == key)?;
        self.0.take(index)
    }
}
