//! How claims and grants hold their limiter, and in which class they were made.

use super::Core;
use crate::core::classes::{ClassId, ROOT};
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
}

impl LimiterRef for &Core {}

impl LimiterRef for Arc<Core> {}
