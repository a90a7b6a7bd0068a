//! A tournament tree: finds the smallest of entries that are changed and removed by their slot.
//!
//! An entry keeps its slot until it is removed. Each match between two neighbours stores the slot of the smaller one, up
//! to the final. A changed entry repeats the matches on its way up, one comparison in each, and its opponents do not
//! depend on how the matches below end: if they are in no cache, the processor fetches all of them at once. A heap
//! compares with several entries in each level, finds the next ones only when that is done, and moves entries, so that
//! their owners have to be told where they are.
//!
//! No allocation as long as the number of entries does not exceed its former maximum.

/// The slot of an entry that is not in the tree.
pub(super) const NOWHERE: u32 = u32::MAX;

/// What is in a tree.
pub(super) trait Entry: Copy {
    /// After every entry: stands for an empty slot.
    const EMPTY: Self;

    fn owner(&self) -> u32;

    /// The order. No two entries of one tree are equal.
    fn is_before(&self, other: &Self) -> bool;
}

impl Entry for (u64, u32) {
    const EMPTY: Self = (u64::MAX, u32::MAX);

    #[inline]
    fn owner(&self) -> u32 {
        self.1
    }

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        self < other
    }
}

#[derive(Clone, Debug)]
pub(super) struct Tournament<E> {
    /// By slot, as many as were ever used.
    entries: Vec<E>,
    /// The slot of the smallest entry below each match. The final is number 1; the matches that lead to number `n` are
    /// `2 n` and `2 n + 1`, and in the first round entries take their places, in the order of their slots. The number of slots
    /// is a power of two, and at least two unless there was never an entry.
    winners: Vec<u32>,
    /// Slots that were left.
    free: Vec<u32>,
}

impl<E> Default for Tournament<E> {
    fn default() -> Self {
        Self { entries: Vec::new(), winners: Vec::new(), free: Vec::new() }
    }
}

impl<E: Entry> Tournament<E> {
    /// The smallest entry.
    #[inline]
    pub(super) fn first(&self) -> Option<&E> {
        let first = self.entries.get(*self.winners.get(1)? as usize)?;
        (first.owner() != E::EMPTY.owner()).then_some(first)
    }

    /// Enters `entry`, or replaces the one in `slot` by it. Returns its slot.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, entry: E) -> u32 {
        let slot = if slot == NOWHERE { self.take_slot() } else { slot };
        self.entries[slot as usize] = entry;
        self.repeat_matches(slot);
        slot
    }

    /// Removes the entry in `slot`.
    pub(super) fn remove(&mut self, slot: u32) {
        self.entries[slot as usize] = E::EMPTY;
        self.repeat_matches(slot);
        self.free.push(slot);
    }

    /// Changes all entries in a way that keeps their order.
    pub(super) fn map(&mut self, change: impl Fn(E) -> E) {
        let is_entered = |entry: &&mut E| entry.owner() != E::EMPTY.owner();
        self.entries.iter_mut().filter(is_entered).for_each(|entry| *entry = change(*entry));
    }

    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            if self.entries.len() == self.winners.len() {
                self.grow();
            }
            self.entries.push(E::EMPTY);
            self.entries.len() as u32 - 1
        })
    }

    /// Puts as many slots behind those that there are. No entry is looked at: an unused slot loses against a used one.
    #[cold]
    fn grow(&mut self) {
        let slots = self.winners.len();
        let mut winners = Vec::with_capacity(2 * slots);
        winners.extend([0, 0]);
        while winners.len() < 2 * slots {
            // A round, from the final on: the known matches, and as many in the second half.
            let known = winners.len() / 2;
            let each = slots / known;
            winners.extend_from_slice(&self.winners[known..2 * known]);
            winners.extend((0..known).map(|place| (slots + place * each) as u32));
        }
        winners[1] = self.winners.get(1).copied().unwrap_or(0);
        self.winners = winners;
    }

    #[inline]
    fn smaller(&self, a: u32, b: u32) -> u32 {
        // A slot that was never used loses.
        let is_b = self.entries.get(b as usize).is_some_and(|entry| entry.is_before(&self.entries[a as usize]));
        // Without a branch: which of them wins cannot be predicted.
        a ^ ((a ^ b) & u32::from(is_b).wrapping_neg())
    }

    /// The entry in `slot` has changed.
    #[inline]
    fn repeat_matches(&mut self, slot: u32) {
        let mut place = self.winners.len() + slot as usize;
        let (mut best, mut rival) = (slot, slot ^ 1);
        loop {
            best = self.smaller(best, rival);
            place /= 2;
            let before = std::mem::replace(&mut self.winners[place], best);
            // Where neither the former nor the present winner is the changed entry, nothing changes from here on.
            if place == 1 || before == best && best != slot {
                return;
            }
            rival = self.winners[place ^ 1];
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
