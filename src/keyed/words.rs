//! The table of keys that are words: a key is one place in memory, and one wait for it.
//!
//! Keys and words lie in *groups* of seven, each with the tags of its seven on its own first bytes: with keys of 8 bytes a
//! group is two neighbouring cache lines, which processors fetch together. (Tables that keep all tags in one array and all
//! entries in another wait twice for a key that is in no cache: the place of the entry is known when the tags have come.)
//!
//! An entry is in the group its hash says, its *home*, or if that was full in one of the next; each group counts how many went
//! on from it, so that a search ends where nobody went on. No marks are left behind by those who go.
//!
//! A hasher that panics must not lose entries, for a forgotten key is a reset limit: so a table that is rebuilt computes all
//! hashes before the first entry is moved.

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroU64;

const SLOTS: usize = 7;
/// Of the seven, so many are taken on average when the table grows.
const FILLED: usize = 6;
/// A count or a distance that stands for any larger one.
const MANY: u8 = u8::MAX;

pub(super) struct Words<K> {
    groups: Box<[Group<K>]>,
    len: usize,
}

#[repr(C, align(128))]
struct Group<K> {
    /// A part of the hash of each entry, never 0; 0 where there is none.
    tags: [u8; SLOTS],
    /// How many entries went on from here, for want of room.
    passed: u8,
    /// How many groups each entry is away from its home.
    away: [u8; SLOTS],
    entries: [Option<(K, NonZeroU64)>; SLOTS],
}

/// Where an entry is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    group: usize,
    slot: usize,
}

impl<K> Group<K> {
    fn new() -> Self {
        Self { tags: [0; SLOTS], passed: 0, away: [0; SLOTS], entries: [const { None }; SLOTS] }
    }

    /// A bit for each slot that may have this tag: the lowest of every eight.
    #[inline]
    fn candidates(&self, tag: u8) -> u64 {
        const ONES: u64 = 0x0001_0101_0101_0101;
        let [a, b, c, d, e, f, g] = self.tags;
        let differing = u64::from_le_bytes([a, b, c, d, e, f, g, 0]) ^ (ONES * u64::from(tag));
        // A byte that is 0 turns its top bit on; so may the one above it, which costs a comparison.
        (differing.wrapping_sub(ONES) & !differing & (ONES << 7)) >> 7
    }

    fn free(&self) -> Option<usize> {
        self.tags.iter().position(|tag| *tag == 0)
    }
}

