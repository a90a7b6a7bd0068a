//! What the classes lack: for a quota that many limiters share.

use super::name::ClassName;
use super::offer::ClassId;
use super::table::Classes;

/// A class, and the tokens that claims made in the class itself lack.
#[derive(Debug)]
pub(crate) struct ClassLack<'a> {
    pub(crate) class: ClassId,
    pub(crate) parent: ClassId,
    pub(crate) name: &'a ClassName,
    pub(crate) weight: u64,
    pub(crate) tokens: u64,
    /// What claims made in the class itself were served so far.
    pub(crate) served: u64,
}

impl Classes {
    /// All classes with what they lack, each before the classes in it.
    pub(crate) fn lacks(&self) -> impl Iterator<Item = ClassLack<'_>> {
        self.all().into_iter().map(|class| {
            let entry = self.entry(class);
            let parent = self.scheduler.tree.parent(class);
            let tokens = entry.queue.tokens() - self.scheduler.paid(entry.leaf) + self.scheduler.debt(entry.leaf);
            let (name, weight) = (&self.rare(class).name, self.weight(class));
            ClassLack { class, parent, name, weight, tokens, served: entry.served }
        })
    }

    /// How many classes there are beside the root, without those of keys.
    pub(crate) fn count(&self) -> usize {
        self.all().len() - 1
    }
}
