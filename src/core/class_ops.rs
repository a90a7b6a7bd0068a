//! The operations of a class of a limiter.

use super::Core;
use crate::core::claim_scope::ClaimScope;
use crate::core::classes::ClassId;
use crate::core::state::SharePlan;
use crate::error::{ConfigError, TryAcquireError};
use crate::observe::{ClassLabel, GrantWord};
use std::sync::{Arc, Weak};

impl Core {
    pub(crate) fn try_acquire_in_class(
        &self,
        class: ClassId,
        label: &ClassLabel,
        cost: u64,
    ) -> Result<GrantWord, TryAcquireError> {
        let answer = self.try_acquire_slowly(class, cost, self.sample());
        if let Err(error) = &answer {
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
    ) -> Result<ClassId, ConfigError> {
        self.with(|state, _, _| {
            let class = state.add_class(parent, name, share)?;
            if let Some(classes) = state.classes_mut() {
                classes.set_label(class, Arc::clone(label));
            }
            Ok(class)
        })
    }

    /// The class has handles, which share `scope`.
    pub(crate) fn set_scope(&self, class: ClassId, scope: Weak<dyn ClaimScope + Send + Sync>) {
        if let Some(classes) = self.state.lock().classes_mut() {
            classes.set_scope(class, scope);
        }
    }

    pub(crate) fn set_share(&self, class: ClassId, share: &SharePlan) -> Result<(), ConfigError> {
        self.with(|state, _, _| state.set_share(class, share))
    }

    /// Turns the waiters of a class and of the classes in it away. If the clock panics at the first step, nothing has changed.
    /// Later on the last sample is used: the removal has begun.
    pub(crate) fn remove_class(&self, class: ClassId) {
        let mut more = self.with(|state, _, _| state.remove_class(class));
        while more {
            more = self.with_anyway(|state, _, _| state.remove_class(class));
        }
        self.close_children_in(|state, group| state.is_closed(group));
    }

    /// The last handle of a class was dropped.
    pub(crate) fn free_class(&self, class: ClassId) {
        self.leaving(|state, _, _| state.free_class(class));
    }
}
