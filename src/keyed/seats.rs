//! The table of keys that have a seat and the quota that all have in common: as that of [words](super::words), two cache lines
//! for each group of seven with keys of 8 bytes. Whoever waits has to be found again and again.

use super::groups::{Groups, Place};
use crate::shared::Shared;
use std::cell::Cell;
use std::sync::Arc;

const SLOTS: usize = 7;

type Seated<K> = (K, Arc<Shared>);

#[derive(Debug)]
pub(super) struct Seats<K>(Groups<Seated<K>, SLOTS>);

/// Of the key of this seat.
pub(super) fn hash_of(seat: &Shared) -> u64 {
    seat.mark().expect("every seat has the mark of its key")
}

impl<K> Seats<K> {
    pub(super) fn new() -> Self {
        Self(Groups::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn slots(&self) -> usize {
        self.0.slots()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Seated<K>> {
        self.0.iter()
    }

    /// Keeps the seat of a key that is not there. No user code runs.
    pub(super) fn insert(&mut self, key: K, seat: Arc<Shared>) {
        self.0.make_room(|(_, seat)| hash_of(seat));
        self.0.insert(hash_of(&seat), (key, seat));
    }

    /// Takes out all entries of whose seat something is `found`.
    pub(super) fn extract<T>(&mut self, mut found: impl FnMut(&Arc<Shared>) -> Option<T>) -> Vec<(Seated<K>, T)> {
        let (mut gone, last) = (Vec::new(), Cell::new(None));
        let is_it = |(_, seat): &mut Seated<K>| {
            last.set(found(seat));
            let found = last.take();
            let is_found = found.is_some();
            last.set(found);
            is_found
        };
        self.0.extract(is_it, |seated| gone.extend(last.take().map(|found| (seated, found))));
        gone
    }

    /// Where this very seat is.
    pub(super) fn place(&self, hash: u64, seat: *const Shared) -> Option<Place> {
        self.0.place(hash, |(_, own)| Arc::as_ptr(own) == seat)
    }

    pub(super) fn take(&mut self, place: Place) -> Option<Seated<K>> {
        self.0.take(place)
    }

    /// Shrinks a table of which more than three quarters are empty, down to `least` entries.
    pub(super) fn shrink(&mut self, least: usize) {
        self.0.shrink(least, |(_, seat)| hash_of(seat));
    }
}

impl<K: Eq> Seats<K> {
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<&Arc<Shared>> {
        self.0.find(hash, |(own, _)| own == key).map(|(_, seat)| seat)
    }

    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<Seated<K>> {
        let place = self.0.place(hash, |(own, _)| own == key)?;
        self.0.take(place)
    }
}
