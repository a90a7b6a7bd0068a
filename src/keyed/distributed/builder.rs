//! The configuration checks of a distributed keyed limiter.

use super::map::{DistributedMap, Namer};
use crate::Quota;
use crate::distributed::{Outage, QuotaTerms, Stores};
use crate::error::ConfigError;
use crate::keyed::builder::check;
use crate::keyed::map::QuotaBy;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use tokio::runtime::Handle;

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

/// Checks all settings and builds the keys. They spawn their tasks on the runtime of this call.
pub(in crate::keyed) fn build<K, S>(config: Config<K, S>) -> Result<Arc<DistributedMap<K, S>>, ConfigError>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
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
    Ok(DistributedMap::new(config, host))
}

/// Converts and checks the quota of a key.
pub(super) fn terms(quota: &Quota) -> Result<QuotaTerms, ConfigError> {
    check(quota)?;
    QuotaTerms::of(quota, 0)
}
