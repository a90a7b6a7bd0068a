//! The trait of everything that adapters accept as a limiter per key.

#[cfg(feature = "distributed")]
use super::{DistributedKeyedConsume, DistributedKeyedGrant, DistributedKeyedLimiter};
use super::{KeyedConsumeOwned, KeyedLimiter, OwnedKeyedGrant};
use crate::error::{ConsumeError, TryAcquireError};
use crate::{Limiter, QuotaSnapshot};
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

mod sealed {
    pub trait Sealed {}
}

/// A [`KeyedLimiter`], or a `DistributedKeyedLimiter` (feature `distributed`). The adapters for tower and HTTP accept
/// it.
///
/// The trait is sealed.
pub trait AsKeyedLimiter<K>: sealed::Sealed + Clone + fmt::Debug {
    /// The grant for a key, which owns the limiter and the key.
    type Grant;
    /// The future that waits for the grant.
    type Claim: Future<Output = Result<Self::Grant, ConsumeError>>;

    /// Whether `try_acquire` may refuse because an answer over the network is missing. A claim that must not wait then
    /// waits for that answer instead, with an allowed wait of zero.
    const IS_REMOTE: bool;

    /// Waits for `cost` tokens of the key, for at most `allowed` if that is set.
    fn consume_owned(self, key: K, cost: u64, allowed: Option<Duration>) -> Self::Claim;

    /// Takes `cost` tokens of the key if they are available.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`KeyedLimiter::try_acquire`].
    fn try_acquire_owned(self, key: K, cost: u64) -> Result<Self::Grant, TryAcquireError>;

    /// Returns the state of each quota of the key for a response to its caller; see [`KeyedLimiter::reported_quotas`].
    fn reported_quotas(&self, key: &K) -> Vec<QuotaSnapshot>;

    /// Returns the parent limiter, if there is one.
    fn parent(&self) -> Option<Limiter>;
}

impl<K, S> sealed::Sealed for KeyedLimiter<K, S> {}

impl<K: Hash + Eq + Clone, S: BuildHasher> AsKeyedLimiter<K> for KeyedLimiter<K, S> {
    type Grant = OwnedKeyedGrant<K, S>;
    type Claim = KeyedConsumeOwned<K, S>;

    const IS_REMOTE: bool = false;

    fn consume_owned(self, key: K, cost: u64, allowed: Option<Duration>) -> KeyedConsumeOwned<K, S> {
        let claim = self.consume_owned(key, cost);
        match allowed {
            Some(allowed) => claim.within(allowed),
            None => claim,
        }
    }

    fn try_acquire_owned(self, key: K, cost: u64) -> Result<OwnedKeyedGrant<K, S>, TryAcquireError> {
        self.try_acquire_owned(key, cost)
    }

    fn reported_quotas(&self, key: &K) -> Vec<QuotaSnapshot> {
        self.reported_quotas(key)
    }

    fn parent(&self) -> Option<Limiter> {
        self.parent()
    }
}

#[cfg(feature = "distributed")]
impl<K> sealed::Sealed for DistributedKeyedLimiter<K> {}

#[cfg(feature = "distributed")]
impl<K> AsKeyedLimiter<K> for DistributedKeyedLimiter<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    type Grant = DistributedKeyedGrant<K>;
    type Claim = DistributedKeyedConsume<K>;

    const IS_REMOTE: bool = true;

    fn consume_owned(self, key: K, cost: u64, allowed: Option<Duration>) -> DistributedKeyedConsume<K> {
        let claim = self.consume(&key, cost);
        match allowed {
            Some(allowed) => claim.within(allowed),
            None => claim,
        }
    }

    fn try_acquire_owned(self, key: K, cost: u64) -> Result<DistributedKeyedGrant<K>, TryAcquireError> {
        self.try_acquire(&key, cost)
    }

    fn reported_quotas(&self, key: &K) -> Vec<QuotaSnapshot> {
        self.reported_quotas(key)
    }

    fn parent(&self) -> Option<Limiter> {
        None
    }
}
