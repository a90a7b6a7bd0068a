//! The limiters. They are built from a configuration and changed by the next one, while requests wait.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tollgate::{Builder, ConfigError, KeyedBuilder, KeyedLimiter, Limiter};

use super::client::Client;
use super::config::Config;
use super::name::Name;
use super::problem::Problem;

/// Stands for an absent cap: more tokens than can ever be in flight. The limiter is built with a cap so that one can be
/// set later, and so that the tokens in flight are counted.
pub(crate) const UNCAPPED: u64 = 1 << 48;

pub(crate) struct Limits {
    /// All requests together.
    pub(crate) all: Limiter,
    /// The requests of each client.
    pub(crate) each: KeyedLimiter<Client>,
    /// Whether each client has a cap on its tokens in flight.
    pub(crate) each_is_capped: bool,
    /// Whether every response reports the remaining tokens, or only refusals.
    pub(crate) tells_always: bool,
    /// An `ArcSwap`: threads that read it do not write to memory that other threads read.
    config: ArcSwap<Config>,
    /// Locked while the limits are changed.
    changes: Mutex<()>,
}

impl Limits {
    pub(crate) fn new(config: Config) -> Result<Self, ConfigError> {
        Self::with(config, Limiter::builder(), KeyedLimiter::builder())
    }

    /// Builds the limits from builders that may have a clock already.
    pub(crate) fn with(config: Config, all: Builder, each: KeyedBuilder<Client>) -> Result<Self, ConfigError> {
        let all = all
            .quota(config.global)
            .max_in_flight(config.in_flight.unwrap_or(UNCAPPED))
            .max_waiting(config.fixed.max_waiting.value)
            .build()?;
        let each = each
            .quota(config.keys.quota)
            .max_keys(config.fixed.max_keys.value)
            .max_waiting(config.fixed.max_waiting.value);
        // A key with tokens in flight takes a kilobyte. So there is no large cap by default.
        let each = match config.fixed.key_in_flight.value {
            Some(tokens) => each.max_in_flight(tokens),
            None => each,
        };
        let each = each.build()?;
        for (name, quota) in &config.keys.quotas {
            each.set_quota_for(&Client::Listed(*name), *quota)?;
        }
        let each_is_capped = config.fixed.key_in_flight.value.is_some();
        let tells_always = config.fixed.tells_always.value;
        let (config, changes) = (ArcSwap::from_pointee(config), Mutex::default());
        Ok(Self { all, each, each_is_capped, tells_always, config, changes })
    }

    /// The current configuration. Do not keep the guard.
    pub(crate) fn config(&self) -> Guard<Arc<Config>> {
        self.config.load()
    }

    /// Applies `new`, which was read from `path`. Waiting requests are re-timed and none is lost. On a `Problem`
    /// nothing has changed.
    pub(crate) fn change(&self, new: Config, path: &Path) -> Result<(), Problem> {
        let _one_at_a_time = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.config.load_full();
        new.check_fixed(path, &old.fixed)?;
        self.give_quotas(&old, &new, path)?;
        let checked = "the configuration was checked";
        if new.keys.quota != old.keys.quota {
            self.each.set_quota(new.keys.quota).expect(checked);
        }
        for name in old.keys.quotas.keys().filter(|name| !new.keys.quotas.contains_key(*name)) {
            self.each.reset_quota_for(&Client::Listed(*name));
        }
        if new.global != old.global {
            self.all.set_quota(0, new.global).expect(checked);
        }
        if new.in_flight != old.in_flight {
            self.all.set_max_in_flight(new.in_flight.unwrap_or(UNCAPPED)).expect(checked);
        }
        self.config.store(Arc::new(new));
        Ok(())
    }

    /// Sets the quotas of the keys that have one of their own. A new one needs an entry, the only step that can fail.
    /// So the new ones come first, and are reset if one of them fails.
    fn give_quotas(&self, old: &Config, new: &Config, path: &Path) -> Result<(), Problem> {
        let client = |name: &Name| Client::Listed(*name);
        let is_new = |name: &Name| !old.keys.quotas.contains_key(name);
        let quotas = &new.keys.quotas;
        for (name, quota) in quotas.iter().filter(|(name, _)| is_new(name)) {
            if let Err(error) = self.each.set_quota_for(&client(name), *quota) {
                quotas.keys().filter(|given| is_new(given)).for_each(|given| self.each.reset_quota_for(&client(given)));
                return Err(Problem::no_room(path, name.as_str(), &error));
            }
        }
        for (name, quota) in
            quotas.iter().filter(|(name, quota)| old.keys.quotas.get(*name).is_some_and(|old| old != *quota))
        {
            self.each.set_quota_for(&client(name), *quota).expect("the key has an entry, and the quota was checked");
        }
        Ok(())
    }

    /// Refuses all requests that wait, and all later ones.
    pub(crate) fn close(&self) {
        self.each.close();
        self.all.close();
    }
}
