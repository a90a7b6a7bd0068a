//! The weights that are applied to classes in the place of those configured, and what the classes lack: for a quota that
//! many limiters share.

use super::entry::RareEntry;
use super::name::ClassName;
use super::offer::{ClassId, ROOT};
use super::table::Classes;

/// A class, and the tokens that claims made in the class itself lack.
#[derive(Debug)]
pub(crate) struct ClassLack<'a> {
    pub(crate) class: ClassId,
    pub(crate) parent: ClassId,
    pub(crate) name: &'a ClassName,
    /// As configured.
    pub(crate) weight: u64,
    pub(crate) tokens: u64,
    /// What claims made in the class itself were served so far.
    pub(crate) served: u64,
    /// For how long claims have waited there so far, in nanoseconds.
    pub(crate) waited: u64,
}

impl Classes {
    /// All classes with what they lack, each before the classes in it. `waiting` is the cost of all claims in the limiter.
    pub(crate) fn lacks(&self, waiting: u64, now: u64) -> impl Iterator<Item = ClassLack<'_>> {
        self.all().into_iter().map(move |class| {
            let entry = self.entry(class);
            let costs = if class == ROOT { waiting - self.waiting } else { entry.queue.tokens() };
            let parent = if class == ROOT { ROOT } else { self.scheduler.tree.parent(class) };
            let tokens = costs - self.scheduler.paid(entry.leaf) + self.scheduler.debt(entry.leaf);
            let RareEntry { name, weight, waited, waits_since, .. } = self.rare(class);
            let waits = if costs > 0 { now.saturating_sub(*waits_since) } else { 0 };
            ClassLack { class, parent, name, weight: *weight, tokens, served: entry.served, waited: waited + waits }
        })
    }

    /// Applies the weight `whole` to a class, and `own` to the claims made in the class itself, if it has classes in it.
    pub(crate) fn apply_weights(&mut self, class: ClassId, whole: u64, own: u64, now: u64) {
        let leaf = self.entry(class).leaf;
        let applied = [(class, whole), (leaf, own)];
        let tree = &mut self.scheduler.tree;
        for (class, weight) in applied.into_iter().take(if leaf == class { 1 } else { 2 }) {
            if class != ROOT && tree.weight(class) != weight {
                tree.rescale_weight(class, weight, now);
            }
        }
    }

    /// From now on the claims of the class itself rest or not: see [`Tree::set_resting`](super::tree::Tree::set_resting).
    pub(crate) fn set_resting(&mut self, class: ClassId, rests: bool, now: u64) {
        let leaf = self.entry(class).leaf;
        self.scheduler.tree.set_resting(leaf, rests, now);
    }

    /// Claims wait in the class from now on, where none did.
    pub(crate) fn note_wait_begins(&mut self, class: ClassId, now: u64) {
        self.rare_mut(class).waits_since = now;
    }

    /// The last claim that waited in the class has left.
    pub(crate) fn note_wait_ends(&mut self, class: ClassId, now: u64) {
        let entry = self.rare_mut(class);
        entry.waited += now.saturating_sub(entry.waits_since);
    }

    /// Applies the configured weights, and lets no class rest.
    pub(crate) fn apply_own_weights(&mut self, now: u64) {
        for class in self.all() {
            self.apply_weights(class, self.rare(class).weight, 1, now);
            self.set_resting(class, false, now);
        }
    }

    /// How many classes there are beside the root, without those of keys.
    pub(crate) fn count(&self) -> usize {
        self.all().len() - 1
    }
}