impl<K> Words<K> {
    pub(super) fn new() -> Self {
        Self { groups: Box::default(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many entries there can be before the table has to be rebuilt.
    pub(super) fn capacity(&self) -> usize {
        self.groups.len() * FILLED
    }

    pub(super) fn slots(&self) -> usize {
        self.groups.len() * SLOTS
    }

    /// Home and tag. Rooms go by the upper bits of the same product.
    #[inline]
    fn home(&self, hash: u64) -> (usize, u8) {
        let mixed = super::mix(hash);
        let group = ((mixed.rotate_left(32) as u128 * self.groups.len() as u128) >> 64) as usize;
        (group, ((mixed >> 16) as u8).max(1))
    }

    /// The next group, around the end.
    #[inline]
    fn after(&self, group: usize) -> usize {
        if group + 1 == self.groups.len() { 0 } else { group + 1 }
    }

    /// Lets those who went past `away` groups from `home` on be forgotten. What is not known exactly stays.
    fn forget_passing(&mut self, mut group: usize, away: u8) {
        if away == MANY {
            return;
        }
        for _ in 0..away {
            group = if group == 0 { self.groups.len() - 1 } else { group - 1 };
            let passed = &mut self.groups[group].passed;
            *passed -= u8::from(*passed != MANY);
        }
    }

    fn take(&mut self, Place { group, slot }: Place) -> Option<(K, NonZeroU64)> {
        let own = &mut self.groups[group];
        let (entry, away) = (own.entries[slot].take(), own.away[slot]);
        own.tags[slot] = 0;
        self.len -= 1;
        self.forget_passing(group, away);
        entry
    }

    /// Keeps an entry for which there is room, and which is not there.
    pub(super) fn insert(&mut self, hash: u64, key: K, word: NonZeroU64) {
        let (mut group, tag) = self.home(hash);
        let mut away = 0_usize;
        let slot = loop {
            if let Some(slot) = self.groups[group].free() {
                break slot;
            }
            let passed = &mut self.groups[group].passed;
            *passed = passed.saturating_add(1);
            group = self.after(group);
            away += 1;
        };
        let own = &mut self.groups[group];
        own.tags[slot] = tag;
        own.away[slot] = u8::try_from(away).unwrap_or(MANY);
        own.entries[slot] = Some((key, word));
        self.len += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, NonZeroU64)> {
        self.groups.iter().flat_map(|group| group.entries.iter().flatten())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (K, NonZeroU64)> {
        self.groups.iter_mut().flat_map(|group| group.entries.iter_mut().flatten())
    }

    /// Takes out all entries whose word says so.
    pub(super) fn extract(&mut self, mut is_it: impl FnMut(NonZeroU64) -> bool, mut to: impl FnMut(K, NonZeroU64)) {
        for group in 0..self.groups.len() {
            for slot in 0..SLOTS {
                let is_it = self.groups[group].entries[slot].as_ref().is_some_and(|(_, word)| is_it(*word));
                if is_it && let Some((key, word)) = self.take(Place { group, slot }) {
                    to(key, word);
                }
            }
        }
    }

    /// Sees to it that one entry can be inserted, and some more before this is asked again.
    pub(super) fn make_room(&mut self, hash_of: impl Fn(&K) -> u64) {
        if self.len + self.capacity() / 8 >= self.capacity() {
            // By a third: the table is between two thirds and all of its size full.
            self.rebuild(self.len + self.len / 3 + 1, hash_of);
        }
    }

    /// Shrinks a table of which more than three quarters are empty, down to `least` entries.
    pub(super) fn shrink(&mut self, least: usize, hash_of: impl Fn(&K) -> u64) {
        if self.capacity() > least && self.len < self.capacity() / 4 {
            self.rebuild((self.len * 2).max(least / 2), hash_of);
        }
    }

    fn rebuild(&mut self, capacity: usize, hash_of: impl Fn(&K) -> u64) {
        let hashes: Vec<u64> = self.iter().map(|(key, _)| hash_of(key)).collect();
        let groups = (0..capacity.div_ceil(FILLED)).map(|_| Group::new()).collect();
        let old = std::mem::replace(self, Self { groups, len: 0 });
        let entries = old.groups.into_iter().flat_map(|group| group.entries.into_iter().flatten());
        for ((key, word), hash) in entries.zip(hashes) {
            self.insert(hash, key, word);
        }
    }
}

impl<K: Eq> Words<K> {
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<Place> {
        if self.groups.is_empty() {
            return None;
        }
        let (mut group, tag) = self.home(hash);
        for _ in 0..self.groups.len() {
            let own = &self.groups[group];
            // Has the group's other line come while the tags do, and not after them.
            black_box(own.entries[SLOTS - 1].is_some());
            let mut candidates = own.candidates(tag);
            while candidates != 0 {
                let slot = (candidates.trailing_zeros() / 8) as usize;
                if own.entries[slot].as_ref().is_some_and(|(other, _)| other == key) {
                    return Some(Place { group, slot });
                }
                candidates &= candidates - 1;
            }
            if own.passed == 0 {
                return None;
            }
            group = self.after(group);
        }
        None
    }

    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, key: &K) -> Option<&mut NonZeroU64> {
        let Place { group, slot } = self.find(hash, key)?;
        self.groups[group].entries[slot].as_mut().map(|(_, word)| word)
    }

    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<(K, NonZeroU64)> {
        let place = self.find(hash, key)?;
        self.take(place)
    }
}

impl<K> fmt::Debug for Words<K> {
    /// Without the keys: they are the users' users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_key_of_eight_bytes_is_on_two_neighbouring_lines() {
        assert_eq!((size_of::<Group<u64>>(), align_of::<Group<u64>>()), (128, 128));
    }

    /// Comes and goes at random, against a map, with hashes that are good, few, or all the same.
    #[test]
    fn the_table_agrees_with_a_map() {
        for hashes in [u64::MAX, 0xff, 3, 0] {
            let hash_of = |key: &u64| key.wrapping_mul(0x2545_f491_4f6c_dd1d) & hashes;
            let (mut words, mut map) = (Words::new(), HashMap::new());
            let mut random = 88_172_645_463_325_252_u64;
            for step in 0..30_000_u64 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Waves: the table fills, and empties again.
                let (key, comes) = (random % 500, (random >> 32) % 100 < if step / 3_000 % 2 == 0 { 70 } else { 20 });
                let word = NonZeroU64::new(step + 1).unwrap();
                let found = words.find_mut(hash_of(&key), &key).map(|own| *own);
                assert_eq!(found, map.get(&key).copied());
                match (found, comes) {
                    (None, true) => {
                        words.make_room(hash_of);
                        words.insert(hash_of(&key), key, word);
                        map.insert(key, word);
                    }
                    (Some(_), true) => {
                        *words.find_mut(hash_of(&key), &key).unwrap() = word;
                        map.insert(key, word);
                    }
                    (_, false) => {
                        let gone = words.remove(hash_of(&key), &key);
                        assert_eq!(gone.map(|(_, word)| word), map.remove(&key));
                    }
                }
                if step % 5_000 == 4_999 {
                    let mut gone = Vec::new();
                    words.extract(|word| word.get() % 3 == 0, |key, _| gone.push(key));
                    gone.into_iter().for_each(|key| assert_eq!(map.remove(&key).unwrap().get() % 3, 0));
                    words.shrink(8, hash_of);
                }
                assert_eq!(words.len(), map.len());
            }
            let listed: HashMap<u64, NonZeroU64> = words.iter().copied().collect();
            assert_eq!(listed, map);
            let kept = words.groups.iter().filter(|group| group.passed == MANY).count();
            assert!(hashes < 4 || kept == 0, "counts of those who went on are exact");
            words.extract(|_| true, |_, _| {});
            let passed: usize = words.groups.iter().map(|group| usize::from(group.passed)).sum();
            assert!(hashes < 4 || passed == 0, "and nobody is left who did");
        }
    }
}
