//! Hash tables in which a lookup waits for memory once.
//!
//! Entries are stored in *groups*. The first bytes of a group hold the tags of its entries. The cache lines of a group
//! are neighbours, and a lookup requests all of them at once. (Tables with all tags in one array and all entries in
//! another wait twice for a key that is in no cache, because the place of the entry is known only after its tag has
//! arrived.)
//!
//! An entry is in the group that its hash selects, its *home*, or in one of the next groups if its home was full. Each
//! group counts the entries that passed it for lack of space, so a search ends at the first group that no entry passed.
//! Removed entries leave no tombstones.
//!
//! A hasher that panics must not lose entries, because a forgotten key is a reset limit. A rebuild therefore computes
//! all hashes before it moves the first entry.

use std::fmt;
use std::hint::black_box;

/// A count or a distance of this value means "this or more".
const MANY: u8 = u8::MAX;
/// Bytes in a cache line.
const LINE: usize = 64;

/// A table of groups of `SLOTS` entries, at most seven.
#[repr(C)]
pub(super) struct Groups<E, const SLOTS: usize> {
    groups: Box<[Group<E, SLOTS>]>,
    len: u32,
    /// How many times the table was rebuilt. Between two rebuilds each entry stays where it is.
    pub(super) rebuilds: u32,
    /// A second word beside each entry, if [`keep_seconds`](Groups::keep_seconds) was called.
    seconds: Option<Box<[Seconds]>>,
}

/// The second words of the entries of a group, on one cache line. The one at [`REQUESTED`] is only written.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Seconds([u64; 8]);

/// Aligned to two cache lines, which processors fetch together.
#[repr(C, align(128))]
struct Group<E, const SLOTS: usize> {
    /// A byte for each slot, the lowest one first: a part of the hash of its entry, never 0; or 0 if the slot is empty. The
    /// highest byte tells how many entries passed this group for lack of space. This is read and written as one word: a
    /// processor waits for a word of which only a byte was just written.
    tags: u64,
    /// How many groups each entry is away from its home. Then, at [`REQUESTED`], a byte that is only written.
    away: [u8; 8],
    entries: [Option<E>; SLOTS],
}

const REQUESTED: usize = 7;
/// One entry that passed a group, in its tags.
const ONE_PASSED: u64 = 1 << 56;

/// The group in which a search begins, and the tag of the entry.
#[derive(Clone, Copy)]
pub(super) struct Home {
    group: usize,
    tag: u8,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryIndex {
    group: usize,
    slot: usize,
}

impl<E, const SLOTS: usize> Group<E, SLOTS> {
    /// The lowest bit of each tag.
    const ONES: u64 = u64::from_le_bytes([1; 8]) >> (8 * (8 - SLOTS));
    /// How many entries a cache line holds, rounded down.
    const PER_LINE: usize = if size_of::<Option<E>>() > LINE { 1 } else { LINE / size_of::<Option<E>>() };

    fn new() -> Self {
        const { assert!(SLOTS <= REQUESTED) };
        Self { tags: 0, away: [0; 8], entries: [const { None }; SLOTS] }
    }

    /// Returns a bit for each slot that may have this tag: the lowest bit of its byte.
    #[inline]
    fn candidates(&self, tag: u8) -> u64 {
        let differing = self.tags ^ (Self::ONES * u64::from(tag));
        // A zero byte sets its top bit. The byte above it may be set too, which only costs a comparison.
        (differing.wrapping_sub(Self::ONES) & !differing & (Self::ONES << 7)) >> 7
    }

    /// Reads the other cache lines of the group, so that they are fetched together with the tags and not after them.
    #[inline]
    fn prefetch(&self) {
        let mut slot = SLOTS - 1;
        while slot >= Self::PER_LINE {
            black_box(self.entries[slot].is_some());
            slot -= Self::PER_LINE;
        }
    }

