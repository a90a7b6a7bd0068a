//! The limiters of the rules. A request waits in its own bucket of a rule first, then for its share of the whole rule.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate::metrics::{AlreadyMetered, Meter};
use tollgate::{ConfigError, ConsumeError, KeyedLimiter, OwnedKeyedGrant, Quota};
use tollgate_tower::http::{RateLimits, Terms};

use super::builders::Builders;
use super::rule_client_limits::{RuleClientLimits, RuleKey};
use super::shared_limit::SharedLimit;
use super::time_left::TimeLeft;
use crate::config::Config;
use crate::request::client::Client;
use crate::request::name::Name;
use crate::request::rule::{Charge, Rule};

pub(crate) struct Rules {
    /// By name. Rules that only limit each client have none.
    shared: ArcSwap<HashMap<Name, Arc<SharedLimit>>>,
    clients: RuleClientLimits,
    config: Arc<ArcSwap<Config>>,
    builders: Builders,
}

/// The limit that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusingLimit {
    /// That of one client within a rule.
    Client(RuleKey),
    /// That of a rule.
    Rule(Name),
}

/// The tokens that a request has of its rules. If they are dropped before they are [used](Self::used), they are given
/// back.
#[derive(Default)]
pub(crate) struct RuleGrants {
    clients: Vec<OwnedKeyedGrant<RuleKey>>,
    shared: Vec<OwnedKeyedGrant<Client>>,
    is_used: bool,
}

impl Rules {
    pub(crate) fn new(config: &Arc<ArcSwap<Config>>, builders: &Builders) -> Result<Self, ConfigError> {
        let mut shared = HashMap::new();
        for (name, rule) in config.load().rules.iter().filter(|(_, rule)| is_shared(rule)) {
            shared.insert(*name, Arc::new(SharedLimit::new(*name, rule, config, builders)?));
        }
        Ok(Self {
            shared: ArcSwap::from_pointee(shared),
            clients: RuleClientLimits::new(config, builders)?,
            config: Arc::clone(config),
            builders: builders.clone(),
        })
    }

    /// Waits for the tokens of all `charges`, one after the other: the clients first, so that a client that floods a rule
    /// fills a queue of its own. `client` has the share of each rule.
    pub(crate) async fn admit(
        &self,
        client: &Client,
        charges: &[Charge],
        left: &mut TimeLeft,
    ) -> Result<RuleGrants, (RefusingLimit, ConsumeError)> {
        self.check_fits(charges, left.get())?;
        let mut grants = RuleGrants::default();
        for charge in charges.iter().filter(|charge| self.has_client_quota(charge.rule)) {
            let granted = self.clients.admit(charge, left).await;
            grants.clients.push(granted.map_err(|(key, why)| (RefusingLimit::Client(key), why))?);
        }
        // Caps last: a request that waits for tokens holds no place in flight.
        let mut charges: Vec<&Charge> = charges.iter().collect();
        charges.sort_by_key(|charge| self.is_capped(charge.rule));
        for charge in charges {
            let Some(shared) = self.shared(charge.rule) else { continue };
            let max_wait = left.get();
            let granted = left.spend(shared.fair_queue.admit(client, charge.cost, max_wait)).await;
            grants.shared.push(granted.map_err(|why| (RefusingLimit::Rule(charge.rule), why))?);
        }
        Ok(grants)
    }

    /// Refuses a request that would wait for too long even in full buckets.
    fn check_fits(&self, charges: &[Charge], max_wait: Duration) -> Result<(), (RefusingLimit, ConsumeError)> {
        let config = self.config.load();
        for Charge { rule: name, client, cost } in charges {
            let Some(rule) = config.rules.get(name) else { continue };
            let key = RefusingLimit::Client(RuleKey { rule: *name, client: *client });
            for (refused_by, quota) in [(key, rule.each), (RefusingLimit::Rule(*name), rule.quota)] {
                if let Some(most) = quota.map(|quota| most_within(&quota, max_wait)).filter(|most| cost > most) {
                    return Err((refused_by, ConsumeError::TooLarge { cost: *cost, most, by: None, quota_name: None }));
                }
            }
        }
        Ok(())
    }

    /// The longest wait of a request in one of the queues, as far as it is known, and the limit that causes it.
    pub(crate) fn estimate(&self, client: &Client, charges: &[Charge]) -> Option<(RefusingLimit, Duration)> {
        let clients = charges.iter().filter(|charge| self.has_client_quota(charge.rule)).filter_map(|charge| {
            let key = RuleKey { rule: charge.rule, client: charge.client };
            Some((RefusingLimit::Client(key), self.clients.of(&key).estimate(&key, charge.cost)?))
        });
        let shared = charges.iter().filter_map(|charge| {
            let wait = self.shared(charge.rule)?.fair_queue.estimate(client, charge.cost)?;
            Some((RefusingLimit::Rule(charge.rule), wait))
        });
        clients.chain(shared).max_by_key(|(_, wait)| *wait)
    }

