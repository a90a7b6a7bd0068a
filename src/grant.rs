//! Proofs of admission.

use crate::core::Core;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What was granted, however the limiter is held. With an in-flight cap, dropping it is the release.
pub(crate) struct Permit<S: Deref<Target = Core>> {
    core: S,
    pub(crate) cost: u64,
    pub(crate) remaining: u64,
}

impl<S: Deref<Target = Core>> Permit<S> {
    #[inline]
    pub(crate) fn new(core: S, cost: u64, remaining: u64) -> Self {
        Self { core, cost, remaining }
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn core(&self) -> &S {
        &self.core
    }

    pub(crate) fn settle(&mut self, actual: u64) {
        self.cost = self.core.resettle(self.cost, actual);
    }

    /// The same after something that cannot be undone: a clock that panics stands still.
    #[cfg(feature = "io")]
    pub(crate) fn settle_anyway(&mut self, actual: u64) {
        self.cost = self.core.resettle_anyway(self.cost, actual);
    }

    pub(crate) fn forget(mut self) {
        if self.core.capped {
            self.core.forget(self.cost);
            self.cost = 0;
        }
    }
}

impl<S: Deref<Target = Core>> Drop for Permit<S> {
    #[inline]
    fn drop(&mut self) {
        if self.core.capped && self.cost > 0 {
            self.core.release(self.cost);
        }
    }
}

impl<S: Deref<Target = Core>> fmt::Debug for Permit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("cost", &self.cost).field("remaining", &self.remaining).finish()
    }
}

/// Proof that tokens were granted.
///
/// With [`max_in_flight`](crate::Builder::max_in_flight), the tokens are in flight until the grant is dropped: keep it
/// for as long as the work lasts, also through a panic. Without, dropping it does nothing.
///
/// What was done before a grant was dropped is visible to whoever is granted because of that drop.
#[must_use = "with an in-flight cap, dropping a grant releases it: bind it for as long as the work lasts"]
#[derive(Debug)]
pub struct Grant<'a>(Permit<&'a Core>);

/// A [`Grant`] that holds the limiter itself, for spawned tasks.
#[must_use = "with an in-flight cap, dropping a grant releases it: bind it for as long as the work lasts"]
#[derive(Debug)]
pub struct OwnedGrant(Permit<Arc<Core>>);

macro_rules! grant_methods {
    () => {
        /// What it cost: the latest figure, if it was [settled](Self::settle).
        pub fn cost(&self) -> u64 {
            self.0.cost
        }

        /// How many tokens this grant left behind, as of the limiter's last look at the time: what a response header
        /// would report. Of a grant that waited, what was left at the instant it was granted.
        pub fn remaining(&self) -> u64 {
            self.0.remaining
        }

        /// Sets the real cost, known afterwards, and refunds or charges the difference at once. The latest figure
        /// counts.
        ///
        /// * Less than before: the difference goes back, as far as the burst, and waiters may pass at once.
        /// * More than before: the difference is charged as a debt. Those already in line are not delayed by it,
        ///   newcomers are. A debt is cut at 2<sup>48</sup> tokens; [`cost`](Self::cost) tells.
        ///
        /// With an in-flight cap, what is charged is in flight too until the grant is dropped.
        ///
        /// # What a server may see
        ///
        /// The limiter counts tokens granted less tokens refunded. What is refunded can be granted again at once, so each
        /// single refund can bring back as much as the burst, and several at one instant as much as all of them together:
        /// with a burst of 1, five grants that are settled for 0 at one instant let five others pass at that instant. If
        /// the requests of the five were sent all the same, the server has seen them, and sees the others on top. So settle for
        /// less only what the server does not count either: a request that was never sent, tokens that it did not bill.
        ///
        /// # Panics
        ///
        /// If the limiter's [clock](crate::Clock) does; then nothing has changed.
        ///
        /// ```
        /// use tollgate::{Limiter, Quota};
        /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
        /// let limiter = Limiter::new(Quota::manual(100))?;
        /// let mut grant = limiter.try_acquire(40)?;
        /// grant.settle(25);
        /// assert_eq!(limiter.available(), 75);
        /// grant.settle(110);
        /// assert_eq!((limiter.available(), limiter.deficiency()), (0, 10));
        /// # Ok(()) }
        /// ```
        pub fn settle(&mut self, actual: u64) {
            self.0.settle(actual);
        }

        /// Lets go of the grant without releasing it: the caller then owes a
        /// [`Limiter::release`](crate::Limiter::release) of its cost. Without an in-flight cap, the same as dropping
        /// it.
        pub fn forget(self) {
            self.0.forget();
        }
    };
}

impl<'a> Grant<'a> {
    #[inline]
    pub(crate) fn new(permit: Permit<&'a Core>) -> Self {
        Self(permit)
    }

    grant_methods!();
}

impl OwnedGrant {
    pub(crate) fn new(permit: Permit<Arc<Core>>) -> Self {
        Self(permit)
    }

    /// [`settle`](Self::settle) after something that cannot be undone.
    #[cfg(feature = "io")]
    pub(crate) fn settle_anyway(&mut self, actual: u64) {
        self.0.settle_anyway(actual);
    }

    grant_methods!();
}
