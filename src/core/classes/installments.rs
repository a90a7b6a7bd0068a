//! How large the installments of each class can be.

use super::offer::{ClassId, ROOT};
use super::tree::Tree;
use crate::core::steps;

/// How many classes are looked at while the lock is held.
const LIMITED_AT_ONCE: usize = 1_024;

impl Tree {
    /// Computes the largest installments in a class and below it anew. If that are many, the
    /// [rest](Self::limit_more_installments) is left.
    pub(super) fn limit_installments(&mut self, root: ClassId, now: u64) {
        self.refresh_fully(root, now);
        let mut next = Some(root);
        for _ in 0..LIMITED_AT_ONCE {
            let Some(id) = next else { return };
            self.limit_installment(id, now);
            next = self.after(root, id);
        }
        self.unlimited = if next.is_some() { ROOT } else { self.unlimited };
    }

    /// Does what [`limit_installments`](Self::limit_installments) has left, for some classes. Until all are done, their
    /// installments can be too small, or too large for a ceiling, which holds them back until then. A quota gets none that
    /// is above its burst: [`pick`](super::Scheduler::pick) cuts it. Returns false if nothing is left.
    pub(crate) fn limit_more_installments(&mut self, now: u64) -> bool {
        let from = self.unlimited;
        for id in (from..self.len() as ClassId).take(LIMITED_AT_ONCE) {
            steps::count();
            self.limit_installment(id, now);
            self.unlimited = id + 1;
        }
        self.unlimited > from
    }

    pub(super) fn largest_installment(&self, id: ClassId) -> u64 {
        let ceilings = self.path(id).filter_map(|id| self.rare(id).ceiling.as_ref());
        ceilings.map(|ceiling| ceiling.burst()).fold(self.limits.burst, u64::min)
    }

    fn limit_installment(&mut self, id: ClassId, now: u64) {
        let most = self.largest_installment(id);
        let node = self.node_mut(id);
        if std::mem::replace(&mut node.most, most) != most && node.front.is_some() {
            self.refresh_fully(id, now);
        }
    }
}
