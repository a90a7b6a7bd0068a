//! The limiters of the rules. A request waits for its own part of a rule first, then for its share of the whole rule.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate::metrics::{AlreadyMetered, Meter};
use tollgate::{ConfigError, ConsumeError, KeyedLimiter, OwnedKeyedGrant, Quota};
use tollgate_tower::http::{RateLimits, Terms};

use super::builders::Builders;
use super::client::Client;
use super::config::Config;
use super::name::Name;
use super::parts::{Part, Parts};
use super::rule::{Rule, Toll};
use super::shared::Shared;
use super::time_left::TimeLeft;

pub(crate) struct Rules {
    /// By name. Rules that only limit each client have none.
    shared: ArcSwap<HashMap<Name, Arc<Shared>>>,
    parts: Parts,
    config: Arc<ArcSwap<Config>>,
    builders: Builders,
}

/// The limit that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refuser {
    /// That of one client within a rule.
    Part(Part),
    /// That of a rule.
    Rule(Name),
}

/// The tokens that a request has of its rules. If they are dropped before they are [used](Self::used), they are given
/// back.
#[derive(Default)]
pub(crate) struct RuleGrants {
    parts: Vec<OwnedKeyedGrant<Part>>,
    shared: Vec<OwnedKeyedGrant<Client>>,
    is_used: bool,
}

impl Rules {
    pub(crate) fn new(config: &Arc<ArcSwap<Config>>, builders: &Builders) -> Result<Self, ConfigError> {
        let mut shared = HashMap::new();
        for (name, rule) in config.load().rules.iter().filter(|(_, rule)| is_shared(rule)) {
            shared.insert(*name, Arc::new(Shared::new(*name, rule, config, builders)?));
        }
        Ok(Self {
            shared: ArcSwap::from_pointee(shared),
            parts: Parts::new(config, builders)?,
            config: Arc::clone(config),
            builders: builders.clone(),
        })
    }

    /// Waits for the tokens of all `tolls`, one after the other: the parts first, so that a client that floods a rule
    /// fills a queue of its own. `client` has the share of each rule.
    pub(crate) async fn admit(
        &self,
        client: &Client,
        tolls: &[Toll],
        left: &mut TimeLeft,
    ) -> Result<RuleGrants, (Refuser, ConsumeError)> {
        self.check_fits(tolls, left.get())?;
        let mut grants = RuleGrants::default();
        for toll in tolls.iter().filter(|toll| self.has_parts(toll.rule)) {
            let granted = self.parts.admit(toll, left).await;
            grants.parts.push(granted.map_err(|(part, why)| (Refuser::Part(part), why))?);
        }
        // Caps last: a request that waits for tokens holds no place in flight.
        let mut tolls: Vec<&Toll> = tolls.iter().collect();
        tolls.sort_by_key(|toll| self.is_capped(toll.rule));
        for toll in tolls {
            let Some(shared) = self.shared(toll.rule) else { continue };
            let allowed = left.get();
            let granted = left.spend(shared.shares.admit(client, toll.cost, allowed)).await;
            grants.shared.push(granted.map_err(|why| (Refuser::Rule(toll.rule), why))?);
        }
        Ok(grants)
    }

    /// Refuses a request that would wait for too long even in full buckets.
    fn check_fits(&self, tolls: &[Toll], allowed: Duration) -> Result<(), (Refuser, ConsumeError)> {
        let config = self.config.load();
        for Toll { rule: name, client, cost } in tolls {
            let Some(rule) = config.rules.get(name) else { continue };
            let part = Refuser::Part(Part { rule: *name, client: *client });
            for (refuser, quota) in [(part, rule.each), (Refuser::Rule(*name), rule.quota)] {
                if let Some(most) = quota.map(|quota| most_within(&quota, allowed)).filter(|most| cost > most) {
                    return Err((refuser, ConsumeError::TooLarge { cost: *cost, most }));
                }
            }
        }
        Ok(())
    }

