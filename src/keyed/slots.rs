//! The table of a shard: a slot for each key in memory.
//!
//! A slot is the key and a word. The word of most keys is a [packed level](super::rate), which is odd; with two common
//! quotas there is a second word beside it. A key that needs more than that has an [`Own`], and its word is twice the
//! number of that, which is even. All `Own`s of a table are in one list, so that the keys with waiters are visited
//! without a look at the others.
//!
//! The slots are in [groups](super::groups) of seven. With 8-byte keys and one quota, a group is two neighbouring cache
//! lines, which processors fetch together: so finding a key that is in no cache waits for memory once. With two quotas
//! it is three lines, which the lookup requests together.

use super::groups::{EntryIndex, Groups, Home};
use super::rates::{Levels, Packed, Rates};
use super::{Hashed, ToKey};
use crate::core::Core;
use crate::core::in_use::InUse;
use slab::Slab;
use std::num::NonZeroU64;
use std::sync::Arc;

const PER_GROUP: usize = 7;

/// What is known about a key beside the common quotas and packed levels.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) rates: Arc<Rates>,
    pub(super) state: OwnState,
    /// True if a user set the quotas of this key: it must not be forgotten.
    pub(super) pinned: bool,
}

#[derive(Debug)]
pub(super) enum OwnState {
    /// Levels that are not packed.
    Levels(Box<Levels>),
    /// A [live entry](super::live): the key has waiters or tokens in flight.
    Live(Arc<Core>),
}

impl Own {
    pub(super) fn live(&self) -> Option<&Arc<Core>> {
        if let OwnState::Live(live) = &self.state { Some(live) } else { None }
    }

    pub(super) fn in_use(&self) -> Option<InUse> {
        self.live().cloned().map(InUse::new)
    }
}

/// The state of a key.
#[derive(Debug)]
pub(super) enum Slot<O = Own> {
    Packed(Packed),
    Own(O),
}

impl Slot {
    /// The state of a key with these levels: packed if they are of the common quotas, and fit.
    pub(super) fn of_levels(rates: &Arc<Rates>, levels: &Levels, are_common: bool) -> Self {
        if let Some(packed) = rates.pack(levels).filter(|_| are_common) {
            return Self::Packed(packed);
        }
        Self::Own(Own { rates: Arc::clone(rates), state: OwnState::Levels(Box::new(*levels)), pinned: false })
    }
}

/// The state of a key in its table.
pub(super) type SlotRef<'a> = Slot<&'a Own>;

/// What becomes of a key that [`Slots::update`] visits.
pub(super) enum Change {
    Kept,
    Becomes(Slot),
    Forgotten,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Slots<K> {
    pub(super) groups: Groups<(K, NonZeroU64), PER_GROUP>,
    /// Boxed, because few shards have any.
    owns: Option<Box<Slab<Own>>>,
}

/// The number of the `Own` that a word stands for; `None` for a packed level.
#[inline]
fn own_number(word: NonZeroU64) -> Option<usize> {
    (word.get() & 1 == 0).then(|| (word.get() >> 1) as usize - 1)
}

impl<K> Slots<K> {
    pub(super) fn new(has_two_quotas: bool) -> Self {
        let mut slots = Self { groups: Groups::new(), owns: None };
        slots.groups.keep_seconds(has_two_quotas);
        slots
    }

    /// Whether the table has to be rebuilt before another key fits.
    pub(super) fn is_filled(&self) -> bool {
        self.groups.len() == self.groups.capacity()
    }

    /// Makes space for one key, and for some more so that the next insertions need no rebuild. If `hash_of` panics,
    /// nothing has changed.
    pub(super) fn make_space(&mut self, hash_of: impl Fn(&K) -> u64) {
        self.groups.make_space(|(key, _)| hash_of(key));
    }

    /// Shrinks the table, and the list of `Own`s, if more than three quarters of it are empty, down to `least` slots.
    /// As with [`make_space`](Self::make_space), `hash_of` may panic.
    pub(super) fn shrink(&mut self, least: usize, hash_of: impl Fn(&K) -> u64) {
        self.groups.shrink(least, |(key, _)| hash_of(key));
        match self.owns.take().filter(|owns| !owns.is_empty()) {
            Some(owns) if owns.capacity() > least && owns.len() < owns.capacity() / 4 => self.move_owns(*owns),
            owns => self.owns = owns,
        }
    }

    /// Moves all `Own`s to a new list: a visit to all of them looks at free places too.
    fn move_owns(&mut self, mut owns: Slab<Own>) {
        for index in self.groups.indices_from(0) {
            let number = self.groups.at(index).and_then(|(_, word)| own_number(*word));
            if let Some(own) = number.and_then(|number| owns.try_remove(number)) {
                let word = self.add_own(own);
                self.set_packed(index, Packed { first: word, second: 0 });
            }
        }
    }

    /// The key of a slot; `None` if the slot is empty.
    #[inline]
    pub(super) fn key(&self, index: EntryIndex) -> Option<&K> {
        self.groups.at(index).map(|(key, _)| key)
    }

    /// The word of a slot in use.
    #[inline]
    fn word(&self, index: EntryIndex) -> NonZeroU64 {
        self.groups.at(index).map_or(NonZeroU64::MIN, |(_, word)| *word)
    }

