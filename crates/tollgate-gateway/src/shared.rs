//! A limit of a rule that several clients share, as they share the limit of all requests.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::metrics::Meter;
use tollgate::{ConfigError, Limiter, Quota};

use super::builders::Builders;
use super::config::Config;
use super::limits::UNCAPPED;
use super::name::Name;
use super::rule::Rule;
use super::shares::Shares;

/// One limit, divided by weight among the clients that wait for it.
pub(crate) struct Shared {
    pub(crate) limiter: Limiter,
    pub(crate) shares: Shares,
    meter: Meter,
}

/// Stands for an absent quota, where a rule only has a cap in flight.
pub(crate) fn unlimited() -> Quota {
    Quota::per_second(1_000_000_000)
}

impl Shared {
    pub(crate) fn new(
        name: Name,
        rule: &Rule,
        config: &Arc<ArcSwap<Config>>,
        builders: &Builders,
    ) -> Result<Self, ConfigError> {
        let (quota, cap) = (rule.quota.unwrap_or_else(unlimited), rule.in_flight.unwrap_or(UNCAPPED));
        let limiter = builders.limiter().quota(quota).max_in_flight(cap).classes().build()?;
        let shares = Shares::of_rule(&limiter, config, [(); 2].map(|()| builders.keyed()))?;
        let meter = Meter::new(name.as_str(), &limiter).expect("a new limiter has no meter");
        Ok(Self { limiter, shares, meter })
    }

    /// Changes the limits. The level stays, and waiting requests are re-timed.
    ///
    /// # Panics
    ///
    /// Panics if `new` was not checked.
    pub(crate) fn change(&self, old: &Rule, new: &Rule) {
        let checked = "the rule was checked";
        if new.quota != old.quota {
            self.limiter.set_quota(0, new.quota.unwrap_or_else(unlimited)).expect(checked);
        }
        if new.in_flight != old.in_flight {
            self.limiter.set_max_in_flight(new.in_flight.unwrap_or(UNCAPPED)).expect(checked);
        }
    }

    pub(crate) fn publish(&self) {
        self.meter.publish();
    }
}
