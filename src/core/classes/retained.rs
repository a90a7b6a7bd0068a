//! What a removed class leaves behind under its name.

use super::ceiling::Ceiling;
use super::floor::{FloorTime, units};
use super::name::ClassName;
use super::node::RareNode;
use super::offer::ClassId;
use super::tags::Tag;
use super::tree::Tree;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// What a removed class leaves for another class of the same name.
#[derive(Clone, Debug)]
pub(crate) struct Retained {
    pub(super) tag: Tag,
    /// The instant of the next installment of its floor.
    pub(super) next: FloorTime,
    pub(super) ceiling: Option<Box<Ceiling>>,
    /// What the classes in it have left, by name.
    pub(super) children: BTreeMap<ClassName, Retained>,
}

impl Retained {
    /// How many classes it tells of.
    pub(super) fn count(&self) -> usize {
        1 + self.children.values().map(Self::count).sum::<usize>()
    }

    /// The class around it is gone too, and its virtual time begins anew: there the tag means nothing.
    pub(super) fn without_tag(self) -> Self {
        Self { tag: 0, ..self }
    }
}

/// When the ceilings of removed classes are full, for more names than are kept: each slot belongs to several names, and has
/// the latest instant of them. So none has tokens that it used, and some are empty because another name used its own. A debt
/// is forgotten.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    hasher: RandomState,
    /// Empty until the first class is forgotten.
    full: Vec<u64>,
}

impl Forgotten {
    const SLOTS: usize = 1 << 16;

    pub(super) fn is_empty(&self) -> bool {
        self.full.is_empty()
    }

    /// The hash of the path of a class, by that of the class around it.
    pub(super) fn hash(&self, around: u64, name: &ClassName) -> u64 {
        self.hasher.hash_one((around, name))
    }

    /// Forgets what a class has left, and the classes in it.
    pub(super) fn add(&mut self, path: u64, retained: &Retained) {
        self.full.resize(Self::SLOTS, 0);
        if let Some(ceiling) = &retained.ceiling {
            let slot = &mut self.full[path as usize % Self::SLOTS];
            *slot = ceiling.full().max(*slot);
        }
        for (name, child) in &retained.children {
            self.add(self.hash(path, name), child);
        }
    }

    /// The instant before which a new ceiling of this class is not full.
    pub(super) fn full(&self, path: u64) -> u64 {
        self.full.get(path as usize % Self::SLOTS).copied().unwrap_or(0)
    }
}

impl Tree {
    /// What a class that is removed leaves, beside what its own `children` have left; `None` if nothing is lost with it:
    /// neither a charge that is still ahead of its siblings, nor a floor or a ceiling that was used lately. `leaf` is the
    /// leaf for its own claims.
    pub(crate) fn retained(
        &self,
        id: ClassId,
        leaf: ClassId,
        children: BTreeMap<ClassName, Retained>,
        now: u64,
    ) -> Option<Retained> {
        let (node, rare, own) = (self.node(id), self.rare(id), self.rare(leaf));
        let retained = Retained {
            tag: node.start.tag,
            next: own.floor.as_ref().map_or(own.former_next, |floor| floor.next),
            ceiling: rare.ceiling.as_ref().or(rare.former_ceiling.as_ref()).cloned(),
            children,
        };
        (!self.is_forgettable(node.parent, &retained, now)).then_some(retained)
    }

    /// Whether a class of `parent` that had left `retained` would be none the worse for it.
    pub(crate) fn is_forgettable(&self, parent: ClassId, retained: &Retained, now: u64) -> bool {
        let RareNode { virtual_time, largest, .. } = *self.rare(parent);
        retained.tag.min(largest) <= virtual_time
            && retained.next <= units(now)
            && retained.ceiling.as_ref().is_none_or(|ceiling| ceiling.full() <= now)
            && retained.children.values().all(|child| self.is_forgettable(parent, child, now))
    }

    /// A class of the same name was removed and left `retained`: otherwise a caller that makes and drops a class again and
    /// again would gain an installment, a burst of its ceiling, and a service by floor each time.
    pub(crate) fn restore(&mut self, id: ClassId, retained: Retained) {
        // No tag is beyond the largest one, unless the tags were set back meanwhile.
        let tag = retained.tag.min(self.rare(self.parent(id)).largest);
        self.node_mut(id).start.raise(tag);
        let rare = self.rare_mut(id);
        (rare.former_ceiling, rare.former_next) = (retained.ceiling, retained.next);
    }

    /// A class of the same name may have been removed, with a ceiling that is full at this instant.
    pub(crate) fn restore_forgotten(&mut self, id: ClassId, full: u64) {
        self.rare_mut(id).former_full = full;
    }
}