    #[inline]
    fn own(&self, number: usize) -> &Own {
        let own = self.owns.as_ref().and_then(|owns| owns.get(number));
        own.expect("the list of a table has what its slots name")
    }

    /// The state of a slot in use.
    #[inline]
    pub(super) fn at(&self, index: EntryIndex) -> SlotRef<'_> {
        let first = self.word(index);
        match own_number(first) {
            None => SlotRef::Packed(Packed { first, second: self.groups.second(index) }),
            Some(number) => SlotRef::Own(self.own(number)),
        }
    }

    #[inline]
    pub(super) fn set_packed(&mut self, index: EntryIndex, packed: Packed) {
        if let Some((_, word)) = self.groups.at_mut(index) {
            *word = packed.first;
        }
        self.groups.set_second(index, packed.second);
    }

    pub(super) fn own_mut(&mut self, index: EntryIndex) -> Option<&mut Own> {
        let number = own_number(self.word(index))?;
        self.owns.as_mut()?.get_mut(number)
    }

    /// Replaces the state of a slot in use, which is no live entry.
    pub(super) fn set(&mut self, index: EntryIndex, slot: Slot) {
        self.take_own(self.word(index));
        let packed = self.packed(slot);
        self.set_packed(index, packed);
    }

    /// The words of a slot, which for an `Own` is added to the list.
    #[inline]
    fn packed(&mut self, slot: Slot) -> Packed {
        match slot {
            Slot::Packed(packed) => packed,
            Slot::Own(own) => Packed { first: self.add_own(own), second: 0 },
        }
    }

    fn add_own(&mut self, own: Own) -> NonZeroU64 {
        let number = self.owns.get_or_insert_default().insert(own);
        NonZeroU64::new((number as u64 + 1) << 1).expect("not zero: memory holds fewer")
    }

    fn take_own(&mut self, word: NonZeroU64) -> Option<Own> {
        self.owns.as_mut()?.try_remove(own_number(word)?)
    }

    /// Inserts a key. The caller guarantees that there is space and that the key is not in the table.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, key: K, slot: Slot) {
        let Packed { first, second } = self.packed(slot);
        let index = self.groups.insert(hash, (key, first));
        self.groups.set_second(index, second);
    }

    /// Removes a key.
    pub(super) fn take(&mut self, index: EntryIndex) -> Option<K> {
        let (key, word) = self.groups.take(index)?;
        self.take_own(word);
        Some(key)
    }

    /// The keys from group `from` on, for as many groups, with their states.
    pub(super) fn piece(&self, from: usize, groups: usize) -> impl Iterator<Item = (&K, SlotRef<'_>)> {
        let indices = self.groups.indices_from(from).take(groups * PER_GROUP);
        indices.filter_map(|index| Some((&self.groups.at(index)?.0, self.at(index))))
    }

    /// Whether no group follows this piece.
    pub(super) fn is_last_piece(&self, from: usize, groups: usize) -> bool {
        (from + groups) * PER_GROUP >= self.groups.slots()
    }

    /// All `Own`s, in no order.
    pub(super) fn owns(&self) -> impl Iterator<Item = &Own> {
        self.owns.iter().flat_map(|owns| owns.iter().map(|(_, own)| own))
    }

    pub(super) fn owns_mut(&mut self) -> impl Iterator<Item = &mut Own> {
        self.owns.iter_mut().flat_map(|owns| owns.iter_mut().map(|(_, own)| own))
    }

    /// Visits all keys. `on_packed` and `on_own` say what becomes of each; a key that is forgotten is moved to `gone`.
    pub(super) fn update(
        &mut self,
        mut on_packed: impl FnMut(Packed) -> Change,
        mut on_own: impl FnMut(&mut Own) -> Change,
        gone: &mut Vec<K>,
    ) {
        for index in self.groups.indices_from(0) {
            let Some((_, first)) = self.groups.at(index) else { continue };
            let first = *first;
            let change = match own_number(first) {
                None => on_packed(Packed { first, second: self.groups.second(index) }),
                Some(number) => match self.owns.as_mut().and_then(|owns| owns.get_mut(number)) {
                    Some(own) => on_own(own),
                    None => Change::Kept,
                },
            };
            match change {
                Change::Kept => {}
                Change::Becomes(slot) => self.set(index, slot),
                Change::Forgotten => gone.extend(self.take(index)),
            }
        }
    }

    /// Where exactly this live entry is, compared by address.
    pub(super) fn index_of_live(&self, hash: u64, live: *const Core) -> Option<EntryIndex> {
        self.groups.index_of(hash, |(_, word)| {
            let own = own_number(*word).and_then(|number| self.own(number).live());
            own.is_some_and(|own| Arc::as_ptr(own) == live)
        })
    }
}

impl<K> Slots<K> {
    /// Where the key is, and its word.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        home: Home,
        form: &(impl ToKey<K> + ?Sized),
    ) -> Option<(EntryIndex, &mut NonZeroU64)> {
        let (index, (_, word)) = self.groups.find(home, |(own, _)| form.equivalent(own))?;
        Some((index, word))
    }

    #[inline]
    pub(super) fn index_of(&self, key: Hashed<'_, impl ToKey<K> + ?Sized>) -> Option<EntryIndex> {
        self.groups.index_of(key.hash, |(own, _)| key.form.equivalent(own))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
