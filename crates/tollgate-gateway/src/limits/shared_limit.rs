//! A limit of a rule that several clients share, as they share the limit of all requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate::metrics::Meter;
use tollgate::{ConfigError, Limiter};

use super::UNCAPPED;
use super::builders::Builders;
use super::fair_queue::FairQueue;
use super::saved_level::SavedLevel;
use crate::config::Config;
use crate::request::name::Name;
use crate::request::rule::{Rule, unlimited};

/// One limit, divided by weight among the clients that wait for it.
pub(crate) struct SharedLimit {
    pub(crate) limiter: Limiter,
    pub(crate) fair_queue: FairQueue,
    meter: Meter,
    /// When the limit last followed a response, by the clock of `builders`.
    followed: Mutex<Option<Duration>>,
    builders: Builders,
}

/// For how long a limit follows a response, as a pause is for no longer.
const FOLLOWED_FOR: Duration = Duration::from_secs(600);

impl SharedLimit {
    /// Builds the limit of `rule`, which continues from `level`.
    pub(crate) fn new(
        name: Name,
        rule: &Rule,
        level: Option<SavedLevel>,
        config: &Arc<ArcSwap<Config>>,
        builders: &Builders,
    ) -> Result<Self, ConfigError> {
        let (quota, cap) = (rule.quota.unwrap_or_else(unlimited), rule.in_flight.unwrap_or(UNCAPPED));
        let builder = SavedLevel::restore_to(level, builders.limiter());
        let limiter = builder.quota(quota).max_in_flight(cap).classes().build()?;
        let fair_queue = FairQueue::of_rule(&limiter, config, [(); 2].map(|()| builders.keyed()))?;
        let meter = Meter::new(name.as_str(), &limiter).expect("a new limiter has no meter");
        Ok(Self { limiter, fair_queue, meter, followed: Mutex::default(), builders: builders.clone() })
    }

    /// Changes the limits. The level stays, and waiting requests are re-timed.
    ///
    /// # Panics
    ///
    /// Panics if `new` was not checked.
    pub(crate) fn change(&self, old: &Rule, new: &Rule) {
        let checked = "the rule was checked";
        self.restore_quota(new, checked);
        if new.in_flight != old.in_flight {
            self.limiter.set_max_in_flight(new.in_flight.unwrap_or(UNCAPPED)).expect(checked);
        }
    }

    /// Notes that the limit follows a response.
    pub(crate) fn followed(&self) {
        *self.followed.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.builders.now());
    }

    /// Takes the quota of the file again, if the last response that the limit followed was long ago.
    pub(crate) fn restore_expired(&self, rule: &Rule) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.is_some_and(|at| self.builders.now().saturating_sub(at) > FOLLOWED_FOR) {
            *followed = None;
            drop(followed);
            self.restore_quota(rule, "the rule is in force");
        }
    }

    /// Sets the quota of the file, which the limit may have left to follow the upstream.
    fn restore_quota(&self, rule: &Rule, checked: &str) {
        let quota = rule.quota.unwrap_or_else(unlimited);
        if self.limiter.snapshot().quotas[0].quota != quota {
            self.limiter.set_quota(0, quota).expect(checked);
        }
    }

    pub(crate) fn publish(&self) {
        self.meter.publish();
    }
}
