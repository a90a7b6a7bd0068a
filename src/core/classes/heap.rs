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

impl<K: Copy + Ord> Heap<K> {
    /// The smallest key and its owner.
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Enters `id` with `key`, or replaces its key if it is entered at `position`. `moved` receives each entry's owner
    /// and its new position.
    pub(super) fn set(&mut self, position: u32, key: K, id: u32, mut moved: impl FnMut(u32, u32)) {
        let mut at = position as usize;
        if position == NOWHERE {
            at = self.entries.len();
            self.entries.push((key, id));
        } else {
            self.entries[at] = (key, id);
        }
        at = self.sift_up(at, &mut moved);
        self.sift_down(at, &mut moved);
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
        let (_, id) = self.entries.swap_remove(at);
        moved(id, NOWHERE);
        if at < self.entries.len() {
            let at = self.sift_up(at, &mut moved);
            self.sift_down(at, &mut moved);
        }
    }

    fn sift_up(&mut self, mut at: usize, moved: &mut impl FnMut(u32, u32)) -> usize {
        while at > 0 && self.entries[at] < self.entries[(at - 1) / 2] {
            let above = (at - 1) / 2;
            self.entries.swap(at, above);
            moved(self.entries[at].1, at as u32);
            at = above;
        }
        at
    }

    fn sift_down(&mut self, mut at: usize, moved: &mut impl FnMut(u32, u32)) {
        loop {
            let left = 2 * at + 1;
            let Some(mut least) = self.entries.get(left) else { break };
            let mut below = left;
            if let Some(right) = self.entries.get(left + 1)
                && right < least
            {
                (least, below) = (right, left + 1);
            }
            if self.entries[at] <= *least {
                break;
            }
            self.entries.swap(at, below);
            moved(self.entries[at].1, at as u32);
            at = below;
        }
        moved(self.entries[at].1, at as u32);
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
                let key = random.u8(0..20);
                keys[id as usize] = key;
                heap.set(position, key, id, |id, at| positions[id as usize] = at);
                set.insert((key, id));
            }
            assert_eq!(heap.first(), set.first().copied());
            let entered = positions.iter().filter(|at| **at != NOWHERE).count();
            assert_eq!(entered, set.len());
        }
    }
}
