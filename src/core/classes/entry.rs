//! What is kept of each class beside its node in the tree: its queue, its counts, its name, and the classes in it.

use super::name::ClassName;
use super::offer::ClassId;
use crate::core::claim_scope::ClaimScope;
use crate::core::queue::Queue;
use crate::name::Name;
use crate::observe::ClassLabel;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::{Arc, Weak};

/// A class, or the leaf for the claims made in a class with children: what each wait reads and writes, in few cache lines,
/// because with thousands of classes the entry of a class is usually in no cache. The rest is in [`RareEntry`].
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ClassEntry {
    /// The waiters of the class.
    pub(crate) queue: Queue,
    /// The leaf of the tree for the claims made in this class: the class itself, or a child.
    pub(crate) leaf: ClassId,
    /// The class of the claims that wait in this leaf.
    pub(crate) owner: ClassId,

    /// Tokens of the installments that the class was served.
    pub(crate) served: u64,
    pub(crate) max_waiting: u64,
    pub(crate) is_removed: bool,
    /// Whether joint claims wait in the class.
    pub(crate) has_joint: bool,
    /// Whether the front claim that the scheduler knows is a joint one.
    pub(crate) offers_joint: bool,
    /// Keys of keyed limiters have classes in this one.
    pub(crate) has_keys: bool,
    /// The class of a key: it is among the `indebted`.
    pub(super) is_indebted: bool,

    /// What the handles of the class share; see [`read_ahead`](Self::read_ahead). `None` for the class of a key, and for a
    /// removed class.
    pub(super) scope: Option<Weak<dyn ClaimScope + Send + Sync>>,
}

const _: () = assert!(size_of::<ClassEntry>() == 128);

/// What a wait in a class does not need.
#[derive(Debug, Default)]
pub(super) struct RareEntry {
    /// The part of [`ClassEntry::served`] that was served by the floor.
    pub(super) by_floor: u64,
    pub(super) name: ClassName,
    /// Its number among all classes that were made.
    pub(super) made: u64,
    /// How many joint claims wait in it; for the class of a key, also how many links to the parent use it.
    pub(super) users: u32,
    /// The fronts of joint sets that wait in the class for their turn: their costs, by number.
    pub(super) joint: BTreeMap<u64, u64>,
    /// The number of the one that is the front claim that the scheduler knows, if it is one.
    pub(super) offered: Option<u64>,
    /// The numbers of those that had their turn and are not granted yet.
    pub(super) turned: BTreeSet<u64>,
    /// The classes in this one by name. A class that was removed is not among them.
    pub(super) children: BTreeMap<ClassName, ClassId>,
    /// The path of a class that has, or had, a ceiling.
    pub(super) ceiling_name: Name,
    /// How observers name a class that a user made, until it is removed.
    pub(super) label: Option<Arc<ClassLabel>>,
}

impl ClassEntry {
    pub(super) fn new(id: ClassId) -> Self {
        Self {
            queue: Queue::new(),
            leaf: id,
            owner: id,
            served: 0,
            max_waiting: u64::MAX,
            is_removed: false,
            has_joint: false,
            offers_joint: false,
            has_keys: false,
            is_indebted: false,
            scope: None,
        }
    }

    /// Reads what the front claim of a class reads first when it is polled: what the handles of the class share. With thousands
    /// of classes this is in no cache, and the processor fetches it while it serves the claim.
    #[inline]
    pub(crate) fn read_ahead(&self) {
        if let Some(scope) = &self.scope {
            black_box(scope.strong_count());
        }
    }
}
