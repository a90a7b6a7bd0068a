//! Read access to the classes of a limiter, for callers that report them.

use super::State;
use crate::core::Core;
use crate::core::classes::{ClassId, ROOT};
use crate::core::rovers::Rovers;
use crate::core::steps;
use crate::observe::ClassLabel;
use std::sync::Arc;

/// What a meter publishes of a class.
#[derive(Debug)]
pub(crate) struct ClassTotals {
    pub(crate) label: Arc<ClassLabel>,
    pub(crate) served: u64,
    pub(crate) waiting_tasks: u64,
    pub(crate) waiting_tokens: u64,
}

/// How many classes a meter looks at while the lock is held.
const LOOKED_AT_AT_ONCE: ClassId = 1_024;

impl Core {
    /// What a meter publishes of the classes that users made. Releases the lock now and then.
    pub(crate) fn class_totals(&self) -> Vec<ClassTotals> {
        let mut totals = Vec::new();
        let mut from = ROOT;
        while self.has_classes && self.look_at(|state, _, _| state.add_class_totals(from, &mut totals)) {
            from += LOOKED_AT_AT_ONCE;
        }
        totals
    }
}

impl State {
    /// Adds what a meter publishes of some classes, those from this number on. Returns false if there are none.
    fn add_class_totals(&self, from: ClassId, totals: &mut Vec<ClassTotals>) -> bool {
        let Some(classes) = self.classes() else { return false };
        let some = (from..classes.len()).take(LOOKED_AT_AT_ONCE as usize);
        totals.extend(some.filter_map(|class| {
            steps::count();
            let label = Arc::clone(classes.label(class)?);
            let (waiting_tasks, waiting_tokens) = self.waiting_in(class);
            Some(ClassTotals { label, served: classes.entry(class).served, waiting_tasks, waiting_tokens })
        }));
        from < classes.len()
    }

    /// How many claims wait in a class itself, and their tokens; also joint claims.
    pub(crate) fn waiting_in(&self, class: ClassId) -> (u64, u64) {
        let Some(classes) = self.classes() else { return (0, 0) };
        let entry = classes.entry(class);
        let (waiting, tokens) = (entry.queue.len(), entry.queue.tokens());
        let (joint, joint_tokens) = self.joint().map_or((0, 0), |fronts| fronts.waiting_in(class));
        (waiting + joint, u64::try_from(u128::from(tokens) + joint_tokens).unwrap_or(u64::MAX))
    }

    /// The number of tokens that `try_acquire` could get now, in a class or in a limiter without classes.
    pub(crate) fn available_in(&mut self, rovers: &Rovers, class: ClassId) -> u64 {
        if self.is_closed(class) {
            return 0;
        }
        let now = self.supply.synced();
        let level = if self.is_clear() { self.available(rovers) } else { self.level_beside_held(rovers, class) };
        let Some(classes) = self.classes_mut() else { return level };
        let leaf = classes.entry(class).leaf;
        level.min(classes.scheduler.tree.space_below_ceilings(leaf, now))
    }

    /// The tokens that are there while claims wait in other classes: only if ceilings hold all of these back, and none of
    /// these ceilings is above the class. If one is, it may be the turn of the other claim.
    fn level_beside_held(&mut self, rovers: &Rovers, class: ClassId) -> u64 {
        let now = self.supply.synced();
        let base = self.base(rovers);
        let is_open = self.is_open(base, class, 0);
        let Some(classes) = self.classes_mut() else { return 0 };
        let leaf = classes.entry(class).leaf;
        let tree = &mut classes.scheduler.tree;
        let mut above = leaf;
        while above != ROOT {
            if tree.ceiling(above).is_some() && tree.view(above, now).0 {
                return 0;
            }
            above = tree.parent(above);
        }
        if is_open && tree.pick().is_none() { self.supply.level(base, 0) } else { 0 }
    }
}
