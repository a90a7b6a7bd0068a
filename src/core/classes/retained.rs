//! What removed classes leave for other classes of the same paths: otherwise a caller that makes and drops a class again and
//! again would gain an installment, a burst of its ceiling, and a service by floor each time.

use super::floor::units;
use super::name::ClassName;
use super::node::RareNode;
use super::offer::{ClassId, ROOT};
use super::table::{AllRetained, Classes, Retained};
use std::hash::BuildHasher;
use std::ops::Bound::{Excluded, Unbounded};

/// The most removed classes of which a limiter keeps what they owe, each by itself.
pub(super) const MOST_RETAINED: usize = 16_384;

impl AllRetained {
    const SLOTS: usize = 1 << 16;

    #[cfg(all(test, not(tollgate_loom)))]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets what the class of this path has left, but for the instant at which its ceiling is full.
    fn forget(&mut self, path: u64) {
        self.full.resize(Self::SLOTS, 0);
        if let Some(ceiling) = self.known.remove(&path).and_then(|retained| retained.ceiling) {
            let slot = &mut self.full[path as usize % Self::SLOTS];
            *slot = ceiling.full().max(*slot);
        }
    }
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
        // Two for each that is added, so that they cannot pile up. Where that is not enough, those that still owe go, too.
        for _ in 0..2 {
            let after = self.retained.swept.map_or(Unbounded, Excluded);
            let next = self.retained.known.range((after, Unbounded)).next();
            let next = next.map(|(path, retained)| (*path, self.is_forgettable(retained, now)));
            self.retained.swept = next.map(|(path, _)| path);
            match next {
                Some((path, true)) => _ = self.retained.known.remove(&path),
                Some((path, false)) if self.retained.known.len() > MOST_RETAINED => self.retained.forget(path),
                _ => {}
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
        if self.retained.known.is_empty() && self.retained.full.is_empty() {
            return;
        }
        let parent = self.scheduler.tree.parent(id);
        let around = (parent, self.rare(parent).made);
        let path = self.path_hash(parent, &self.rare(id).name);
        let retained = self.retained.known.remove(&path);
        let tree = &mut self.scheduler.tree;
        // Also of a class that is retained: it may have had no ceiling since it was forgotten.
        tree.rare_mut(id).former_full =
            self.retained.full.get(path as usize % AllRetained::SLOTS).copied().unwrap_or(0);
        let Some(retained) = retained else { return };
        if retained.around == around {
            // No tag is beyond the largest one, unless the tags were set back meanwhile.
            let tag = retained.tag.min(tree.rare(parent).largest);
            tree.node_mut(id).start.raise(tag);
        }
        let rare = tree.rare_mut(id);
        (rare.former_ceiling, rare.former_next) = (retained.ceiling, retained.next);
    }
}
