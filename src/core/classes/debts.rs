//! Debts of classes: tokens that were charged on top of grants while claims waited. A class pays its debt in its turns, before
//! its front claim.

use super::node::Leaf;
use super::offer::ClassId;
use super::scheduler::Scheduler;
use crate::core::steps;
use crate::core::supply::Supply;

/// How many debts are taken off their leaves while the lock is held.
const DEBTS_AT_ONCE: usize = 256;

impl Scheduler {
    /// A debt of `tokens` joins a leaf in which no claim waits, while other claims wait.
    pub(crate) fn add_debt(&mut self, leaf: ClassId, tokens: u64, now: u64) {
        debug_assert!(!self.are_debts_charged, "it would be taken off with the others");
        let known = self.leaf(leaf);
        self.list_debtor(leaf);
        self.set_leaf(leaf, Leaf { owed: known.owed + tokens, ..known }, now);
    }

    pub(super) fn list_debtor(&mut self, id: ClassId) {
        if !std::mem::replace(&mut self.tree.rare_mut(id).is_debtor, true) {
            self.debtors.push(id);
        }
    }

    /// No claim waits any more: charges the rest of all debts at once.
    pub(crate) fn charge_debts(&mut self, supply: &mut Supply) {
        let (sum, now) = (supply.debts(), supply.synced());
        if sum > 0 {
            supply.pass(0, sum);
            self.note_taken(sum, now);
            self.take_debts_off(now);
        }
    }

    /// Takes charged debts off their leaves, a bounded number for one hold of the lock. Returns whether none is left.
    pub(super) fn take_debts_off(&mut self, now: u64) -> bool {
        for id in self.debtors.split_off(self.debtors.len().saturating_sub(DEBTS_AT_ONCE)) {
            steps::count();
            self.tree.rare_mut(id).is_debtor = false;
            self.set_leaf(id, Leaf { owed: 0, ..self.leaf(id) }, now);
        }
        self.are_debts_charged = !self.debtors.is_empty();
        !self.are_debts_charged
    }

    /// The debt that a leaf pays before its front claim.
    pub(crate) fn debt(&self, leaf: ClassId) -> u64 {
        self.leaf(leaf).owed
    }
}
