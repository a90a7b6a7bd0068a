//! The operations of a class of a limiter.

use super::Core;
use crate::core::claim_scope::ClaimScope;
use crate::core::classes::{ClassFlags, ClassId, ROOT};
use crate::core::rovers::Rovers;
use crate::core::state::{CatchUp, MAX_COST, Reach, SharePlan, State};
use crate::error::{ConfigError, TryAcquireError};
use crate::observe::ClassLabel;
use std::sync::{Arc, Weak};

impl Core {
    /// The fast path of a class. A class under a ceiling has no fast path.
    #[inline]
    pub(crate) fn claim_in_class(&self, flags: &ClassFlags, cost: u64) -> Option<u64> {
        // Nothing to claim is the most common reason to wait. Then the flags, which are in no cache if there are thousands
        // of classes, are not read.
        if !self.rovers.may_claim(cost) || !flags.is_fast() {
            return None;
        }
        let remaining = self.try_claim(cost)?;
        if !flags.is_fast() {
            self.undo_claim(cost);
            return None;
        }
        Some(remaining)
    }

    /// Undoes a claim of the fast path: a ceiling was set, or the class was removed, during the claim. The ceiling was not
    /// charged.
    #[cold]
    fn undo_claim(&self, cost: u64) {
        self.give_back(ROOT, cost);
    }

    pub(crate) fn try_acquire_in_class(
        &self,
        class: ClassId,
        flags: &ClassFlags,
        label: &ClassLabel,
        cost: u64,
    ) -> Result<u64, TryAcquireError> {
        if cost <= MAX_COST
            && let Some(remaining) = self.claim_in_class(flags, cost)
        {
            return Ok(remaining);
        }
        let sample = self.sample();
        let (answer, source_task_is_gone) = match self.rovers.denial_of(cost, sample.tail) {
            // A kept denial applies only to classes without a ceiling.
            Some(denial) if flags.is_fast() && sample.now < denial.until => {
                (Err(TryAcquireError::Denied(denial.as_of(sample.now))), false)
            }
            _ => self.sampled(Some(sample), Reach::Held, CatchUp::Batch, |state, rovers, sample| {
                (state.try_acquire_in_class(rovers, class, cost, sample.now), state.source_task_is_gone())
            }),
        };
        if let Err(error) = &answer {
            if source_task_is_gone {
                self.replace_source_task();
            }
            self.observers().refused_in(Some(label), cost, *error);
        }
        answer
    }

    /// Adds a class in `parent`, which observers name by `label`.
    pub(crate) fn add_class(
        &self,
        parent: ClassId,
        name: Arc<str>,
        share: &SharePlan,
        label: &Arc<ClassLabel>,
    ) -> Result<(ClassId, Arc<ClassFlags>), ConfigError> {
        self.change_classes(|state| {
            let (class, flags) = state.add_class(parent, name, share)?;
            if let Some(classes) = state.classes_mut() {
                classes.set_label(class, Arc::clone(label));
            }
            Ok((class, flags))
        })
    }

    /// The class has handles, which share `scope`.
    pub(crate) fn set_scope(&self, class: ClassId, scope: Weak<dyn ClaimScope + Send + Sync>) {
        if let Some(classes) = self.state.lock().classes_mut() {
            classes.set_scope(class, scope);
        }
    }

    pub(crate) fn set_share(&self, class: ClassId, share: &SharePlan) -> Result<(), ConfigError> {
        self.change_classes(|state| state.set_share(class, share))
    }

    /// Changes the classes. Nothing can be claimed without the lock meanwhile: a claim made afterwards sees the change.
    fn change_classes<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        self.with(|state: &mut State, rovers: &Rovers, _| {
            state.retract(rovers);
            change(state)
        })
    }

    /// Turns the waiters of a class and of the classes in it away.
    pub(crate) fn remove_class(&self, class: ClassId) {
        self.change_classes(|state| state.remove_class(class));
        self.close_children_in(|state, group| state.is_closed(group));
    }

    /// The last handle of a class was dropped.
    pub(crate) fn free_class(&self, class: ClassId) {
        self.leaving(|state, _, _| state.free_class(class));
    }
}
