//! The limiters and keys that an adaptive rate can drive, and where their claims wait.

use crate::as_limiter::AsLimiter;
use crate::consume::ConsumeOwned;
use crate::error::{ConfigError, ConsumeError};
use crate::grant::OwnedGrant;
use crate::handle::Handle;
use crate::{Class, Limiter, Quota};
use std::future::Future;
use std::time::Duration;

mod sealed {
    pub trait Sealed {}
}

/// Where the claims of an [`Adaptive`](super::Adaptive) wait: in a [`Limiter`], a [`Class`] of one, or a
/// `KeyOf` (feature `keyed`). The trait is sealed.
pub trait Target: sealed::Sealed + Clone {
    /// The limiter or key that has the rate: for a class, its limiter.
    type Driven: Driven;
    /// The future of a claim.
    type Claim: Future<Output = Result<Self::Grant, ConsumeError>>;
    /// The grant of a claim.
    type Grant: Settle;

    #[doc(hidden)]
    fn driven(&self) -> Self::Driven;
    #[doc(hidden)]
    fn claim(&self, cost: u64) -> Self::Claim;
    #[doc(hidden)]
    fn within(claim: Self::Claim, allowed: Duration) -> Self::Claim;
}

/// A limiter with a rate that an [`Adaptive`](super::Adaptive) changes: a [`Limiter`], or a `KeyOf` (feature `keyed`). The
/// trait cannot be named outside of this crate.
pub trait Driven: sealed::Sealed {
    #[doc(hidden)]
    fn set_rate(&self, quota: Quota) -> Result<(), ConfigError>;
    #[doc(hidden)]
    fn pause(&self, pause: Duration);
}

/// The methods that the grants of all targets have. The trait cannot be named outside of this crate.
pub trait Settle: sealed::Sealed {
    #[doc(hidden)]
    fn cost(&self) -> u64;
    #[doc(hidden)]
    fn remaining(&self) -> u64;
    #[doc(hidden)]
    fn settle(&mut self, actual: u64);
}

/// Implements the traits for `Limiter` and `Class` separately: rustdoc would list the hidden methods of an
/// implementation for all `AsLimiter`.
macro_rules! target {
    ($handle:ty) => {
        impl sealed::Sealed for $handle {}

        impl Target for $handle {
            type Driven = Limiter;
            type Claim = ConsumeOwned<Self>;
            type Grant = OwnedGrant<Self>;

            fn driven(&self) -> Limiter {
                self.limiter().clone()
            }

            fn claim(&self, cost: u64) -> Self::Claim {
                self.clone().consume_owned(cost)
            }

            fn within(claim: Self::Claim, allowed: Duration) -> Self::Claim {
                claim.within(allowed)
            }
        }
    };
}

target!(Limiter);
target!(Class);

impl Driven for Limiter {
    /// If a ceiling above a floor does not allow the burst, tries again with the burst that the error names, which is
    /// smaller each time.
    fn set_rate(&self, mut quota: Quota) -> Result<(), ConfigError> {
        loop {
            match self.set_quota(0, quota) {
                Err(ConfigError::CeilingBelowBurst { burst, .. }) => quota = quota.burst(burst),
                done => return done,
            }
        }
    }

    fn pause(&self, pause: Duration) {
        self.pause_for(pause);
    }
}

impl<L: Handle> sealed::Sealed for OwnedGrant<L> {}

impl<L: Handle> Settle for OwnedGrant<L> {
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
    use super::{ConfigError, Driven, Duration, Quota, Settle, Target, sealed};
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
        type Driven = Self;
        type Claim = KeyedConsumeOwned<K, S>;
        type Grant = OwnedKeyedGrant<K, S>;

        fn driven(&self) -> Self {
            self.clone()
        }

        fn claim(&self, cost: u64) -> Self::Claim {
            self.limiter.clone().consume_owned(self.key.clone(), cost)
        }

        fn within(claim: Self::Claim, allowed: Duration) -> Self::Claim {
            claim.within(allowed)
        }
    }

    impl<K: Hash + Eq + Clone, S: BuildHasher> Driven for KeyOf<K, S> {
        fn set_rate(&self, quota: Quota) -> Result<(), ConfigError> {
            self.limiter.set_one_quota_for(&self.key, 0, quota)
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
