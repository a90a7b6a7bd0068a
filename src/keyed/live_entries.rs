//! The table of keys that have a seat and the quota that all have in common: as that of [words](super::words), two cache lines
//! for each group of seven with keys of 8 bytes. Whoever waits has to be found again and again.

use super::groups::{Groups, Place};
use crate::core::Core;
use std::cell::Cell;
use std::sync::Arc;

const SLOTS: usize = 7;

type LiveEntry<K> = (K, Arc<Core>);

#[derive(Debug)]
pub(super) struct LiveEntries<K>(Groups<LiveEntry<K>, SLOTS>);

/// Of the key of this seat.
pub(super) fn hash_of(live: &Core) -> u64 {
    live.key_hash().expect("every seat has the mark of its key")
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

    /// Keeps the seat of a key that is not there. No user code runs.
    pub(super) fn insert(&mut self, key: K, live: Arc<Core>) {
        self.0.make_space(|(_, live)| hash_of(live));
        self.0.insert(hash_of(&live), (key, live));
    }

    /// Takes out all entries of whose seat something is `found`.
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

    /// Where this very seat is.
    pub(super) fn place(&self, hash: u64, live: *const Core) -> Option<Place> {
        self.0.place(hash, |(_, own)| Arc::as_ptr(own) == live)
    }

    pub(super) fn take(&mut self, place: Place) -> Option<LiveEntry<K>> {
        self.0.take(place)
    }

    /// Shrinks a table of which more than three quarters are empty, down to `least` entries.
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
        let place = self.0.place(hash, |(own, _)| own == key)?;
        self.0.take(place)
    }
}
