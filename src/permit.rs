//! Tokens that were granted and are held: what grants are made of.

use crate::core::limiter_ref::LimiterRef;
use crate::observe::Verdict;
use std::fmt;

/// The tokens of one grant, generic over how it holds the limiter. With an in-flight cap, dropping it releases them.
pub(crate) struct Permit<S: LimiterRef> {
    core: S,
    pub(crate) cost: u64,
    /// The tokens that remained, or the verdict of a dry run: see [`Verdict`].
    word: u64,
}

impl<S: LimiterRef> Permit<S> {
    #[inline]
    pub(crate) fn new(core: S, cost: u64, word: u64) -> Self {
        Self { core, cost, word }
    }

    pub(crate) fn remaining(&self) -> u64 {
        Verdict::remaining(self.word)
    }

    /// The verdict of the dry run on the claim; `None` if no quota was in dry run.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        Verdict::of_word(self.word)
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn core(&self) -> &S {
        &self.core
    }

    /// The limiter that the grant holds, and its cost, for a caller that adds to it.
    pub(crate) fn parts(&mut self) -> (&S, &mut u64) {
        (&self.core, &mut self.cost)
    }

    pub(crate) fn settle(&mut self, actual: u64) {
        self.cost = self.core.resettle_in(self.core.class(), self.cost, actual, self.word);
    }

    pub(crate) fn grow(&mut self, tokens: u64) {
        self.settle(self.cost.saturating_add(tokens));
    }

    /// [`settle`](Self::settle) for costs that cannot be undone: if the clock panics, the last sample of the time is
    /// used.
    #[cfg(feature = "io")]
    pub(crate) fn settle_anyway(&mut self, actual: u64) {
        self.cost = self.core.resettle_anyway_in(self.core.class(), self.cost, actual, self.word);
    }

    pub(crate) fn forget(mut self) {
        if self.core.capped {
            self.core.forget(self.cost);
            self.cost = 0;
        }
    }
}

impl<S: LimiterRef> Drop for Permit<S> {
    #[inline]
    fn drop(&mut self) {
        if self.core.capped && self.cost > 0 {
            self.core.release(self.cost);
        }
    }
}

impl<S: LimiterRef> fmt::Debug for Permit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("cost", &self.cost).field("remaining", &self.remaining()).finish()
    }
}
