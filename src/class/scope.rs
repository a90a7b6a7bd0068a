//! What the handles of a class share.

use crate::core::Core;
use crate::core::classes::{ClassFlags, ClassId};
use crate::core::limiter_ref::ClaimScope;
use crate::error::TryAcquireError;
use crate::limiter::Limiter;
use crate::observe::ClassLabel;
use std::fmt;
use std::sync::Arc;

/// What the handles, the claims and the grants of a class share. The class ends with it.
pub struct Scope {
    pub(super) limiter: Limiter,
    pub(super) id: ClassId,
    pub(super) flags: Arc<ClassFlags>,
    pub(super) name: Arc<str>,
    pub(super) label: Arc<ClassLabel>,
    /// Keeps the class around this one alive.
    pub(super) parent: Option<super::Class>,
}

impl ClaimScope for Scope {
    fn flags(&self) -> Option<&Arc<ClassFlags>> {
        Some(&self.flags)
    }

    #[inline]
    fn core(&self) -> &Core {
        self.limiter.core()
    }

    #[inline]
    fn class(&self) -> ClassId {
        self.id
    }

    #[inline]
    fn claim_fast(&self, cost: u64) -> Option<u64> {
        self.core().claim_in_class(&self.flags, cost)
    }

    #[inline]
    fn label(&self) -> Option<&ClassLabel> {
        Some(&self.label)
    }

    #[inline]
    fn try_acquire(&self, cost: u64) -> Result<u64, TryAcquireError> {
        self.core().try_acquire_in_class(self.id, &self.flags, &self.label, cost)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Class").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.core().free_class(self.id);
    }
}
