//! Who is here: keys that have a limiter, and what was said of others.
//!
//! What was said may be thrown away at any time, at the price of a round trip; so it needs no order in which to be thrown away.
//! A limiter is let go of only when it is at rest: what it held has gone back, and what it owes is paid.
//!
//! Under a shelf's lock runs no user code but `Eq` and `Clone` of keys, before the first change of what they are for. What
//! leaves is handed out, to be dropped without the lock.

use super::said::Said;
use crate::Limiter;
use crate::keyed::groups::Groups;
use crate::shared::drop_quietly;
use crate::sync::{AtomicU64, Ordering, RoomMutex};

/// So many shelves at most, and each for so many keys.
const MOST_SHELVES: u64 = 64;
const KEYS_PER_SHELF: u64 = 64;
/// With fewer than so many entries a shelf is not worth going through.
const SMALL: usize = 64;
/// Entries in a group of its tables: those of small keys fill three cache lines.
const SLOTS: usize = 5;

/// All of them, by the hashes of keys.
pub(super) struct Shelves<K> {
    shelves: Box<[RoomMutex<Shelf<K>>]>,
    /// How many limiters there may be, and as many keys of which something was said.
    most: u64,
    limiters: AtomicU64,
}

struct Shelf<K> {
    limiters: Groups<Entry<K, Limiter>, SLOTS>,
    said: Groups<Entry<K, Said>, SLOTS>,
    /// Once so many are remembered, those that need not be are looked for.
    crowd: usize,
}

struct Entry<K, V> {
    key: K,
    hash: u64,
    value: V,
}

/// A key's limiter, or what was said of the key.
pub(super) enum Found {
    Limiter(Limiter),
    Said(Said),
    Nothing,
}

impl<K> Shelves<K> {
    pub(super) fn new(most: Option<u64>) -> Self {
        let most = most.unwrap_or(u64::MAX);
        let count = (most / KEYS_PER_SHELF).clamp(1, MOST_SHELVES);
        let shelf = |_| RoomMutex::new(Shelf { limiters: Groups::new(), said: Groups::new(), crowd: SMALL });
        Self { shelves: (0..count).map(shelf).collect(), most, limiters: AtomicU64::new(0) }
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// How many keys have a limiter.
    pub(super) fn limiters(&self) -> u64 {
        self.limiters.load(Ordering::Acquire)
    }

    /// How many keys something was said of.
    pub(super) fn remembered(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.lock().said.len()).sum()
    }

    fn shelf(&self, hash: u64) -> &RoomMutex<Shelf<K>> {
        let number = (u128::from(crate::keyed::mix(hash)) * self.shelves.len() as u128) >> 64;
        &self.shelves[number as usize]
    }

    /// How many keys each shelf may remember.
    fn most_said(&self) -> usize {
        usize::try_from(self.most / self.shelves.len() as u64).unwrap_or(usize::MAX).max(1)
    }

    /// All limiters, a shelf at a time.
    pub(super) fn each_limiter(&self, mut act: impl FnMut(&Limiter)) {
        for shelf in &self.shelves {
            let limiters: Vec<Limiter> = shelf.lock().limiters.iter().map(|entry| entry.value.clone()).collect();
            limiters.iter().for_each(&mut act);
        }
    }

    /// Forgets the limiters of one shelf that are at rest. False if there is no such shelf.
    pub(super) fn tidy(&self, number: usize) -> bool {
        let Some(shelf) = self.shelves.get(number) else { return false };
        let mut shelf = shelf.lock();
        let mut gone = Vec::new();
        shelf.limiters.extract(|entry| entry.value.is_spare(), |entry| gone.push(entry));
        shelf.limiters.shrink(SMALL, |entry| entry.hash);
        drop(shelf);
        self.limiters.fetch_sub(gone.len() as u64, Ordering::AcqRel);
        drop_all(gone);
        true
    }
}

impl<K: Eq + Clone> Shelves<K> {
    pub(super) fn find(&self, key: &K, hash: u64) -> Found {
        let shelf = self.shelf(hash).lock();
        if let Some(entry) = shelf.limiters.find(hash, |entry| entry.key == *key) {
            return Found::Limiter(entry.value.clone());
        }
        shelf.said.find(hash, |entry| entry.key == *key).map_or(Found::Nothing, |entry| Found::Said(entry.value))
    }

    /// Changes what was said of a key that has no limiter, and remembers it.
    pub(super) fn note<R>(&self, key: &K, hash: u64, now: u64, act: impl FnOnce(&mut Said) -> R) -> R {
        let mut gone = Vec::new();
        let mut shelf = self.shelf(hash).lock();
        let result = if let Some(entry) = shelf.said.find_mut(hash, |entry| entry.key == *key) {
            act(&mut entry.value)
        } else {
            let mut value = Said::nothing(now);
            let result = act(&mut value);
            if shelf.limiters.find(hash, |entry| entry.key == *key).is_none() {
                let key = key.clone();
                shelf.make_room(now, self.most_said(), &mut gone);
                shelf.said.insert(hash, Entry { key, hash, value });
            }
            result
        };
        drop(shelf);
        drop_all(gone);
        result
    }

    /// The key's limiter; this one, if it has none and there is a place, or with `must` in any case.
    pub(super) fn put(&self, key: &K, hash: u64, limiter: Limiter, must: bool) -> Option<Limiter> {
        let mut shelf = self.shelf(hash).lock();
        if let Some(entry) = shelf.limiters.find(hash, |entry| entry.key == *key) {
            let found = entry.value.clone();
            drop(shelf);
            return Some(found);
        }
        let said = shelf.said.place(hash, |entry| entry.key == *key);
        let key = key.clone();
        shelf.limiters.make_room(|entry| entry.hash);
        let most = if must { u64::MAX } else { self.most };
        let taken = self
            .limiters
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
        if taken.is_err() {
            drop(shelf);
            drop_quietly(key);
            return None;
        }
        let said = said.and_then(|place| shelf.said.take(place));
        shelf.limiters.insert(hash, Entry { key, hash, value: limiter.clone() });
        drop(shelf);
        drop_quietly(said);
        Some(limiter)
    }
}

/// Keys are the user's: nobody's claim is lost by a drop that panics, nor the task that tidies. Each by itself, since two that
/// panic on their way out of one vector would abort the process.
fn drop_all<K, V>(gone: Vec<Entry<K, V>>) {
    gone.into_iter().for_each(drop_quietly);
}

impl<K> Shelf<K> {
    /// Sees to it that something may be said of one key more.
    fn make_room(&mut self, now: u64, most: usize, gone: &mut Vec<Entry<K, Said>>) {
        if self.said.len() >= self.crowd.min(most) {
            self.said.extract(|entry| entry.value.is_stale(now), |entry| gone.push(entry));
            // Where little was, all goes: else the next one would have to look again.
            if self.said.len() > most / 2 {
                self.said.extract(|_| true, |entry| gone.push(entry));
            }
            self.crowd = (2 * self.said.len()).max(SMALL);
            self.said.shrink(SMALL, |entry| entry.hash);
        }
        self.said.make_room(|entry| entry.hash);
    }
}
