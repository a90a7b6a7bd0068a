//! The configuration checks of a distributed keyed limiter.

use super::config::{Config, terms};
use super::map::DistributedMap;
use crate::distributed::{Outage, QuotaTerms};
use crate::error::ConfigError;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Checks all settings and builds the keys. They spawn their tasks on the runtime of this call.
pub(in crate::keyed) fn build<K, S>(config: Config<K, S>) -> Result<Arc<DistributedMap<K, S>>, ConfigError>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    if let Some(setting) = config.cannot {
        return Err(ConfigError::DistributedKeyed { setting });
    }
    match (&config.quota, &config.quota_by) {
        (Some((name, quota)), _) => _ = terms(quota).map_err(|error| error.of_quota(name.as_deref()))?,
        (None, Some(_)) => {}
        (None, None) => return Err(ConfigError::NoQuota),
    }
    if config.max_keys == Some(0) {
        return Err(ConfigError::NoKeys);
    }
    if let Outage::Share(share) = config.stores.outage() {
        share.check()?;
        QuotaTerms::of(&share, 0)?;
    }
    let host = Handle::try_current().map_err(|_| ConfigError::DistributedOutsideRuntime)?;
    Ok(DistributedMap::new(config, host))
}
