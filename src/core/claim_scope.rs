//! What claims and grants hold: a limiter, or a class of one.

use super::Core;
use crate::core::classes::{ClassId, ROOT};
use crate::error::TryAcquireError;
use crate::observe::{ClassLabel, GrantWord, Observed};
use std::fmt;

/// The state that all handles of a limiter, or of a class, share, and in which their claims are made. The trait cannot
/// be named outside of this crate. Claims and grants hold it by reference or in an `Arc`.
pub trait ClaimScope: fmt::Debug + 'static {
    /// The limiter.
    fn core(&self) -> &Core;

    /// The class in which claims are made.
    fn class(&self) -> ClassId;

    /// The fast path of claims: grants `cost` tokens with one atomic operation. Claims in a class have none.
    fn claim_fast(&self, cost: u64) -> Option<GrantWord>;

    /// How observers name the class in which claims are made.
    fn label(&self) -> Option<&ClassLabel>;

    /// The observers, the clock and the class for reports about claims.
    #[inline]
    fn observed(&self) -> Observed<'_> {
        Observed { class: self.label(), ..self.core().observed() }
    }

    /// Grants `cost` tokens, or refuses and reports the refusal to the observers.
    fn try_acquire(&self, cost: u64) -> Result<GrantWord, TryAcquireError>;
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
    fn claim_fast(&self, cost: u64) -> Option<GrantWord> {
        self.try_claim(cost)
    }

    #[inline(always)]
    fn label(&self) -> Option<&ClassLabel> {
        None
    }

    #[inline(always)]
    fn try_acquire(&self, cost: u64) -> Result<GrantWord, TryAcquireError> {
        Core::try_acquire(self, cost)
    }
}
