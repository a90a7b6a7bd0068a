//! A binary heap whose entries can be moved and removed by their position. The owner keeps the position of each entry
//! and is told when it changes.
//!
//! Entries are replaced in place: no allocation as long as the number of entries does not exceed its former maximum.

/// The position of an entry that is in no heap.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Heap<K> {
    /// The smallest entry is first; no entry is smaller than its parent, which is at `(position - 1) / 2`.
    entries: Vec<(K, u32)>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Copy + PartialOrd> Heap<K> {
    /// The smallest key and its owner.
    #[inline]
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Enters `id` with `key`, or replaces its key if it is entered at `position`. `moved` receives each entry's owner
    /// and its new position.
    pub(super) fn set(&mut self, position: u32, key: K, id: u32, mut moved: impl FnMut(u32, u32)) {
        if position == NOWHERE {
            self.entries.push((key, id));
            self.rise(self.entries.len() - 1, 0, (key, id), &mut moved);
        } else {
            self.replace(position as usize, (key, id), &mut moved);
        }
    }

    /// Changes all keys in a way that keeps their order.
    pub(super) fn map_keys(&mut self, change: impl Fn(K) -> K) {
        self.entries.iter_mut().for_each(|(key, _)| *key = change(*key));
    }

    /// Removes the entry at `position`, if it is in this heap.
    pub(super) fn remove(&mut self, position: u32, mut moved: impl FnMut(u32, u32)) {
        if position == NOWHERE {
            return;
        }
        let at = position as usize;
        let last = self.entries.pop().expect("the position is in the heap");
        if at < self.entries.len() {
            moved(self.entries[at].1, NOWHERE);
            self.replace(at, last, &mut moved);
        } else {
            moved(last.1, NOWHERE);
        }
    }

    /// Puts an entry in place of the one at `at`.
    #[inline]
    fn replace(&mut self, at: usize, entry: (K, u32), moved: &mut impl FnMut(u32, u32)) {
        if at > 0 && entry.0 < self.entries[(at - 1) / 2].0 {
            self.rise(at, 0, entry, moved);
        } else {
            self.sink(at, entry, moved);
        }
    }

    /// Puts an entry where it belongs between `top` and `at`: larger entries move down. The entry at `at` is overwritten.
    #[inline]
    fn rise(&mut self, mut at: usize, top: usize, entry: (K, u32), moved: &mut impl FnMut(u32, u32)) {
        while at > top {
            let above = (at - 1) / 2;
            if self.entries[above].0 <= entry.0 {
                break;
            }
            self.entries[at] = self.entries[above];
            moved(self.entries[at].1, at as u32);
            at = above;
        }
        self.entries[at] = entry;
        moved(entry.1, at as u32);
    }

    /// Puts an entry where it belongs at `top` or below: smaller entries move up. The entry at `top` is overwritten.
    ///
    /// A class that was served most often belongs near the bottom, where most entries are. So the gap goes down to the
    /// bottom with one comparison on each level, not two, and the entry rises from there.
    fn sink(&mut self, top: usize, entry: (K, u32), moved: &mut impl FnMut(u32, u32)) {
        let (mut at, entries) = (top, self.entries.as_mut_slice());
        loop {
            let mut below = 2 * at + 1;
            match entries.get(below..below + 2) {
                Some([left, right]) => below += usize::from(right.0 < left.0),
                _ if below < entries.len() => {}
                _ => break,
            }
            let least = &entries[below];
            if at == top && entry.0 <= least.0 {
                break;
            }
            moved(least.1, at as u32);
            entries[at] = *least;
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
        let mut keys = [0_u8; 40];
        for _ in 0..20_000 {
            let id = random.u32(0..40);
            let position = positions[id as usize];
            if position != NOWHERE {
                set.remove(&(keys[id as usize], id));
            }
            if random.u8(0..3) == 0 {
                heap.remove(position, |id, at| positions[id as usize] = at);
            } else {
                let key = random.u8(0..60);
                keys[id as usize] = key;
                heap.set(position, key, id, |id, at| positions[id as usize] = at);
                set.insert((key, id));
            }
            let first = heap.first();
            assert_eq!(first.map(|(key, _)| key), set.first().map(|(key, _)| *key));
            assert!(first.is_none_or(|first| set.contains(&first)));
            let entered = positions.iter().filter(|at| **at != NOWHERE).count();
            assert_eq!(entered, set.len());
        }
    }
}
