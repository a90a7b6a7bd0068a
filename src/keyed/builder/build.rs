//! From settings to a keyed limiter: all configuration checks.

use super::KeyedBuilder;
use crate::Quota;
use crate::clock::Time;
use crate::core::claim_scope::ClaimScope;
use crate::core::state::ChildLimiter;
use crate::error::ConfigError;
use crate::keyed::KeyedLimiter;
use crate::keyed::driver_pool::DriverPool;
use crate::keyed::dry_run::KeyedDryRun;
use crate::keyed::key_limit::KeyLimit;
use crate::keyed::live::LiveTemplate;
use crate::keyed::map::Map;
use crate::keyed::periods::Calendars;
use crate::keyed::quotas::Quotas;
use crate::keyed::rates::{Kind, Rates};
use crate::keyed::shard::{Locked, Shard};
use crate::keyed::top::{MOST_REFUSED, Ranks, SpaceSaving};
use crate::observe::Observers;
use crate::quota::{check_cap, check_max_cost};
use crate::sync::{AtomicU64, Mutex, ShardMutex};
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{self, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The number of shards with the default bound on keys. It is large enough that a table of a million keys is rebuilt in
/// small pieces, and small enough that the tables fill most of the memory pages they occupy.
const SHARDS: usize = 400;
/// The number of shards without a bound on keys: four million keys are in pieces of the same size.
const SHARDS_WITHOUT_BOUND: usize = 1_600;
/// Keys per shard, if the number of keys is bounded.
const KEYS_PER_SHARD: u64 = 384;
const MAX_SHARDS: u64 = 8_192;
/// The bound on keys if the builder sets none. Some 30 MB of small keys; a limit per second or minute reaches it only
/// under attack, because a key that owes nothing is forgotten.
pub(in crate::keyed) const DEFAULT_MAX_KEYS: u64 = 1_000_000;

/// The number of the next keyed limiter.
static NEXT_NUMBER: atomic::AtomicU64 = atomic::AtomicU64::new(1);

impl<K, S> KeyedBuilder<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Checks the configuration and builds the limiter. Its time begins now: stepped quotas count their periods from
    /// this instant.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the field and says what to write instead.
    pub fn build(self) -> Result<KeyedLimiter<K, S>, ConfigError> {
        self.settings.set_twice.check()?;
        let (quotas, kind) = self.common_quotas()?;
        self.check(&quotas)?;
        let parent = self.settings.parent.clone();
        if let Some(parent) = parent.as_ref().filter(|parent| parent.has_classes) {
            parent.with(|state, _, _| state.add_keys(parent.group))?;
        }
        let map = self.into_map(quotas, kind)?;
        let child: Arc<dyn ChildLimiter> = map.clone();
        if parent.is_some_and(|parent| !parent.add_child(parent.group, Arc::downgrade(&child))) {
            map.close();
        }
        Ok(KeyedLimiter { map })
    }

    /// The quotas of keys without quotas of their own.
    fn common_quotas(&self) -> Result<(Quotas, Kind), ConfigError> {
        match (self.settings.quotas.is_empty(), &self.by_key.quotas) {
            (false, None) => Ok((self.settings.quotas.clone(), Kind::Quotas)),
            (true, Some(_)) => Ok((Quota::per_second(1).into(), Kind::QuotaBy)),
            // Only the parent or the cap limits the keys.
            (true, None) if self.settings.parent.is_some() || self.settings.max_in_flight.is_some() => {
                Ok((Quota::unlimited().into(), Kind::NoQuota))
            }
            (true, None) => Err(ConfigError::NoQuota),
            (false, Some(_)) => Err(ConfigError::QuotaAndQuotaBy),
        }
    }

    fn check(&self, common: &Quotas) -> Result<(), ConfigError> {
        common.check()?;
        self.settings.max_in_flight.map_or(Ok(()), check_cap)?;
        check_max_cost(self.settings.max_cost)?;
        let parent = self.settings.parent.as_ref();
        if self.by_key.weight.is_some() && !parent.is_some_and(|parent| parent.has_classes) {
            return Err(ConfigError::WeightsWithoutClasses);
        }
        if parent.is_some_and(|parent| self.settings.dry_run || parent.core().has_dry_run()) {
            return Err(ConfigError::DryRunUnsupported { setting: "parent" });
        }
        if parent.is_some_and(|parent| parent.limiter.parent().is_some()) {
            return Err(ConfigError::KeyUnderParent);
        }
        if let Some(error) = parent.and_then(|parent| parent.sliding_quota()) {
            return Err(error);
        }
        if self.settings.max_keys == Some(0) {
            return Err(ConfigError::NoKeys);
        }
        if self.settings.top == Some(Duration::ZERO) {
            return Err(ConfigError::NoWindow);
        }
        Ok(())
    }

    fn into_map(self, quotas: Quotas, kind: Kind) -> Result<Arc<Map<K, S>>, ConfigError> {
        let Self { settings, by_key, hasher } = self;
        let (max_keys, top) = (settings.max_keys.unwrap_or(DEFAULT_MAX_KEYS), settings.top);
        let shards = settings.shards.unwrap_or(shards_for(settings.max_keys));
        let time = settings.clock.map_or_else(Time::tokio, Time::other);
        #[cfg(feature = "state")]
        let common = if kind == Kind::QuotaBy { Vec::new() } else { quotas.iter().collect() };
        #[cfg(feature = "state")]
        let restored = by_key.restore.map(|(state, wall_clock)| state.checked(&common, wall_clock)).transpose()?;
        #[cfg(feature = "state")]
        let time = restored.iter().fold(time, |time, restored| restored.begin(time));
        let calendars = Calendars::new(time.clone());
        #[cfg(feature = "state")]
        restored.iter().for_each(|restored| restored.continue_periods(&calendars));
        let mut rates = Rates::new(quotas, Some(&calendars));
        rates.kind = kind;
        let rates = Arc::new(rates);
        let (parent, max_in_flight, max_cost) = (settings.parent, settings.max_in_flight, settings.max_cost);
        let has_extras = max_in_flight.is_some() || top.is_some() || parent.is_some() || max_cost.is_some();
        let (now, may_run_ahead) = (time.now(), time.runs_no_user_code() && !has_extras);
        let shard = |_| {
            let mut shard = Shard::new(Arc::clone(&rates), may_run_ahead);
            shard.ranks = top.map(|window| Box::new(Ranks::new(window, shards, now)));
            Locked::new(shard)
        };
        let map = Arc::new_cyclic(|map: &Weak<Map<K, S>>| {
            let limiter = parent.as_ref().map(|parent| Arc::clone(&parent.limiter));
            let key_limit = Arc::new(KeyLimit::new(max_keys, shards));
            let pool = Arc::new(DriverPool::new(map.clone(), Arc::clone(&key_limit), time.clone(), limiter));
            Map {
                hasher,
                shards: (0..shards).map(shard).collect(),
                key_limit,
                after_parent: parent.as_ref().and_then(|parent| after(&time, &parent.time)),
                has_extras,
                template: LiveTemplate {
                    time,
                    calendars,
                    cap: max_in_flight.map(AtomicU64::new),
                    gate: AtomicU64::new(0),
                    max_waiting: settings.max_waiting.unwrap_or(u64::MAX),
                    max_cost: max_cost.unwrap_or(u64::MAX),
                    driver: Arc::new(Arc::clone(&pool)),
                    parent,
                    number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
                    observers: Observers::default(),
                    dry_run: KeyedDryRun::new(settings.dry_run),
                },
                quota_by: by_key.quotas,
                weight_by: by_key.weight,
                known: Mutex::new(Vec::new()),
                pool,
                versions: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                most_refused: ShardMutex::new(SpaceSaving::new(MOST_REFUSED)),
                is_ranked: top.is_some(),
            }
        });
        #[cfg(feature = "state")]
        restored.map_or(Ok(()), |restored| restored.apply(&KeyedLimiter { map: Arc::clone(&map) }))?;
        Ok(map)
    }
}

/// The number of shards for this setting of `max_keys`. The default bound does not change it, because most limiters
/// hold far fewer keys.
fn shards_for(max_keys: Option<u64>) -> usize {
    match max_keys {
        None => SHARDS,
        Some(u64::MAX) => SHARDS_WITHOUT_BOUND,
        Some(keys) => (keys / KEYS_PER_SHARD).clamp(1, MAX_SHARDS) as usize,
    }
}

/// By how many nanoseconds `time` began after `parent`, if both read one clock.
fn after(time: &Time, parent: &Time) -> Option<i64> {
    let began = parent.is_one_with(time).then(|| time.translate(parent, 0))?;
    i64::try_from(-began).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bound_that_was_set_decides_the_number_of_shards() {
        let of_default_size = usize::try_from(DEFAULT_MAX_KEYS / KEYS_PER_SHARD).unwrap();
        assert_eq!([None, Some(u64::MAX)].map(shards_for), [SHARDS, SHARDS_WITHOUT_BOUND]);
        assert_eq!(shards_for(Some(DEFAULT_MAX_KEYS)), of_default_size);
        assert_eq!([1, u64::MAX - 1].map(|keys| shards_for(Some(keys))), [1, MAX_SHARDS as usize]);
    }
}
