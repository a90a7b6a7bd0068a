//! How claims and grants hold their limiter, and in which class they were made.

use super::Core;
use crate::core::classes::{ClassFlags, ClassId, ROOT};
use crate::error::TryAcquireError;
use crate::observe::{ClassLabel, Observed};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A reference to a limiter, or to a class of one.
pub(crate) trait LimiterRef: Deref<Target = Core> {
    /// The class in which claims are made.
    #[inline]
    fn class(&self) -> ClassId {
        ROOT
    }

    /// The fast path of claims: grants `cost` tokens with one atomic operation and returns how many remain.
    #[inline]
    fn claim_fast(&self, cost: u64) -> Option<u64> {
        self.try_claim(cost)
    }

    /// The flags of that class; `None` for the limiter itself.
    #[inline]
    fn flags(&self) -> Option<&ClassFlags> {
        None
    }

    /// How observers name the class in which claims are made.
    #[inline]
    fn label(&self) -> Option<&ClassLabel> {
        None
    }

    /// The observers, the clock and the class for reports about claims.
    #[inline]
    fn observed_here(&self) -> Observed<'_> {
        Observed { class: self.label(), ..self.observed() }
    }
}

impl LimiterRef for &Core {}

impl LimiterRef for Arc<Core> {}

/// The state that all handles of a limiter, or of a class, share, and in which their claims are made. The trait cannot
/// be named outside of this crate.
pub trait ClaimScope: fmt::Debug + 'static {
    /// The flags of the class, which can be read without the lock; `None` for the limiter itself.
    fn flags(&self) -> Option<&Arc<ClassFlags>> {
        None
    }

    /// The limiter.
    fn core(&self) -> &Core;

    /// The class in which claims are made.
    fn class(&self) -> ClassId;

    /// The fast path of claims; see [`LimiterRef::claim_fast`].
    fn claim_fast(&self, cost: u64) -> Option<u64>;

    /// How observers name the class in which claims are made.
    fn label(&self) -> Option<&ClassLabel>;

    /// Grants `cost` tokens and returns how many remain, or refuses and reports the refusal to the observers.
    fn try_acquire(&self, cost: u64) -> Result<u64, TryAcquireError>;
}

impl ClaimScope for Core {
    #[inline(always)]
    fn core(&self) -> &Core {
        self
    }

    #[inline(always)]
    fn class(&self) -> ClassId {
        ROOT
    }

    #[inline(always)]
    fn claim_fast(&self, cost: u64) -> Option<u64> {
        self.try_claim(cost)
    }

    #[inline(always)]
    fn label(&self) -> Option<&ClassLabel> {
        None
    }

    // Inlined always, like the function that it calls.
    #[inline(always)]
    fn try_acquire(&self, cost: u64) -> Result<u64, TryAcquireError> {
        Core::try_acquire(self, cost)
    }
}

/// How the public futures and grants hold a [`ClaimScope`]: `P` is a reference or an `Arc`.
#[derive(Clone)]
pub(crate) struct ScopeRef<P>(pub(crate) P);

impl<P: Deref<Target: ClaimScope>> Deref for ScopeRef<P> {
    type Target = Core;

    #[inline(always)]
    fn deref(&self) -> &Core {
        self.0.core()
    }
}

impl<P: Deref<Target: ClaimScope>> LimiterRef for ScopeRef<P> {
    #[inline(always)]
    fn class(&self) -> ClassId {
        self.0.class()
    }

    #[inline(always)]
    fn claim_fast(&self, cost: u64) -> Option<u64> {
        self.0.claim_fast(cost)
    }

    #[inline(always)]
    fn flags(&self) -> Option<&ClassFlags> {
        self.0.flags().map(|flags| &**flags)
    }

    #[inline(always)]
    fn label(&self) -> Option<&ClassLabel> {
        self.0.label()
    }
}

impl<P: fmt::Debug> fmt::Debug for ScopeRef<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
