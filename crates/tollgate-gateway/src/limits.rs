//! The limits in force: made from a configuration, changed by the next one, with everybody in line.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tollgate::{Builder, ConfigError, KeyedBuilder, KeyedLimiter, Limiter};

use super::config::Config;
use super::problem::Problem;
use super::who::{Name, Who};

/// What an absent cap is: more than any line holds. The limiter is built with one, so that a cap can come later, and what
/// is in flight can be seen.
pub(crate) const UNCAPPED: u64 = 1 << 48;

pub(crate) struct Limits {
    /// All requests together.
    pub(crate) all: Limiter,
    /// Each one who asks.
    pub(crate) each: KeyedLimiter<Who>,
    /// Whether each has a cap on what it has in flight.
    pub(crate) each_is_capped: bool,
    /// Whether every response says what is left, or only refusals.
    pub(crate) tells_always: bool,
    /// Threads that read it do not write anything that others read.
    config: ArcSwap<Config>,
    /// Held while it is changed.
    changes: Mutex<()>,
}

impl Limits {
    pub(crate) fn new(config: Config) -> Result<Self, ConfigError> {
        Self::with(config, Limiter::builder(), KeyedLimiter::builder())
    }

    /// With builders that know a clock already.
    pub(crate) fn with(config: Config, all: Builder, each: KeyedBuilder<Who>) -> Result<Self, ConfigError> {
        let all = all
            .quota(config.global)
            .max_in_flight(config.in_flight.unwrap_or(UNCAPPED))
            .max_waiting(config.fixed.max_waiting.value)
            .build()?;
        let each = each
            .quota(config.keys.quota)
            .max_keys(config.fixed.max_keys.value)
            .max_waiting(config.fixed.max_waiting.value);
        // A key with tokens in flight takes a kilobyte: so there is no cap that is more than any line holds.
        let each = match config.fixed.key_in_flight.value {
            Some(tokens) => each.max_in_flight(tokens),
            None => each,
        };
        let each = each.build()?;
        for (name, quota) in &config.keys.quotas {
            each.set_quota_for(&Who::Listed(*name), *quota)?;
        }
        let each_is_capped = config.fixed.key_in_flight.value.is_some();
        let tells_always = config.fixed.tells_always.value;
        let (config, changes) = (ArcSwap::from_pointee(config), Mutex::default());
        Ok(Self { all, each, each_is_capped, tells_always, config, changes })
    }

    /// What is in force at this moment: not to be kept.
    pub(crate) fn config(&self) -> Guard<Arc<Config>> {
        self.config.load()
    }

    /// Puts `new` in force; `path` is where it comes from. Those in line are timed anew, nobody leaves it. On a `Problem`
    /// everything is as it was.
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
            self.each.reset_quota_for(&Who::Listed(*name));
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

    /// The quotas of those that have one of their own. Who is new among them needs a place, the only thing that can fail;
    /// so they come first, and what was done is taken back.
    fn give_quotas(&self, old: &Config, new: &Config, path: &Path) -> Result<(), Problem> {
        let who = |name: &Name| Who::Listed(*name);
        let is_new = |name: &Name| !old.keys.quotas.contains_key(name);
        let quotas = &new.keys.quotas;
        for (name, quota) in quotas.iter().filter(|(name, _)| is_new(name)) {
            if let Err(error) = self.each.set_quota_for(&who(name), *quota) {
                quotas.keys().filter(|given| is_new(given)).for_each(|given| self.each.reset_quota_for(&who(given)));
                return Err(Problem::no_room(path, name.as_str(), &error));
            }
        }
        for (name, quota) in
            quotas.iter().filter(|(name, quota)| old.keys.quotas.get(*name).is_some_and(|old| old != *quota))
        {
            self.each.set_quota_for(&who(name), *quota).expect("it has a place, and the quota was checked");
        }
        Ok(())
    }

    /// Who is in line gets an answer now, and nobody else gets in.
    pub(crate) fn close(&self) {
        self.each.close();
        self.all.close();
    }
}
