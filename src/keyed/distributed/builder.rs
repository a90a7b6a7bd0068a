//! The settings of a distributed keyed limiter, and their checks.

use super::DistributedKeyedLimiter;
use super::map::{DistributedMap, Namer, QuotaBy, terms};
use super::route_shard::RouteShards;
use crate::Quota;
use crate::clock::Time;
use crate::distributed::Stores;
use crate::error::ConfigError;
use crate::keyed::builder::DEFAULT_MAX_KEYS;
use crate::keyed::quotas::NamedQuota;
use crate::observe::Observers;
use crate::set_twice::SetTwice;
use crate::sync::{AtomicU64, Mutex};
use std::fmt;
use std::hash::{Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// A builder for a [`DistributedKeyedLimiter`], returned by [`DistributedKeyedLimiter::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct DistributedKeyedBuilder<K> {
    stores: Arc<dyn Stores>,
    name: Namer<K>,
    quota: Option<NamedQuota>,
    quota_by: Option<QuotaBy<K>>,
    max_keys: Option<u64>,
    max_waiting: Option<u64>,
    set_twice: SetTwice,
}

impl<K> DistributedKeyedBuilder<K> {
    pub(super) fn new(stores: Arc<dyn Stores>, name: Namer<K>) -> Self {
        let set_twice = SetTwice::default();
        Self { stores, name, quota: None, quota_by: None, max_keys: None, max_waiting: None, set_twice }
    }

    /// Sets the quota of each key. All nodes must use the same.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.set_twice.set("quota", &mut self.quota, (None, quota));
        self
    }

    /// Sets the quota of each key, with a name that refusals [carry](crate::Denied::quota_name). Each distinct name
    /// [stays in memory](crate::Quotas::quota_named).
    pub fn quota_named(mut self, name: impl AsRef<str>, quota: Quota) -> Self {
        self.set_twice.set("quota", &mut self.quota, (Some(name.as_ref().into()), quota));
        self
    }

    /// Asks `quota_by` for the quota of a key at each call on the key. All nodes must get the same answer. It is called
    /// outside of all locks.
    ///
    /// If it returns a quota that no key can have, the calls on the key are refused with `BadQuota`, and the key counts
    /// as having no tokens.
    pub fn quota_by(mut self, quota_by: impl Fn(&K) -> Quota + Send + Sync + 'static) -> Self {
        self.set_twice.set("quota_by", &mut self.quota_by, Box::new(quota_by));
        self
    }

    /// Keeps at most this many limiters of keys on this node, and as many cached replies. The default is 1,000,000.
    pub fn max_keys(mut self, keys: u64) -> Self {
        self.set_twice.set("max_keys", &mut self.max_keys, keys);
        self
    }

    /// Removes the bound of [`max_keys`](Self::max_keys).
    pub fn unbounded_keys(self) -> Self {
        self.max_keys(u64::MAX)
    }

    /// Refuses callers with `QueueFull` once this many on this node are waiting for the same key.
    pub fn max_waiting(mut self, callers: u64) -> Self {
        self.set_twice.set("max_waiting", &mut self.max_waiting, callers);
        self
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DistributedKeyedBuilder<K> {
    /// Checks the settings and builds the limiter, which spawns its tasks on the runtime of this call.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the setting and says what to write instead.
    pub fn build(self) -> Result<DistributedKeyedLimiter<K>, ConfigError> {
        self.set_twice.check()?;
        match (&self.quota, &self.quota_by) {
            (Some(_), Some(_)) => return Err(ConfigError::QuotaAndQuotaBy),
            (Some((name, quota)), None) => _ = terms(quota).map_err(|reason| reason.of(0, name.as_deref()))?,
            (None, Some(_)) => {}
            (None, None) => return Err(ConfigError::NoQuota),
        }
        if self.max_keys == Some(0) {
            return Err(ConfigError::NoKeys);
        }
        self.stores.outage().check()?;
        let host = Handle::try_current().map_err(|_| ConfigError::DistributedOutsideRuntime)?;
        // Without a common quota this value is never used: each key has its own.
        let quota = self.quota.unwrap_or_else(|| (None, Quota::per_second(1)));
        let map = DistributedMap {
            hasher: RandomState::new(),
            quota,
            quota_by: self.quota_by,
            max_waiting: self.max_waiting.unwrap_or(u64::MAX),
            stores: self.stores,
            name: self.name,
            shards: RouteShards::new(self.max_keys.unwrap_or(DEFAULT_MAX_KEYS)),
            time: Time::tokio(),
            host,
            tidier: Mutex::new(None),
            tidied_at: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            spared: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            observers: Observers::default(),
        };
        Ok(DistributedKeyedLimiter { map: Arc::new(map) })
    }
}

impl<K> fmt::Debug for DistributedKeyedBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedKeyedBuilder").field("quota", &self.quota).finish_non_exhaustive()
    }
}
