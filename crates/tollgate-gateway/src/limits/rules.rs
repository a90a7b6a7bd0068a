//! The limiters of the rules. A request waits in its own bucket of a rule first, then for its share of the whole rule.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tollgate::metrics::{AlreadyMetered, Meter};
use tollgate::state::LimiterState;
use tollgate::{ConfigError, ConsumeError, Quota};
use tollgate_tower::http::{RateLimits, Terms};

use super::builders::{Builders, KeyedLimiter};
use super::distributed::Distributed;
use super::dry_runs::DryRuns;
use super::refusing_limit::RefusingLimit;
use super::rule_client_limits::{RuleClientLimits, RuleKey};
use super::rule_grants::RuleGrants;
use super::saved_level::SavedLevel;
use super::shared_limit::SharedLimit;
use super::state::RuleStates;
use super::time_left::TimeLeft;
use crate::config::Config;
use crate::request::client::Client;
use crate::request::name::Name;
use crate::request::rule::{Charge, Rule};

pub(crate) struct Rules {
    /// By name. Rules that only limit each client have none.
    shared: ArcSwap<HashMap<Name, Arc<SharedLimit>>>,
    clients: RuleClientLimits,
    distributed: Arc<Distributed>,
    dry_runs: DryRuns,
    config: Arc<ArcSwap<Config>>,
    builders: Builders,
}

impl Rules {
    /// Builds the limits, which continue from `states`.
    pub(crate) fn new(
        config: &Arc<ArcSwap<Config>>,
        builders: &Builders,
        distributed: &Arc<Distributed>,
        RuleStates { mut levels, clients }: RuleStates,
    ) -> Result<Self, ConfigError> {
        let mut shared = HashMap::new();
        for (name, rule) in config.load().rules.iter().filter(|(_, rule)| is_shared(rule)) {
            let limit = SharedLimit::new(*name, rule, levels.remove(name), config, builders)?;
            shared.insert(*name, Arc::new(limit));
        }
        Ok(Self {
            shared: ArcSwap::from_pointee(shared),
            clients: RuleClientLimits::new(config, clients, builders)?,
            dry_runs: DryRuns::new(config, builders)?,
            distributed: Arc::clone(distributed),
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
        grants.distributed = self.distributed.admit_rules(client, charges, left).await?;
        // Caps last: a request that waits for tokens holds no place in flight.
        let own = charges;
        let mut charges: Vec<&Charge> = charges.iter().collect();
        charges.sort_by_key(|charge| self.is_capped(charge.rule));
        for charge in charges {
            let Some(shared) = self.shared(charge.rule) else { continue };
            let max_wait = left.get();
            let granted = left.spend(pin!(shared.fair_queue.admit(client, charge.cost, max_wait))).await;
            grants.shared.push(granted.map_err(|why| (RefusingLimit::Rule(charge.rule), why))?);
        }
        grants.dry_runs = self.dry_runs.note(own, left.get());
        Ok(grants)
    }

    /// Refuses a request that would wait for too long even in full buckets.
    fn check_fits(&self, charges: &[Charge], max_wait: Duration) -> Result<(), (RefusingLimit, ConsumeError)> {
        let config = self.config.load();
        for Charge { rule: name, client, cost } in charges {
            let Some(rule) = config.rules.get(name).filter(|rule| !rule.dry_run) else { continue };
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
            RefusingLimit::DistributedClient(_) | RefusingLimit::Distributed(_) => {
                self.distributed.rate_limits(refused_by)
            }
        }
    }

    /// Makes space for what `new` adds, and changes what it changes. Called before `new` is in force.
    ///
    /// # Panics
    ///
    /// Panics if a rule of `new` was not checked.
    pub(crate) fn change(&self, old: &Config, new: &Config) {
        let mut all = HashMap::clone(&self.shared.load());
        // A rule that goes into dry run, or leaves it, keeps the level of its quota.
        let is_dry = |name: &Name| new.rules.get(name).is_some_and(|rule| rule.dry_run);
        let dried = all.iter().filter(|(name, _)| is_dry(name));
        let dried = dried.filter_map(|(name, shared)| Some((*name, SavedLevel::of(&shared.limiter)?)));
        let mut levels = self.dry_runs.change(new, dried.collect());
        for (name, shared) in &all {
            // Requests that still wait for a rule that is gone, or now in dry run, wait no longer.
            let of = |config: &Config| config.rules.get(name).copied().filter(is_shared).unwrap_or_default();
            shared.change(&of(old), &of(new));
            if !new.rules.get(name).is_some_and(is_shared) {
                shared.limiter.resume();
            }
            shared.fair_queue.change(old, new);
        }
        all.retain(|name, _| new.rules.get(name).is_some_and(is_shared));
        for (name, rule) in new.rules.iter().filter(|(_, rule)| is_shared(rule)) {
            if !all.contains_key(name) {
                let limit = SharedLimit::new(*name, rule, levels.remove(name), &self.config, &self.builders);
                all.insert(*name, Arc::new(limit.expect("the rule was checked")));
            }
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

    fn rule(&self, name: Name) -> Option<Rule> {
        self.config.load().rules.get(&name).copied()
    }

    fn has_client_quota(&self, name: Name) -> bool {
        self.rule(name).is_some_and(|rule| rule.each.is_some() && !rule.dry_run)
    }

    fn is_capped(&self, name: Name) -> bool {
        self.rule(name).is_some_and(|rule| rule.in_flight.is_some())
    }

    pub(crate) fn meters(&self) -> Result<[Meter<KeyedLimiter<RuleKey>>; 2], AlreadyMetered> {
        self.clients.meters()
    }

    pub(crate) fn publish(&self) {
        self.shared.load().values().for_each(|shared| shared.publish());
        self.dry_runs.publish();
    }

    /// The limits that clients share, by name.
    pub(crate) fn all_shared(&self) -> Guard<Arc<HashMap<Name, Arc<SharedLimit>>>> {
        self.shared.load()
    }

    /// The levels of all quotas, except of those in dry run.
    pub(crate) fn levels(&self) -> Vec<(Name, LimiterState)> {
        let shared = self.all_shared();
        let levels = shared.iter().filter_map(|(name, shared)| Some((*name, shared.limiter.state().ok()?)));
        levels.collect()
    }

    pub(crate) fn client_limiters(&self) -> [&KeyedLimiter<RuleKey>; 2] {
        self.clients.limiters()
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
    !rule.dry_run && (rule.quota.is_some() || rule.in_flight.is_some())
}
