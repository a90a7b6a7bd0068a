//! What the limits mean for each class: how large its installments can be, and how much of its floor is applied.

use super::offer::{ClassId, NO_CLASS, ROOT};
use super::tree::Tree;
use crate::core::steps;

/// How many classes are looked at while the lock is held.
const LIMITED_AT_ONCE: usize = 128;

impl Tree {
    /// Computes anew what the limits mean for a class and those below it. If that are many, the
    /// [rest](Self::limit_more_classes) is left.
    pub(super) fn limit_classes(&mut self, root: ClassId, now: u64) {
        self.refresh_fully(root, now);
        let mut next = Some(root);
        for _ in 0..LIMITED_AT_ONCE {
            let Some(id) = next else { return };
            self.limit_class(id, now);
            next = self.after(root, id);
        }
        self.stale_from = ROOT;
    }

    /// Does what [`limit_classes`](Self::limit_classes) has left, for some classes. Until all are done, installments can be
    /// too small, or too large for a ceiling, which holds them back until then. A quota gets none that is above its burst:
    /// [`pick`](super::Scheduler::pick) cuts it. Returns whether nothing is left.
    pub(crate) fn limit_more_classes(&mut self, now: u64) -> bool {
        for _ in 0..LIMITED_AT_ONCE {
            if self.stale_from as usize >= self.len() {
                self.stale_from = NO_CLASS;
                return true;
            }
            steps::count();
            self.limit_class(self.stale_from, now);
            self.stale_from += 1;
        }
        false
    }

    pub(super) fn largest_installment(&self, id: ClassId) -> u64 {
        self.ceilings(id).map(|(_, ceiling)| ceiling.burst()).fold(self.limits.burst, u64::min)
    }

    pub(super) fn limit_class(&mut self, id: ClassId, now: u64) {
        let most = self.largest_installment(id);
        let applied = self.rare(id).floor.as_ref().map(|floor| self.scaled(floor.rate));
        let (node, rare) = (&mut self.nodes[id as usize], &mut self.rare[id as usize]);
        let mut is_changed = std::mem::replace(&mut node.most, most) != most;
        if let Some((floor, applied)) = rare.floor.as_mut().zip(applied) {
            is_changed |= std::mem::replace(&mut floor.applied, applied) != applied;
        }
        if is_changed && node.front.is_some() {
            self.refresh_fully(id, now);
        }
    }
}
