//! The settings of a distributed keyed limiter.

use crate::Quota;
use crate::distributed::{QuotaTerms, Stores};
use crate::error::ConfigError;
use crate::keyed::map::QuotaBy;
use crate::keyed::quotas::{NamedQuota, Quotas};
use std::sync::Arc;

/// Returns the text of a key, which names its store.
pub(in crate::keyed) type Namer<K> = Box<dyn Fn(&K) -> String + Send + Sync>;

/// The settings of the builder.
pub(in crate::keyed) struct Config<K, S> {
    pub(in crate::keyed) quota: Option<NamedQuota>,
    pub(in crate::keyed) quota_by: Option<QuotaBy<K>>,
    pub(in crate::keyed) max_keys: Option<u64>,
    pub(in crate::keyed) max_waiting: Option<usize>,
    pub(in crate::keyed) hasher: S,
    pub(in crate::keyed) stores: Arc<dyn Stores>,
    pub(in crate::keyed) name: Namer<K>,
    /// The name of a setting that was used and is not supported, if there is one.
    pub(in crate::keyed) cannot: Option<&'static str>,
}

/// Converts and checks the quota of a key.
pub(super) fn terms(quota: &Quota) -> Result<QuotaTerms, ConfigError> {
    Quotas::from(*quota).check()?;
    QuotaTerms::of(quota, 0)
}
