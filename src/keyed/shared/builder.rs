//! Building a shared keyed limiter: every configuration check.

use super::SharedKeyedLimiter;
use super::core::{Core, Namer};
use crate::Quota;
use crate::error::ConfigError;
use crate::keyed::builder::check;
use crate::keyed::map::QuotaBy;
use crate::lease::{Lines, Outage, Terms};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use tokio::runtime::Handle;

/// What a [`SharedKeyedLimiter`] will be; from [`KeyedBuilder::shared`](crate::KeyedBuilder::shared).
#[must_use = "a builder does nothing until `build` is called"]
pub struct SharedKeyedBuilder<K, S> {
    wishes: Wishes<K, S>,
}

/// What was set.
pub(in crate::keyed) struct Wishes<K, S> {
    pub(in crate::keyed) quota: Option<Quota>,
    pub(in crate::keyed) quota_by: Option<QuotaBy<K>>,
    pub(in crate::keyed) max_keys: Option<u64>,
    pub(in crate::keyed) max_waiting: Option<usize>,
    pub(in crate::keyed) hasher: S,
    pub(in crate::keyed) lines: Arc<dyn Lines>,
    pub(in crate::keyed) name: Namer<K>,
    /// Something that was set and cannot be had.
    pub(in crate::keyed) cannot: Option<&'static str>,
}

impl<K, S> SharedKeyedBuilder<K, S> {
    pub(in crate::keyed) fn new(wishes: Wishes<K, S>) -> Self {
        Self { wishes }
    }
}

impl<K, S> SharedKeyedBuilder<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Checks everything and builds the limiter, which spawns its tasks on the runtime on which this is called.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the field and says what to write instead.
    pub fn build(self) -> Result<SharedKeyedLimiter<K, S>, ConfigError> {
        let wishes = self.wishes;
        if let Some(setting) = wishes.cannot {
            return Err(ConfigError::SharedKeyed { setting });
        }
        match (wishes.quota, &wishes.quota_by) {
            (Some(quota), _) => _ = terms(&quota)?,
            (None, Some(_)) => {}
            (None, None) => return Err(ConfigError::NoQuota),
        }
        if wishes.max_keys == Some(0) {
            return Err(ConfigError::NoKeys);
        }
        if let Outage::Share(share) = wishes.lines.outage() {
            share.check(0)?;
            Terms::of(&share, 0)?;
        }
        let host = Handle::try_current().map_err(|_| ConfigError::SharedOutside)?;
        Ok(SharedKeyedLimiter { core: Core::new(wishes, host) })
    }
}

/// A quota that keys can have, as lines count it.
pub(super) fn terms(quota: &Quota) -> Result<Terms, ConfigError> {
    check(quota)?;
    Terms::of(quota, 0)
}

impl<K, S> fmt::Debug for SharedKeyedBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKeyedBuilder")
            .field("quota", &self.wishes.quota)
            .field("quota_by", &self.wishes.quota_by.is_some())
            .field("max_keys", &self.wishes.max_keys)
            .field("max_waiting", &self.wishes.max_waiting)
            .field("lines", &self.wishes.lines)
            .finish_non_exhaustive()
    }
}