    /// The slot of an entry with this tag.
    #[inline(always)]
    fn slot_of(&self, tag: u8, is_it: &impl Fn(&E) -> bool) -> Option<usize> {
        self.prefetch();
        let mut candidates = self.candidates(tag);
        while candidates != 0 {
            let slot = (candidates.trailing_zeros() / 8) as usize;
            if self.entries[slot].as_ref().is_some_and(is_it) {
                return Some(slot);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// How many entries passed this group.
    #[inline]
    fn passed(&self) -> u8 {
        (self.tags / ONE_PASSED) as u8
    }

    #[inline]
    fn free(&self) -> Option<usize> {
        // The lowest candidate is never one that differs.
        let free = self.candidates(0);
        (free != 0).then(|| (free.trailing_zeros() / 8) as usize)
    }
}

impl<E, const SLOTS: usize> Groups<E, SLOTS> {
    /// How many slots of a group are used on average when the table grows.
    const FILLED: usize = SLOTS * 6 / 7;

    pub(super) fn new() -> Self {
        Self { groups: Box::default(), len: 0, rebuilds: 0, seconds: None }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// The number of bytes of a group.
    #[cfg(test)]
    pub(super) const fn group_bytes() -> usize {
        size_of::<Group<E, SLOTS>>()
    }

    /// The number of entries that fit before the table has to be rebuilt.
    pub(super) fn capacity(&self) -> usize {
        self.groups.len() * Self::FILLED
    }

    pub(super) fn slots(&self) -> usize {
        self.groups.len() * SLOTS
    }

    /// The home and the tag of a hash. Shards are selected by the upper bits of the same product.
    #[inline]
    fn home(&self, hash: u64) -> Home {
        let mixed = super::mix(hash);
        let group = ((mixed.rotate_left(32) as u128 * self.groups.len() as u128) >> 64) as usize;
        Home { group, tag: ((mixed >> 16) as u8).max(1) }
    }

    /// Returns the home of a hash, and requests its cache lines, which arrive while the caller reads the clock. The requests
    /// are writes: the processor reads the clock after all earlier reads are done, but does not wait for writes.
    #[inline(always)]
    pub(super) fn request(&mut self, hash: u64) -> Home {
        let home = self.home(hash);
        if let Some(group) = self.groups.get_mut(home.group) {
            group.away[REQUESTED] = 1;
            if let Some(seconds) = &mut self.seconds {
                seconds[home.group].0[REQUESTED] = 1;
            }
        }
        home
    }

    /// The next group, cyclically.
    #[inline]
    fn after(&self, group: usize) -> usize {
        if group + 1 == self.groups.len() { 0 } else { group + 1 }
    }

    #[inline]
    pub(super) fn index_of(&self, hash: u64, is_it: impl Fn(&E) -> bool) -> Option<EntryIndex> {
        let Home { group, tag } = self.home(hash);
        let slot = self.groups.get(group)?.slot_of(tag, &is_it);
        slot.map(|slot| EntryIndex { group, slot }).or_else(|| self.find_after(group, tag, is_it))
    }

    /// Like [`index_of`](Self::index_of), with the entry.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        Home { group, tag }: Home,
        is_it: impl Fn(&E) -> bool,
    ) -> Option<(EntryIndex, &mut E)> {
        let own = self.groups.get(group)?;
        let index = match own.slot_of(tag, &is_it) {
            Some(slot) => return Some((EntryIndex { group, slot }, self.groups[group].entries[slot].as_mut()?)),
            None if own.passed() == 0 => return None,
            None => self.find_after(group, tag, is_it)?,
        };
        Some((index, self.at_mut(index)?))
    }

    /// The entry, if it is in a group after its home.
    #[inline(never)]
    fn find_after(&self, mut group: usize, tag: u8, is_it: impl Fn(&E) -> bool) -> Option<EntryIndex> {
        for _ in 1..self.groups.len() {
            if self.groups[group].passed() == 0 {
                break;
            }
            group = self.after(group);
            if let Some(slot) = self.groups[group].slot_of(tag, &is_it) {
                return Some(EntryIndex { group, slot });
            }
        }
        None
    }

    #[inline]
    pub(super) fn at(&self, EntryIndex { group, slot }: EntryIndex) -> Option<&E> {
        self.groups[group].entries[slot].as_ref()
    }

    #[inline]
    pub(super) fn at_mut(&mut self, EntryIndex { group, slot }: EntryIndex) -> Option<&mut E> {
        self.groups[group].entries[slot].as_mut()
    }

    /// Keeps a second word beside each entry from now on, 0 at first; or frees the memory of all second words. The caller
    /// then writes each entry anew.
    pub(super) fn keep_seconds(&mut self, are_kept: bool) {
        if self.seconds.is_some() != are_kept {
            self.seconds = are_kept.then(|| vec![Seconds::default(); self.groups.len()].into());
        }
    }

    /// The second word of an entry; 0 if none are kept.
    #[inline]
    pub(super) fn second(&self, EntryIndex { group, slot }: EntryIndex) -> u64 {
        self.seconds.as_ref().map_or(0, |seconds| seconds[group].0[slot])
    }

    #[inline]
    pub(super) fn set_second(&mut self, EntryIndex { group, slot }: EntryIndex, word: u64) {
        if let Some(seconds) = &mut self.seconds {
            seconds[group].0[slot] = word;
        }
    }

    /// Removes an entry in `group` from the counts of the `away` groups that it passed. Saturated counts stay as they
    /// are.
    fn forget_passing(&mut self, mut group: usize, away: u8) {
        if away == MANY {
            return;
        }
        for _ in 0..away {
            group = if group == 0 { self.groups.len() - 1 } else { group - 1 };
            let own = &mut self.groups[group];
            own.tags -= if own.passed() == MANY { 0 } else { ONE_PASSED };
        }
    }

    /// Removes and returns the entry at an index.
    pub(super) fn take(&mut self, EntryIndex { group, slot }: EntryIndex) -> Option<E> {
        let own = &mut self.groups[group];
        let (entry, away) = (own.entries[slot].take()?, own.away[slot]);
        own.tags &= !(0xff << (8 * slot));
        self.len -= 1;
        self.forget_passing(group, away);
        Some(entry)
    }

    /// Inserts an entry. The caller guarantees that there is space and that the entry is not in the table.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, entry: E) -> EntryIndex {
        let Home { mut group, tag } = self.home(hash);
        let mut away = 0_u8;
        loop {
            let own = &mut self.groups[group];
            if let Some(slot) = own.free() {
                own.tags |= u64::from(tag) << (8 * slot);
                (own.away[slot], own.entries[slot]) = (away, Some(entry));
                self.len += 1;
                return EntryIndex { group, slot };
            }
            own.tags += if own.passed() == MANY { 0 } else { ONE_PASSED };
            (group, away) = (self.after(group), away.saturating_add(1));
        }
    }

    /// The indices of all slots from this group on, also of empty ones.
    pub(super) fn indices_from(&self, group: usize) -> impl Iterator<Item = EntryIndex> + use<E, SLOTS> {
        (group..self.groups.len()).flat_map(|group| (0..SLOTS).map(move |slot| EntryIndex { group, slot }))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &E> {
        self.groups.iter().flat_map(|group| group.entries.iter().flatten())
    }

    /// Removes all entries for which `is_it` returns true, and passes them to `to`.
    #[cfg(any(test, feature = "distributed"))]
    pub(super) fn extract(&mut self, mut is_it: impl FnMut(&mut E) -> bool, mut to: impl FnMut(E)) {
        for index in self.indices_from(0) {
            if self.at_mut(index).is_some_and(&mut is_it) {
                if let Some(entry) = self.take(index) {
                    to(entry);
                }
            }
        }
    }

    /// Makes space for one entry, and for some more so that the next insertions need no rebuild.
    pub(super) fn make_space(&mut self, hash_of: impl Fn(&E) -> u64) {
        if self.len() + self.capacity() / 8 >= self.capacity() {
            // Grow by a half to the whole, at random: tables that fill at one pace then do not grow at one time, so that about
            // a quarter of all their places is free at any time.
            let random = self.iter().next().map_or(0, |entry| super::mix(hash_of(entry)) >> 40) as usize % 128;
            self.rebuild(self.len() + self.len() * (128 + random) / 256 + 1, hash_of);
        }
    }

    /// Shrinks the table if more than three quarters of it are empty, down to `least` entries.
    pub(super) fn shrink(&mut self, least: usize, hash_of: impl Fn(&E) -> u64) {
        if self.capacity() > least && self.len() < self.capacity() / 4 {
            self.rebuild((self.len() * 2).max(least / 2), hash_of);
        }
    }

    fn rebuild(&mut self, capacity: usize, hash_of: impl Fn(&E) -> u64) {
        let mut hashes = Vec::with_capacity(self.len());
        for group in &self.groups {
            for entry in group.entries.iter().flatten() {
                hashes.push(hash_of(entry));
            }
        }
        let groups = (0..capacity.div_ceil(Self::FILLED)).map(|_| Group::new()).collect();
        let mut old = std::mem::replace(self, Self { groups, rebuilds: self.rebuilds.wrapping_add(1), ..Self::new() });
        self.keep_seconds(old.seconds.is_some());
        let mut hashes = hashes.into_iter();
        for (number, group) in old.groups.iter_mut().enumerate() {
            for (slot, entry) in group.entries.iter_mut().enumerate() {
                let Some(entry) = entry.take() else { continue };
                let to = self.insert(hashes.next().expect("each entry was hashed"), entry);
                if let Some(seconds) = &old.seconds {
                    self.set_second(to, seconds[number].0[slot]);
                }
            }
        }
    }
}

impl<E, const SLOTS: usize> fmt::Debug for Groups<E, SLOTS> {
    /// Prints no entries: keys may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Groups").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
