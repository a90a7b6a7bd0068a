//! What removed classes leave for other classes of the same paths: otherwise a caller that makes and drops a class again and
//! again would gain an installment, a burst of its ceiling, and a service by floor each time.

use super::ceiling::Ceiling;
use super::floor::{FloorTime, units};
use super::name::ClassName;
use super::node::RareNode;
use super::offer::{ClassId, ROOT};
use super::table::Classes;
use super::tags::Tag;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound::{Excluded, Unbounded};

/// Beyond so many removed classes, those without a ceiling are forgotten although they still owe: clients choose keys, so their
/// number has no bound. A ceiling is kept until it is full again, because without that it would not hold.
pub(super) const MOST_RETAINED: usize = 16_384;

/// What removed classes leave.
#[derive(Debug, Default)]
pub(super) struct AllRetained {
    pub(super) hasher: RandomState,
    /// By the hash of the path.
    pub(super) known: BTreeMap<u64, Retained>,
    /// The last one that was looked at, to find those that are worth nothing any more.
    pub(super) swept: Option<u64>,
}

/// What one of them leaves.
#[derive(Debug)]
pub(super) struct Retained {
    /// The class around it: its number, and its number among all that were made.
    pub(super) around: (ClassId, u64),
    pub(super) tag: Tag,
    /// The instant of the next installment of its floor.
    pub(super) next: FloorTime,
    pub(super) ceiling: Option<Box<Ceiling>>,
}

impl Classes {
    /// The hash of the path of a class of this name.
    fn path_hash(&self, parent: ClassId, name: &ClassName) -> u64 {
        let around = match parent {
            ROOT => 0,
            _ => self.path_hash(self.scheduler.tree.parent(parent), &self.rare(parent).name),
        };
        self.retained.hasher.hash_one((around, name))
    }

    /// Keeps what a class that is removed leaves, unless nothing is lost with it: neither a charge that is still ahead of its
    /// siblings, nor a floor or a ceiling that was used lately.
    pub(super) fn retain(&mut self, id: ClassId, now: u64) {
        let tree = &self.scheduler.tree;
        let (around, own) = (tree.parent(id), tree.rare(self.entry(id).leaf));
        let RareNode { ceiling, former_ceiling, .. } = tree.rare(id);
        let retained = Retained {
            around: (around, self.rare(around).made),
            tag: tree.node(id).start.tag,
            next: own.floor.as_ref().map_or(own.former_next, |floor| floor.next),
            ceiling: ceiling.as_ref().or(former_ceiling.as_ref()).cloned(),
        };
        if self.is_forgettable(&retained, now) {
            return;
        }
        let path = self.path_hash(around, &self.rare(id).name);
        self.retained.known.insert(path, retained);
        // Two for each that is added, so that they cannot pile up.
        for _ in 0..2 {
            let after = self.retained.swept.map_or(Unbounded, Excluded);
            let next = self.retained.known.range((after, Unbounded)).next();
            let are_many = self.retained.known.len() > MOST_RETAINED;
            let goes = |it: &Retained| self.is_forgettable(it, now) || are_many && it.ceiling.is_none();
            let next = next.map(|(path, retained)| (*path, goes(retained)));
            self.retained.swept = next.map(|(path, _)| path);
            if let Some((path, true)) = next {
                self.retained.known.remove(&path);
            }
        }
    }

    /// Whether a class that had left `retained` would be none the worse for it.
    fn is_forgettable(&self, retained: &Retained, now: u64) -> bool {
        let (around, made) = retained.around;
        let RareNode { virtual_time, largest, .. } = *self.scheduler.tree.rare(around);
        // If the class around it is gone too, the tag means nothing.
        let is_gone = self.entry(around).is_removed || self.rare(around).made != made;
        (is_gone || retained.tag.min(largest) <= virtual_time)
            && retained.next <= units(now)
            && retained.ceiling.as_ref().is_none_or(|ceiling| ceiling.full() <= now)
    }

    /// A new class takes over what a removed one of its path has left.
    pub(super) fn restore(&mut self, id: ClassId) {
        if self.retained.known.is_empty() {
            return;
        }
        let parent = self.scheduler.tree.parent(id);
        let around = (parent, self.rare(parent).made);
        let path = self.path_hash(parent, &self.rare(id).name);
        let Some(retained) = self.retained.known.remove(&path) else { return };
        let tree = &mut self.scheduler.tree;
        if retained.around == around {
            // No tag is beyond the largest one, unless the tags were set back meanwhile.
            let tag = retained.tag.min(tree.rare(parent).largest);
            tree.node_mut(id).start.raise(tag);
        }
        let rare = tree.rare_mut(id);
        (rare.former_ceiling, rare.former_next) = (retained.ceiling, retained.next);
    }
}
