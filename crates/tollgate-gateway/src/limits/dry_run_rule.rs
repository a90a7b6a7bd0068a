//! A rule in dry run: it holds back no request, and the metrics have what it would have done.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use tollgate::metrics::Meter;
use tollgate::{ConfigError, Limiter, OwnedGrant};

use super::builders::{Builders, KeyedLimiter, OwnedKeyedGrant};
use super::saved_level::SavedLevel;
use crate::config::Config;
use crate::request::client::Client;
use crate::request::name::Name;
use crate::request::rule::{Charge, Rule};

pub(crate) struct DryRunRule {
    rule: Rule,
    /// The quota of all its requests, which clients do not share by weight here: they are served in order of arrival.
    shared: Option<(Limiter, Meter)>,
    /// The quota of each client.
    clients: Option<(KeyedLimiter<Client>, Meter<KeyedLimiter<Client>>)>,
}

/// The tokens of a rule in dry run. A request that is not forwarded gives them back.
#[derive(Default)]
pub(crate) struct DryRunGrant {
    shared: Option<OwnedGrant>,
    client: Option<OwnedKeyedGrant<Client>>,
}

impl DryRunRule {
    /// Builds the quotas of `rule`; that of all its requests continues from `level`.
    pub(crate) fn new(
        name: Name,
        rule: Rule,
        level: Option<SavedLevel>,
        config: &Arc<ArcSwap<Config>>,
        builders: &Builders,
    ) -> Result<Self, ConfigError> {
        let fixed = &config.load().fixed;
        let shared = rule.quota.map(|quota| -> Result<_, ConfigError> {
            let builder = SavedLevel::restore_to(level, builders.limiter()).quota(quota);
            let limiter = builder.max_waiting(fixed.max_waiting.value).dry_run().build()?;
            let meter = Meter::new(name.as_str(), &limiter).expect("a new limiter has no meter");
            Ok((limiter, meter))
        });
        let clients = rule.each.map(|quota| -> Result<_, ConfigError> {
            let builder = builders.keyed().quota(quota).max_keys(fixed.max_keys.value);
            let limiter = builder.max_waiting(fixed.max_waiting.value).dry_run().build()?;
            let meter = Meter::new(format!("{name} each"), &limiter).expect("a new limiter has no meter");
            Ok((limiter, meter))
        });
        Ok(Self { rule, shared: shared.transpose()?, clients: clients.transpose()? })
    }

    /// Notes a request, which is admitted in any case.
    pub(crate) fn note(&self, charge: &Charge, max_wait: Duration) -> DryRunGrant {
        let client = self.clients.as_ref().map(|(clients, _)| {
            let claim = clients.clone().consume_owned(charge.client, charge.cost);
            claim.within(max_wait).now_or_never().and_then(Result::ok)
        });
        let shared = self.shared.as_ref().map(|(limiter, _)| {
            let claim = limiter.clone().consume_owned(charge.cost);
            claim.within(max_wait).now_or_never().and_then(Result::ok)
        });
        DryRunGrant { shared: shared.flatten(), client: client.flatten() }
    }

    pub(crate) fn is_of(&self, rule: &Rule) -> bool {
        self.rule == *rule
    }

    /// The level of the quota of all requests, to be continued. The dry run is over.
    pub(crate) fn level(&self) -> Option<SavedLevel> {
        let (limiter, _) = self.shared.as_ref()?;
        limiter.set_dry_run(0, false).ok()?;
        SavedLevel::of(limiter)
    }

    pub(crate) fn publish(&self) {
        self.shared.iter().for_each(|(_, meter)| meter.publish());
        self.clients.iter().for_each(|(_, meter)| meter.publish());
    }
}

impl DryRunGrant {
    pub(crate) fn settle(&mut self, actual: u64) {
        self.shared.iter_mut().for_each(|grant| grant.settle(actual));
        self.client.iter_mut().for_each(|grant| grant.settle(actual));
    }
}
