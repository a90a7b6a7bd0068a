//! A heap whose entries can be moved and removed by their position. The owner keeps the position of each entry
//! and is told when it changes.
//!
//! Entries are replaced in place: no allocation as long as the number of entries does not exceed its former maximum.

/// The position of an entry that is in no heap.
pub(super) const NOWHERE: u32 = u32::MAX;

/// What is in a heap: the key that orders it, and its owner.
pub(super) trait Entry: Copy + PartialOrd {
    fn owner(&self) -> u32;
}

impl Entry for (u64, u32) {
    #[inline]
    fn owner(&self) -> u32 {
        self.1
    }
}

/// How many entries are below each one. Four have half as many levels as two, with the same number of comparisons: each
/// level that is not in a cache costs a wait.
const FAN: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Heap<E> {
    /// The smallest entry is first; no entry is smaller than the one above it, which is at `(position - 1) / FAN`.
    entries: Vec<E>,
}

impl<E> Default for Heap<E> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<E: Entry> Heap<E> {
    /// The smallest entry.
    #[inline]
    pub(super) fn first(&self) -> Option<&E> {
        self.entries.first()
    }

    /// Enters `entry`, or replaces by it the one of its owner, which is at `position`. `moved` receives each owner and its
    /// new position.
    pub(super) fn set(&mut self, position: u32, entry: E, mut moved: impl FnMut(u32, u32)) {
        if position == NOWHERE {
            self.entries.push(entry);
            self.rise(self.entries.len() - 1, 0, entry, &mut moved);
        } else {
            self.replace(position as usize, entry, &mut moved);
        }
    }

    /// Changes all entries in a way that keeps their order.
    pub(super) fn map(&mut self, change: impl Fn(E) -> E) {
        self.entries.iter_mut().for_each(|entry| *entry = change(*entry));
    }

    /// Removes the entry at `position`, if it is in this heap.
    pub(super) fn remove(&mut self, position: u32, mut moved: impl FnMut(u32, u32)) {
        let at = position as usize;
        if at >= self.entries.len() {
            return;
        }
        let last = self.entries.len() - 1;
        moved(self.entries[at].owner(), NOWHERE);
        let entry = self.entries[last];
        self.entries.truncate(last);
        if at < last {
            self.replace(at, entry, &mut moved);
        }
    }

    /// Puts an entry in place of the one at `at`.
    #[inline]
    fn replace(&mut self, at: usize, entry: E, moved: &mut impl FnMut(u32, u32)) {
        if at > 0 && entry < self.entries[(at - 1) / FAN] {
            self.rise(at, 0, entry, moved);
        } else {
            self.sink(at, entry, moved);
        }
    }

    /// Puts an entry where it belongs between `top` and `at`: larger entries move down. The entry at `at` is overwritten.
    #[inline]
    fn rise(&mut self, mut at: usize, top: usize, entry: E, moved: &mut impl FnMut(u32, u32)) {
        while at > top {
            let above = (at - 1) / FAN;
            if self.entries[above] <= entry {
                break;
            }
            self.entries[at] = self.entries[above];
            moved(self.entries[at].owner(), at as u32);
            at = above;
        }
        self.entries[at] = entry;
        moved(entry.owner(), at as u32);
    }

    /// Puts an entry where it belongs at `top` or below: smaller entries move up. The entry at `top` is overwritten.
    ///
    /// A class that was served most often belongs near the bottom, where most entries are. So the gap goes down to the
    /// bottom without comparisons with the entry, and the entry rises from there.
    fn sink(&mut self, top: usize, entry: E, moved: &mut impl FnMut(u32, u32)) {
        let (mut at, entries) = (top, self.entries.as_mut_slice());
        while FAN * at + 1 < entries.len() {
            let first = FAN * at + 1;
            let mut below = first;
            for other in first + 1..entries.len().min(first + FAN) {
                below = if entries[other] < entries[below] { other } else { below };
            }
            if at == top && entry <= entries[below] {
                break;
            }
            entries[at] = entries[below];
            moved(entries[at].owner(), at as u32);
            at = below;
        }
        self.rise(at, top, entry, moved);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_heap_agrees_with_an_ordered_set() {
        let mut random = fastrand::Rng::with_seed(18);
        let (mut heap, mut set) = (Heap::default(), BTreeSet::new());
        let mut positions = [NOWHERE; 40];
        let mut keys = [0_u64; 40];
        for _ in 0..20_000 {
            let id = random.u32(0..40);
            let position = positions[id as usize];
            if position != NOWHERE {
                set.remove(&(keys[id as usize], id));
            }
            if random.u8(0..3) == 0 {
                heap.remove(position, |id, at| positions[id as usize] = at);
            } else {
                let key = random.u64(0..60);
                keys[id as usize] = key;
                heap.set(position, (key, id), |id, at| positions[id as usize] = at);
                set.insert((key, id));
            }
            assert_eq!(heap.first(), set.first());
            let entered = positions.iter().filter(|at| **at != NOWHERE).count();
            assert_eq!(entered, set.len());
        }
    }
}
