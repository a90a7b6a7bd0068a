//! Grants for a key.

use super::key_ref::{Borrowed, KeyRef, Owned};
use super::map::Taken;
use super::rate::Left;
use crate::core::Core;
use crate::core::classes::ROOT;
use crate::error::Bound;
use crate::observe::Verdict;
use crate::permit::Permit;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// A grant, whether it borrows or owns the limiter.
pub(super) struct Pass<H: KeyRef> {
    key_ref: H,
    hash: u64,
    cost: u64,
    left: Left,
    /// The core that settles and releases the grant; see [`Taken`].
    live: Option<Arc<Core>>,
    /// The cost in the parent limiter, in tokens; 0 without a parent.
    parent: u64,
}

impl<H: KeyRef> Pass<H> {
    // Inlined always: it is a part of every grant without waiting.
    #[inline(always)]
    pub(super) fn new(key_ref: H, hash: u64, cost: u64, Taken { mut left, live }: Taken) -> Self {
        let map = key_ref.map();
        let parent = if map.parent.is_some() { cost } else { 0 };
        if map.template.dry_run.is_on() {
            left = left.in_dry_run();
            map.template.dry_run.count(left.word());
        }
        Self { key_ref, hash, cost, left, live, parent }
    }

    fn settle(&mut self, actual: u64) {
        let map = self.key_ref.map();
        self.cost = match &self.live {
            Some(live) => live.resettle_in(ROOT, self.cost, actual, self.left.word(), 0),
            None if actual == self.cost || Verdict::is_refused(self.left.word()) => actual,
            None => map.resettle(self.key_ref.key(), self.hash, self.cost, actual),
        };
        if let Some(parent) = &map.parent {
            // The key is settled already, so the parent must be settled even if its clock panics.
            let key = || map.key_in_parent(self.key_ref.key(), self.hash);
            let actual = actual.min(map.template.max_cost.max(self.parent));
            self.parent = parent.resettle(key, self.parent, actual);
        }
    }

    #[inline]
    fn forget(mut self) {
        if let Some(parent) = self.key_ref.map().parent.as_ref().filter(|parent| parent.capped) {
            parent.forget(std::mem::take(&mut self.parent));
        }
        if let Some(live) = self.live.take() {
            Permit::new(Arc::clone(&live), self.cost, 0).forget();
            // The live entry may not be needed any more: for example, a grant that was settled to nothing leaves
            // nothing in flight.
            self.key_ref.map().let_go(self.hash, live);
        }
    }

    #[inline(never)]
    fn release(&mut self) {
        if let Some(live) = self.live.take() {
            drop(Permit::new(Arc::clone(&live), self.cost, 0));
            self.key_ref.map().let_go(self.hash, live);
        }
        if self.parent > 0
            && let Some(parent) = self.key_ref.map().parent.as_ref().filter(|parent| parent.capped)
        {
            parent.release(self.parent);
        }
    }
}

impl<H: KeyRef> Drop for Pass<H> {
    #[inline]
    fn drop(&mut self) {
        if self.live.is_some() || self.parent > 0 {
            self.release();
        }
    }
}

impl<H: KeyRef> fmt::Debug for Pass<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedGrant").field("cost", &self.cost).field("remaining", &self.left.tokens()).finish()
    }
}

/// Proof that tokens of a key were granted: the keyed counterpart of [`Grant`](crate::Grant).
///
/// With [`max_in_flight`](super::KeyedBuilder::max_in_flight), the tokens are in flight until the grant is dropped:
/// keep it for as long as the work lasts. Without a cap, dropping it does nothing.
#[must_use = "dropping a grant releases its tokens if the limiter caps tokens in flight, and `let _ =` drops it at once: write \
              `let _grant =` for as long as the work lasts, or call `wait` if there is nothing to hold"]
#[derive(Debug)]
pub struct KeyedGrant<'a, K: Hash + Eq + Clone, S: BuildHasher = RandomState>(pub(super) Pass<Borrowed<'a, K, S>>);

/// A [`KeyedGrant`] that owns the limiter and the key, for spawned tasks.
#[must_use = "dropping a grant releases its tokens if the limiter caps tokens in flight, and `let _ =` drops it at once: write \
              `let _grant =` for as long as the work lasts, or call `wait` if there is nothing to hold"]
#[derive(Debug)]
pub struct OwnedKeyedGrant<K: Hash + Eq + Clone, S: BuildHasher = RandomState>(pub(super) Pass<Owned<K, S>>);

macro_rules! grant_methods {
    () => {
        /// Returns the cost in tokens: the latest figure, if the grant was [settled](Self::settle).
        pub fn cost(&self) -> u64 {
            self.0.cost
        }

        /// Returns how many tokens this grant left for its key: the number that a response header would report.
        pub fn remaining(&self) -> u64 {
            self.0.left.tokens()
        }

        /// Returns how long the call would have waited if the limiter were not in dry run; see
        /// [`Grant::would_have_waited`](crate::Grant::would_have_waited).
        pub fn would_have_waited(&self) -> Option<Duration> {
            Verdict::of_word(self.0.left.word())?.wait()
        }

        /// Returns what would have refused the call if the limiter were not in dry run; see
        /// [`Grant::would_have_been_refused`](crate::Grant::would_have_been_refused).
        pub fn would_have_been_refused(&self) -> Option<Bound> {
            Verdict::of_word(self.0.left.word())?.refused_by()
        }

        /// Sets the real cost, known afterwards, and refunds or charges the key with the difference at once, like
        /// [`Grant::settle`](crate::Grant::settle). The latest figure counts.
        ///
        /// The difference is also settled in the [parent limiter](super::KeyedBuilder::parent), if there is one.
        ///
        /// Tokens that come back can be granted again at once, and a server may see the requests of both grants: see
        /// [`Grant::settle`](crate::Grant::settle).
        ///
        /// A charge is always recorded, even if the key was forgotten meanwhile or the map is full.
        ///
        /// ```
        /// use tollgate::{KeyedLimiter, ManualClock, Quota};
        /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
        /// let builder = KeyedLimiter::builder().quota(Quota::per_second(100)).clock(ManualClock::new());
        /// let users = builder.build()?;
        /// let mut grant = users.try_acquire(&"ann", 40)?;
        /// grant.settle(25);
        /// assert_eq!(users.available(&"ann"), 75);
        /// grant.settle(110);
        /// assert_eq!((users.available(&"ann"), users.deficiency(&"ann")), (0, 10));
        /// # Ok(()) }
        /// ```
        pub fn settle(&mut self, actual: u64) {
            self.0.settle(actual);
        }

        /// Consumes the grant without releasing it: the caller then owes a [`release`](super::KeyedLimiter::release) of
        /// its cost. Without an in-flight cap, the same as dropping it.
        #[inline]
        pub fn forget(self) {
            self.0.forget();
        }
    };
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedGrant<'_, K, S> {
    grant_methods!();
}

impl<K: Hash + Eq + Clone, S: BuildHasher> OwnedKeyedGrant<K, S> {
    grant_methods!();
}