    /// Refuses a request that finds too many others in the queue of a rule.
    pub(crate) fn check_full(&self, client: &Client, charges: &[Charge]) -> Result<(), (RefusingLimit, ConsumeError)> {
        charges.iter().try_for_each(|charge| match self.shared(charge.rule) {
            Some(shared) => {
                shared.fair_queue.check_full(client, charge.cost).map_err(|why| (RefusingLimit::Rule(charge.rule), why))
            }
            None => Ok(()),
        })
    }

    /// The state of the limit that refused, for the client.
    pub(crate) fn rate_limits(&self, refused_by: &RefusingLimit) -> RateLimits {
        let terms = Terms::default().name(refused_by.to_string());
        match refused_by {
            RefusingLimit::Client(key) => RateLimits::of_key(self.clients.of(key), key, &terms),
            RefusingLimit::Rule(name) => {
                self.shared(*name).map(|shared| RateLimits::of(&shared.limiter.snapshot(), &terms)).unwrap_or_default()
            }
        }
    }

    /// Makes room for what `new` adds, and changes what it changes. Called before `new` is in force.
    ///
    /// # Panics
    ///
    /// Panics if a rule of `new` was not checked.
    pub(crate) fn change(&self, old: &Config, new: &Config) {
        let mut all = HashMap::clone(&self.shared.load());
        for (name, shared) in &all {
            // Requests that still wait for a rule that is gone wait no longer.
            let of = |config: &Config| config.rules.get(name).copied().unwrap_or_default();
            shared.change(&of(old), &of(new));
            shared.fair_queue.change(old, new);
        }
        all.retain(|name, _| new.rules.get(name).is_some_and(is_shared));
        for (name, rule) in new.rules.iter().filter(|(_, rule)| is_shared(rule)) {
            let build = || SharedLimit::new(*name, rule, &self.config, &self.builders).expect("the rule was checked");
            all.entry(*name).or_insert_with(|| Arc::new(build()));
        }
        self.shared.store(Arc::new(all));
    }

    /// Takes the quotas of clients from the configuration in force.
    pub(crate) fn renew(&self) {
        self.clients.renew();
    }

    pub(crate) fn shared(&self, name: Name) -> Option<Arc<SharedLimit>> {
        self.shared.load().get(&name).cloned()
    }

    fn has_client_quota(&self, name: Name) -> bool {
        self.config.load().rules.get(&name).is_some_and(|rule| rule.each.is_some())
    }

    fn is_capped(&self, name: Name) -> bool {
        self.config.load().rules.get(&name).is_some_and(|rule| rule.in_flight.is_some())
    }

    pub(crate) fn meters(&self) -> Result<[Meter<KeyedLimiter<RuleKey>>; 2], AlreadyMetered> {
        self.clients.meters()
    }

    pub(crate) fn publish(&self) {
        self.shared.load().values().for_each(|shared| shared.publish());
    }

    /// Serves the queues, where the clock is moved by hand.
    #[cfg(test)]
    pub(crate) fn tick(&self) {
        self.clients.tick();
        self.shared.load().values().for_each(|shared| shared.limiter.tick());
    }

    /// Refuses all requests that wait, and all later ones.
    pub(crate) fn close(&self) {
        self.clients.close();
        self.shared.load().values().for_each(|shared| shared.limiter.close());
    }
}

/// The highest cost that a full bucket pays for within `max_wait`.
fn most_within(quota: &Quota, max_wait: Duration) -> u64 {
    let refilled = max_wait.as_secs_f64() / quota.period().as_secs_f64() * quota.amount() as f64;
    // The cast saturates.
    quota.capacity().saturating_add(refilled as u64)
}

fn is_shared(rule: &Rule) -> bool {
    rule.quota.is_some() || rule.in_flight.is_some()
}

impl RuleGrants {
    /// Says that the request is forwarded: its tokens are used. Those of whole rules are in flight until this is
    /// dropped.
    pub(crate) fn used(mut self) -> Self {
        self.is_used = true;
        self
    }

    /// Sets the real cost in each of the rules.
    pub(crate) fn settle(&mut self, actual: u64) {
        self.clients.iter_mut().for_each(|grant| grant.settle(actual));
        self.shared.iter_mut().for_each(|grant| grant.settle(actual));
    }
}

impl Drop for RuleGrants {
    fn drop(&mut self) {
        if !self.is_used {
            self.settle(0);
        }
    }
}

/// The name of the limit in refusals and metrics.
impl std::fmt::Display for RefusingLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rule(name) => write!(f, "{name}"),
            Self::Client(RuleKey { rule, client: Client::Overflow }) => write!(f, "{rule} overflow"),
            Self::Client(RuleKey { rule, .. }) => write!(f, "{rule} each"),
        }
    }
}
