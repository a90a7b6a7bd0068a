//! What can follow the responses of a server: a limiter, or one key of a keyed limiter.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tollgate::{AsLimiter, Limiter, Quota, QuotaSnapshot, TryAcquireError, Which};

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
    #[doc(hidden)]
    fn available(&self) -> u64;
    /// Takes the tokens, if they are available.
    #[doc(hidden)]
    fn take(&self, tokens: u64) -> Result<(), TryAcquireError>;
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

    fn available(&self) -> u64 {
        self.available()
    }

    fn take(&self, tokens: u64) -> Result<(), TryAcquireError> {
        self.try_acquire(tokens).map(drop)
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

        fn available(&self) -> u64 {
            self.limiter.available(&self.key)
        }

        fn take(&self, tokens: u64) -> Result<(), TryAcquireError> {
            self.limiter.try_acquire(&self.key, tokens).map(drop)
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
