//! The builder of a distributed keyed limiter, with every configuration check.

use super::DistributedKeyedLimiter;
use super::map::{DistributedMap, Namer};
use crate::Quota;
use crate::distributed::{Outage, QuotaTerms, Stores};
use crate::error::ConfigError;
use crate::keyed::builder::check;
use crate::keyed::map::QuotaBy;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Builds a [`DistributedKeyedLimiter`]; from [`KeyedBuilder::distributed`](crate::KeyedBuilder::distributed).
#[must_use = "a builder does nothing until `build` is called"]
pub struct DistributedKeyedBuilder<K, S> {
    config: Config<K, S>,
}

/// The settings of the builder.
pub(in crate::keyed) struct Config<K, S> {
    pub(in crate::keyed) quota: Option<Quota>,
    pub(in crate::keyed) quota_by: Option<QuotaBy<K>>,
    pub(in crate::keyed) max_keys: Option<u64>,
    pub(in crate::keyed) max_waiting: Option<usize>,
    pub(in crate::keyed) hasher: S,
    pub(in crate::keyed) stores: Arc<dyn Stores>,
    pub(in crate::keyed) name: Namer<K>,
    /// A setting that was used and is not supported.
    pub(in crate::keyed) cannot: Option<&'static str>,
}

impl<K, S> DistributedKeyedBuilder<K, S> {
    pub(in crate::keyed) fn new(config: Config<K, S>) -> Self {
        Self { config }
    }
}

impl<K, S> DistributedKeyedBuilder<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Checks all settings and builds the limiter. The limiter spawns its tasks on the runtime of this call.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the field and says what to write instead.
    pub fn build(self) -> Result<DistributedKeyedLimiter<K, S>, ConfigError> {
        let config = self.config;
        if let Some(setting) = config.cannot {
            return Err(ConfigError::DistributedKeyed { setting });
        }
        match (config.quota, &config.quota_by) {
            (Some(quota), _) => _ = terms(&quota)?,
            (None, Some(_)) => {}
            (None, None) => return Err(ConfigError::NoQuota),
        }
        if config.max_keys == Some(0) {
            return Err(ConfigError::NoKeys);
        }
        if let Outage::Share(share) = config.stores.outage() {
            share.check(0)?;
            QuotaTerms::of(&share, 0)?;
        }
        let host = Handle::try_current().map_err(|_| ConfigError::DistributedOutsideRuntime)?;
        Ok(DistributedKeyedLimiter { map: DistributedMap::new(config, host) })
    }
}

/// Converts and checks the quota of a key.
pub(super) fn terms(quota: &Quota) -> Result<QuotaTerms, ConfigError> {
    check(quota)?;
    QuotaTerms::of(quota, 0)
}

impl<K, S> fmt::Debug for DistributedKeyedBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedKeyedBuilder")
            .field("quota", &self.config.quota)
            .field("quota_by", &self.config.quota_by.is_some())
            .field("max_keys", &self.config.max_keys)
            .field("max_waiting", &self.config.max_waiting)
            .field("stores", &self.config.stores)
            .finish_non_exhaustive()
    }
}
