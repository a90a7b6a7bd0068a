//! Where the keys of a limiter are kept: in memory, or in a store that many machines share.

#![cfg_attr(
    not(feature = "distributed"),
    allow(dead_code, reason = "only `KeyedBuilder::distributed` makes distributed keys")
)]

use super::map::{Map, Taken};
use super::{KeyedEntry, KeyedSnapshot, Quotas};
use crate::core::Core;
use crate::deadline::Allowed;
use crate::error::{ConfigError, ConsumeError, TryAcquireError};
use crate::observe::Observers;
use crate::{Limiter, QuotaSnapshot};
use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The state that all clones of a keyed limiter share.
pub(super) enum Keys<K, S> {
    Local(Arc<Map<K, S>>),
    Distributed(Arc<dyn DistributedKeys<K>>),
}

/// The locks do not poison. `Hash`, `Eq` and `Clone` of keys run under them, and a panic there leaves the keys as they were.
impl<K, S> UnwindSafe for Keys<K, S> {}
impl<K, S> RefUnwindSafe for Keys<K, S> {}

impl<K, S> Keys<K, S> {
    /// The observers of waits and refusals, for all keys together.
    #[cfg(feature = "metrics")]
    pub(super) fn observers(&self) -> &Observers {
        match self {
            Self::Local(map) => &map.template.observers,
            Self::Distributed(keys) => keys.observers(),
        }
    }
}

/// A claim on a key of a distributed limiter.
pub(super) struct Request<'a, K> {
    pub(super) key: &'a K,
    pub(super) hash: u64,
    pub(super) cost: u64,
    pub(super) allowed: Allowed,
}

/// The next step of a claim on a key of a distributed limiter.
pub(super) enum Step {
    /// Waits for the answer of the store.
    Ask(Asking),
    /// Waits in the queue of the key's limiter.
    Wait(Arc<Core>),
    Done(Result<Taken, ConsumeError>),
}

/// The future of a request to a store, which resolves to the next step of the claim.
pub(super) type Asking = Pin<Box<dyn Future<Output = Step> + Send>>;

/// The interface of a distributed limiter's keys for the limiter, its claims and its grants.
pub(super) trait DistributedKeys<K>: fmt::Debug + Send + Sync {
    fn hash(&self, key: &K) -> u64;

    /// The first step of a claim.
    fn begin(&self, request: &Request<'_, K>) -> Step;

    /// Takes `cost` tokens that are on this node.
    fn try_acquire(&self, key: &K, hash: u64, cost: u64) -> Result<Taken, TryAcquireError>;

    /// Records that the deadline of a claim of `cost` tokens came before the answer of the store.
    fn missed(&self, key: &K, hash: u64, cost: u64);

    /// Counts a call that was refused.
    fn count_refusal(&self);

    /// Settles a grant of `cost` that the store made without a limiter of the key. Returns its new cost.
    fn resettle(&self, key: &K, hash: u64, cost: u64, actual: u64) -> u64;

    /// The key's limiter on this node, which is created if there is none.
    fn limiter(&self, key: &K) -> Result<Limiter, ConfigError>;

    fn available(&self, key: &K) -> u64;
    fn deficiency(&self, key: &K) -> u64;
    fn estimate(&self, key: &K, cost: u64) -> Option<Duration>;
    fn quotas(&self, key: &K) -> Quotas;
    fn quota_snapshots(&self, key: &K) -> Vec<QuotaSnapshot>;

    fn reported_quotas(&self, key: &K) -> Vec<QuotaSnapshot> {
        let mut quotas = self.quota_snapshots(key);
        if let [only] = &mut quotas[..] {
            only.available = self.available(key);
            only.more_in = self.estimate(key, only.available.saturating_add(1));
        }
        quotas
    }

    fn pause_for(&self, key: &K, duration: Duration);
    fn pause_all_for(&self, duration: Duration);
    fn resume(&self, key: &K);
    fn resume_all(&self);
    fn replenish(&self, key: &K, tokens: u64);
    fn entries(&self) -> Vec<KeyedEntry<K>>;
    fn snapshot(&self) -> KeyedSnapshot<K>;
    fn observers(&self) -> &Observers;
    fn is_closed(&self) -> bool;
    fn close(&self);
}

impl<K, S> Clone for Keys<K, S> {
    fn clone(&self) -> Self {
        match self {
            Self::Local(map) => Self::Local(Arc::clone(map)),
            Self::Distributed(keys) => Self::Distributed(Arc::clone(keys)),
        }
    }
}

/// Prints no keys: they may be personal data.
impl<K, S> fmt::Debug for Keys<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(map) => map.fmt(f),
            Self::Distributed(keys) => keys.fmt(f),
        }
    }
}
