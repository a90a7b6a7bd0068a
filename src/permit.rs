//! Tokens that were granted and are held: what grants are made of.

use crate::core::Core;
use crate::core::claim_scope::ClaimScope;
use crate::core::grants::Settled;
use crate::core::state::Sample;
use crate::observe::{GrantWord, Verdict};
use std::fmt;
use std::ops::Deref;

/// The tokens of one grant, generic over how it holds the limiter. With an in-flight cap, dropping it releases them.
pub(crate) struct Permit<P: Deref<Target: ClaimScope>> {
    scope: P,
    pub(crate) cost: u64,
    word: GrantWord,
    /// How many tokens refunds can still take off what its class was charged. Until the first change of the cost, the word
    /// tells.
    refundable: u64,
}

impl<P: Deref<Target: ClaimScope>> Permit<P> {
    #[inline]
    pub(crate) fn new(scope: P, cost: u64, word: GrantWord) -> Self {
        Self { scope, cost, word, refundable: 0 }
    }

    /// The tokens that remained; with a calendar or a sliding quota, those that remain as of the last reading of the clock.
    pub(crate) fn remaining(&self) -> u64 {
        self.scope.core().remaining(self.scope.class(), self.word)
    }

    /// The verdict of the dry run on the claim; `None` if no quota was in dry run.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.word.verdict()
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn word(&self) -> GrantWord {
        self.word
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn scope(&self) -> &P {
        &self.scope
    }

    /// Returns the limiter, of which the caller then holds the tokens.
    #[cfg(feature = "keyed")]
    pub(crate) fn into_scope(mut self) -> P
    where
        P: Default,
    {
        let scope = std::mem::take(&mut self.scope);
        std::mem::forget(self);
        scope
    }

    /// The limiter that the grant holds, its cost, and what is refundable of it, for a caller that adds to them.
    pub(crate) fn parts(&mut self) -> (&P, &mut u64, &mut u64) {
        self.count_refundable();
        (&self.scope, &mut self.cost, &mut self.refundable)
    }

    /// Moves the tokens of the grant to the caller: their number, and how many of them are refundable.
    pub(crate) fn take(&mut self) -> (u64, u64) {
        self.count_refundable();
        (std::mem::take(&mut self.cost), self.refundable)
    }

    #[inline]
    fn count_refundable(&mut self) {
        if self.word.is_charged() {
            self.refundable = self.word.refundable(self.cost);
            self.word = self.word.uncharged();
        }
    }

    pub(crate) fn settle(&mut self, actual: u64) {
        self.settle_as_of(|core| Some(core.sample()), actual);
    }

    fn settle_as_of(&mut self, sample: impl FnOnce(&Core) -> Option<Sample>, actual: u64) {
        self.count_refundable();
        let uncharged = self.refundable.min(self.cost.saturating_sub(actual));
        let (core, class) = (self.scope.core(), self.scope.class());
        let grant = Settled { class, cost: self.cost, uncharged, word: self.word };
        self.cost = core.resettle(sample, grant, actual);
        self.refundable -= uncharged;
    }

    pub(crate) fn grow(&mut self, tokens: u64) {
        self.settle(self.cost.saturating_add(tokens));
    }

    /// [`settle`](Self::settle) for costs that cannot be undone: if the clock panics, the last sample of the time is
    /// used.
    pub(crate) fn settle_anyway(&mut self, actual: u64) {
        self.settle_as_of(Core::sample_or_last, actual);
    }

    pub(crate) fn forget(mut self) {
        if self.scope.core().capped {
            self.scope.core().forget(self.cost);
            self.cost = 0;
        }
    }
}

impl<P: Deref<Target: ClaimScope>> Drop for Permit<P> {
    #[inline]
    fn drop(&mut self) {
        if self.scope.core().capped && self.cost > 0 {
            self.scope.core().release(self.cost);
        }
    }
}

impl<P: Deref<Target: ClaimScope>> fmt::Debug for Permit<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("cost", &self.cost).field("remaining", &self.remaining()).finish()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::{Limiter, Quota};

    #[test]
    fn a_sixteenth_of_a_grant_that_is_settled_twice_stays_charged() {
        let limiter = Limiter::new(Quota::per_second(16)).unwrap();
        let mut permit = Permit::new(limiter.core(), 16, GrantWord::charged(0));
        let refundable = [8, 2, 0].map(|actual| {
            permit.settle(actual);
            permit.refundable
        });
        assert_eq!(refundable, [7, 1, 0]);
    }
}
