//! What an adaptive rate can drive: a limiter, or one key of a keyed limiter.

use crate::consume::ConsumeOwned;
use crate::error::{ConfigError, ConsumeError};
use crate::grant::OwnedGrant;
use crate::{Limiter, Quota};
use std::future::Future;
use std::time::Duration;

mod sealed {
    pub trait Sealed {}
}

/// A limiter whose rate an [`Adaptive`](super::Adaptive) changes: a [`Limiter`], or a `KeyOf` (feature `keyed`). The
/// trait is sealed.
pub trait Target: sealed::Sealed + Clone {
    /// The future of a claim.
    type Claim: Future<Output = Result<Self::Grant, ConsumeError>>;
    /// The grant of a claim.
    type Grant: Settle;

    #[doc(hidden)]
    fn claim(&self, cost: u64) -> Self::Claim;
    #[doc(hidden)]
    fn claim_within(&self, cost: u64, allowed: Duration) -> Self::Claim;
    #[doc(hidden)]
    fn set_rate(&self, quota: Quota) -> Result<(), ConfigError>;
    #[doc(hidden)]
    fn pause(&self, pause: Duration);
}

/// The methods that the grants of all targets have. The trait is sealed.
pub trait Settle: sealed::Sealed {
    #[doc(hidden)]
    fn cost(&self) -> u64;
    #[doc(hidden)]
    fn remaining(&self) -> u64;
    #[doc(hidden)]
    fn settle(&mut self, actual: u64);
}

impl sealed::Sealed for Limiter {}

impl Target for Limiter {
    type Claim = ConsumeOwned;
    type Grant = OwnedGrant;

    fn claim(&self, cost: u64) -> ConsumeOwned {
        self.clone().consume_owned(cost)
    }

    fn claim_within(&self, cost: u64, allowed: Duration) -> ConsumeOwned {
        self.claim(cost).within(allowed)
    }

    fn set_rate(&self, quota: Quota) -> Result<(), ConfigError> {
        self.set_quota(0, quota)
    }

    fn pause(&self, pause: Duration) {
        self.pause_for(pause);
    }
}

impl sealed::Sealed for OwnedGrant {}

impl Settle for OwnedGrant {
    fn cost(&self) -> u64 {
        self.cost()
    }

    fn remaining(&self) -> u64 {
        self.remaining()
    }

    fn settle(&mut self, actual: u64) {
        self.settle(actual);
    }
}

#[cfg(feature = "keyed")]
pub use keyed::KeyOf;

#[cfg(feature = "keyed")]
mod keyed {
    use super::{ConfigError, Duration, Quota, Settle, Target, sealed};
    use crate::keyed::{KeyedConsumeOwned, KeyedLimiter, OwnedKeyedGrant};
    use std::hash::{BuildHasher, Hash, RandomState};

    /// One key of a [`KeyedLimiter`], driven by an [`Adaptive`](crate::Adaptive); see
    /// [`drive_key`](crate::adaptive::AdaptiveBuilder::drive_key). Feature `keyed`.
    #[derive(Debug)]
    pub struct KeyOf<K, S = RandomState> {
        limiter: KeyedLimiter<K, S>,
        key: K,
    }

    impl<K, S> KeyOf<K, S> {
        pub(in crate::adaptive) fn new(limiter: KeyedLimiter<K, S>, key: K) -> Self {
            Self { limiter, key }
        }

        /// Returns the key.
        pub fn key(&self) -> &K {
            &self.key
        }

        /// Returns the limiter of all keys.
        pub fn limiter(&self) -> &KeyedLimiter<K, S> {
            &self.limiter
        }
    }

    impl<K: Clone, S> Clone for KeyOf<K, S> {
        fn clone(&self) -> Self {
            Self { limiter: self.limiter.clone(), key: self.key.clone() }
        }
    }

    impl<K, S> sealed::Sealed for KeyOf<K, S> {}

    impl<K: Hash + Eq + Clone, S: BuildHasher> Target for KeyOf<K, S> {
        type Claim = KeyedConsumeOwned<K, S>;
        type Grant = OwnedKeyedGrant<K, S>;

        fn claim(&self, cost: u64) -> Self::Claim {
            self.limiter.clone().consume_owned(self.key.clone(), cost)
        }

        fn claim_within(&self, cost: u64, allowed: Duration) -> Self::Claim {
            self.claim(cost).within(allowed)
        }

        fn set_rate(&self, quota: Quota) -> Result<(), ConfigError> {
            self.limiter.set_quota_for(&self.key, quota)
        }

        fn pause(&self, pause: Duration) {
            self.limiter.pause_for(&self.key, pause);
        }
    }

    impl<K: Hash + Eq + Clone, S: BuildHasher> sealed::Sealed for OwnedKeyedGrant<K, S> {}

    impl<K: Hash + Eq + Clone, S: BuildHasher> Settle for OwnedKeyedGrant<K, S> {
        fn cost(&self) -> u64 {
            self.cost()
        }

        fn remaining(&self) -> u64 {
            self.remaining()
        }

        fn settle(&mut self, actual: u64) {
            self.settle(actual);
        }
    }
}