    /// The longest wait of a request in one of the queues, as far as it is known, and the limit that causes it.
    pub(crate) fn estimate(&self, client: &Client, tolls: &[Toll]) -> Option<(Refuser, Duration)> {
        let parts = tolls.iter().filter(|toll| self.has_parts(toll.rule)).filter_map(|toll| {
            let part = Part { rule: toll.rule, client: toll.client };
            Some((Refuser::Part(part), self.parts.of(&part).estimate(&part, toll.cost)?))
        });
        let shared = tolls.iter().filter_map(|toll| {
            let wait = self.shared(toll.rule)?.shares.estimate(client, toll.cost)?;
            Some((Refuser::Rule(toll.rule), wait))
        });
        parts.chain(shared).max_by_key(|(_, wait)| *wait)
    }

    /// Refuses a request that finds too many others in the queue of a rule.
    pub(crate) fn check_full(&self, client: &Client, tolls: &[Toll]) -> Result<(), (Refuser, ConsumeError)> {
        tolls.iter().try_for_each(|toll| match self.shared(toll.rule) {
            Some(shared) => shared.shares.check_full(client, toll.cost).map_err(|why| (Refuser::Rule(toll.rule), why)),
            None => Ok(()),
        })
    }

    /// The state of the limit that refused, for the client.
    pub(crate) fn told(&self, refuser: &Refuser) -> RateLimits {
        let terms = Terms::default().name(refuser.to_string());
        match refuser {
            Refuser::Part(part) => RateLimits::of_key(self.parts.of(part), part, &terms),
            Refuser::Rule(name) => {
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
            shared.shares.change(old, new);
        }
        all.retain(|name, _| new.rules.get(name).is_some_and(is_shared));
        for (name, rule) in new.rules.iter().filter(|(_, rule)| is_shared(rule)) {
            let build = || Shared::new(*name, rule, &self.config, &self.builders).expect("the rule was checked");
            all.entry(*name).or_insert_with(|| Arc::new(build()));
        }
        self.shared.store(Arc::new(all));
    }

    /// Takes the quotas of parts from the configuration in force.
    pub(crate) fn renew(&self) {
        self.parts.renew();
    }

    pub(crate) fn shared(&self, name: Name) -> Option<Arc<Shared>> {
        self.shared.load().get(&name).cloned()
    }

    fn has_parts(&self, name: Name) -> bool {
        self.config.load().rules.get(&name).is_some_and(|rule| rule.each.is_some())
    }

    fn is_capped(&self, name: Name) -> bool {
        self.config.load().rules.get(&name).is_some_and(|rule| rule.in_flight.is_some())
    }

    pub(crate) fn meters(&self) -> Result<[Meter<KeyedLimiter<Part>>; 2], AlreadyMetered> {
        self.parts.meters()
    }

    pub(crate) fn publish(&self) {
        self.shared.load().values().for_each(|shared| shared.publish());
    }

    /// Serves the queues, where the clock is moved by hand.
    #[allow(dead_code, reason = "only tests move the clock by hand")]
    pub(crate) fn tick(&self) {
        self.parts.tick();
        self.shared.load().values().for_each(|shared| shared.limiter.tick());
    }

    /// Refuses all requests that wait, and all later ones.
    pub(crate) fn close(&self) {
        self.parts.close();
        self.shared.load().values().for_each(|shared| shared.limiter.close());
    }
}

/// The highest cost that a full bucket pays for within `allowed`.
fn most_within(quota: &Quota, allowed: Duration) -> u64 {
    let refilled = allowed.as_secs_f64() / quota.period().as_secs_f64() * quota.amount() as f64;
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
        self.parts.iter_mut().for_each(|grant| grant.settle(actual));
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
impl std::fmt::Display for Refuser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rule(name) => write!(f, "{name}"),
            Self::Part(Part { rule, client: Client::Overflow }) => write!(f, "{rule} overflow"),
            Self::Part(Part { rule, .. }) => write!(f, "{rule} each"),
        }
    }
}
