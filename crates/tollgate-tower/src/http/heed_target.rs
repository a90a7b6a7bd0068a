//! What can follow the responses of a server: a limiter, or one key of a keyed limiter.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tollgate::{AsLimiter, Limiter, Quota, QuotaSnapshot, Which};

pub(super) mod sealed {
    pub trait Sealed {}
}

/// A limiter that follows responses: a [`Limiter`], or a `HeedKey` (feature `keyed`). The trait is sealed.
pub trait HeedTarget: sealed::Sealed {
    #[doc(hidden)]
    fn quotas(&self) -> Vec<QuotaSnapshot>;
    /// Leaves the quota unchanged if `quota` is invalid, or if the map of keys is full.
    #[doc(hidden)]
    fn set_quota(&self, which: Which<'_>, quota: Quota);
    /// Takes up to so many tokens, also while the limiter is paused or has as many in flight as it may. Returns how many.
    #[doc(hidden)]
    fn charge(&self, tokens: u64) -> u64;
    #[doc(hidden)]
    fn pause_for(&self, pause: Duration);
    /// Returns a number that tells this limiter or key from others that exist.
    #[doc(hidden)]
    fn id(&self, hasher: &RandomState) -> u64;
}

impl sealed::Sealed for Limiter {}

impl HeedTarget for Limiter {
    fn quotas(&self) -> Vec<QuotaSnapshot> {
        self.snapshot().quotas
    }

    fn set_quota(&self, which: Which<'_>, quota: Quota) {
        drop(self.set_quota(which, quota));
    }

    fn charge(&self, tokens: u64) -> u64 {
        let Ok(mut grant) = self.try_acquire(0) else { return 0 };
        grant.settle(tokens);
        grant.cost()
    }

    fn pause_for(&self, pause: Duration) {
        self.pause_for(pause);
    }

    fn id(&self, hasher: &RandomState) -> u64 {
        hasher.hash_one(address(self))
    }
}

/// The clones of a limiter have one address.
fn address(limiter: &impl AsLimiter) -> *const () {
    std::ptr::from_ref(limiter.scope()).cast()
}

#[cfg(feature = "keyed")]
mod keyed {
    use super::*;
    use std::fmt;
    use std::hash::Hash;
    use tollgate::KeyedLimiter;

    /// One key of a keyed limiter, which follows the response to a request; see
    /// [`HeedLayer::keyed`](crate::http::HeedLayer::keyed). Feature `keyed`.
    #[derive(Clone)]
    pub struct HeedKey<K, S = RandomState> {
        limiter: KeyedLimiter<K, S>,
        key: K,
    }

    impl<K, S> HeedKey<K, S> {
        pub(in crate::http) fn new(limiter: KeyedLimiter<K, S>, key: K) -> Self {
            Self { limiter, key }
        }
    }

    impl<K, S> fmt::Debug for HeedKey<K, S> {
        /// Omits the key, which may identify a user.
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("HeedKey").field("limiter", &self.limiter).finish_non_exhaustive()
        }
    }

    impl<K, S> sealed::Sealed for HeedKey<K, S> {}

    impl<K: Hash + Eq + Clone, S: BuildHasher> HeedTarget for HeedKey<K, S> {
        fn quotas(&self) -> Vec<QuotaSnapshot> {
            self.limiter.quota_snapshots(&self.key)
        }

        fn set_quota(&self, which: Which<'_>, quota: Quota) {
            drop(self.limiter.set_one_quota_for(&self.key, which, quota));
        }

        fn charge(&self, tokens: u64) -> u64 {
            // The parent is charged too, and gets no debt that other keys would have to wait for.
            let most = self.limiter.parent().map_or(u64::MAX, |parent| parent.available());
            let Ok(mut grant) = self.limiter.try_acquire(&self.key, 0) else { return 0 };
            grant.settle(&self.key, tokens.min(most));
            grant.cost()
        }

        fn pause_for(&self, pause: Duration) {
            self.limiter.pause_for(&self.key, pause);
        }

        fn id(&self, hasher: &RandomState) -> u64 {
            hasher.hash_one((self.limiter.address(), &self.key))
        }
    }
}

#[cfg(feature = "keyed")]
pub use keyed::HeedKey;
