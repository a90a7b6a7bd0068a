//! Quotas that all gateways with one name share, through Redis.
//!
//! Each of them stands behind this gateway's own limit of the same quota, and a request takes its tokens from both. The own
//! limit divides what this gateway may take among its clients, and still bounds this gateway while the server is down.
//!
//! | file | contents |
//! |---|---|
//! | `distributed.rs` | what a request claims, and gives back |
//! | `distributed/quotas.rs` | the limiters over the server's stores |
//! | `distributed/version.rs` | which change of a quota the other gateways can follow |

mod quotas;
pub(crate) mod version;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tollgate::distributed::StoreError;
use tollgate::{ConfigError, ConsumeError, OwnedGrant};
use tollgate_tower::http::{RateLimits, Terms};

use super::builders::{Builders, OwnedKeyedGrant};
use super::refusing_limit::{ALL, KEY, RefusingLimit};
use super::rule_client_limits::RuleKey;
use super::time_left::TimeLeft;
use crate::config::Config;
use crate::request::client::Client;
use crate::request::name::Name;
use crate::request::rule::Charge;
use quotas::DistributedQuotas;

/// The distributed quotas of the configuration.
pub(crate) struct Distributed {
    /// `None` if no quota is distributed.
    current: ArcSwapOption<DistributedQuotas>,
    /// Whether there are any. Whether the file has the table `redis` is read at the start only.
    is_used: bool,
    config: Arc<ArcSwap<Config>>,
    builders: Builders,
}

/// Tokens of distributed quotas. If they are dropped before they are [used](Self::mark_used), they are given back, as far as the
/// store allows.
#[derive(Default)]
pub(crate) struct DistributedGrants {
    clients: Vec<OwnedKeyedGrant<RuleKey>>,
    shared: Vec<OwnedGrant>,
    is_used: bool,
}

/// Why the quotas cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Claimed = Result<DistributedGrants, (RefusingLimit, ConsumeError)>;

impl Distributed {
    pub(crate) fn new(config: &Arc<ArcSwap<Config>>, builders: &Builders) -> Result<Self, BuildError> {
        let current = DistributedQuotas::build(config, builders, None)?;
        let is_used = current.is_some();
        let current = ArcSwapOption::new(current.map(Arc::new));
        Ok(Self { current, is_used, config: Arc::clone(config), builders: builders.clone() })
    }

    /// Takes the quotas of the configuration in force, which comes after `old`. Requests that wait for a quota that has
    /// changed go on with the new one, when the store tells it.
    ///
    /// # Panics
    ///
    /// Panics if a quota was not checked.
    pub(crate) fn renew(&self, old: &Config) {
        let before = self.current.load_full();
        let built = DistributedQuotas::build(&self.config, &self.builders, before.as_deref());
        let new = built.expect("the quotas and their names were checked");
        if let Some(new) = &new {
            new.change(old, &self.config.load());
        }
        self.current.store(new.map(Arc::new));
    }

    /// Whether any quota is distributed.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Refuses a request that finds too many others in the queue of a quota that clients share, or that this quota would
    /// refuse at once, as far as this gateway knows. Takes no tokens.
    pub(crate) fn check(
        &self,
        client: &Client,
        cost: u64,
        charges: &[Charge],
        max_wait: Duration,
    ) -> Result<(), (RefusingLimit, ConsumeError)> {
        let Some(current) = self.current.load_full() else { return Ok(()) };
        let all = [(Name::new(ALL), cost)];
        let rules = charges.iter().map(|charge| (charge.rule, charge.cost));
        all.into_iter().chain(rules).try_for_each(|(name, cost)| {
            current.check(name, client, cost, max_wait).map_err(|why| (RefusingLimit::Distributed(name), why))
        })
    }

    /// The longest wait of a request for one of the quotas of its client that all gateways share, as far as this gateway
    /// knows, and the limit that causes it.
    pub(crate) fn estimate(&self, client: &Client, cost: u64, charges: &[Charge]) -> Option<(RefusingLimit, Duration)> {
        let current = self.current.load_full()?;
        let own = Charge { rule: Name::new(KEY), client: *client, cost };
        let own = self.config.load().keys.is_distributed.then_some(&own).into_iter();
        let of_clients = own.chain(charges.iter().filter(|charge| self.has_client_quota(charge.rule)));
        let waits = of_clients.filter_map(|charge| {
            let key = RuleKey { rule: charge.rule, client: charge.client };
            Some((RefusingLimit::DistributedClient(key), current.estimate_client(&key, charge.cost)?))
        });
        waits.max_by_key(|(_, wait)| *wait)
    }

    /// Waits for the tokens of the quota of each client, if all gateways share it.
    pub(crate) async fn admit_key(&self, client: &Client, cost: u64, left: &mut TimeLeft) -> Claimed {
        let mut grants = DistributedGrants::default();
        let current = self.current.load_full().filter(|_| self.config.load().keys.is_distributed);
        if let Some(current) = current {
            let key = RuleKey { rule: Name::new(KEY), client: *client };
            grants.clients.extend(current.admit_client(key, cost, left).await?);
        }
        Ok(grants)
    }

    /// Waits for the tokens of the quota of all requests, if all gateways share it.
    pub(crate) async fn admit_all(&self, client: &Client, cost: u64, left: &mut TimeLeft) -> Claimed {
        let mut grants = DistributedGrants::default();
        if let Some(current) = self.current.load_full() {
            grants.shared.extend(current.admit(Name::new(ALL), client, cost, left).await?);
        }
        Ok(grants)
    }

    /// Waits for the tokens of those of `charges` whose quotas all gateways share: the quotas of the client first.
    pub(crate) async fn admit_rules(&self, client: &Client, charges: &[Charge], left: &mut TimeLeft) -> Claimed {
        let mut grants = DistributedGrants::default();
        let Some(current) = self.current.load_full() else { return Ok(grants) };
        for charge in charges.iter().filter(|charge| self.has_client_quota(charge.rule)) {
            let key = RuleKey { rule: charge.rule, client: charge.client };
            grants.clients.extend(current.admit_client(key, charge.cost, left).await?);
        }
        for charge in charges {
            grants.shared.extend(current.admit(charge.rule, client, charge.cost, left).await?);
        }
        Ok(grants)
    }

    fn has_client_quota(&self, rule: Name) -> bool {
        self.config.load().rules.get(&rule).is_some_and(|rule| rule.is_distributed && rule.each.is_some())
    }

    /// The state of a quota, as this gateway knows it.
    pub(crate) fn rate_limits(&self, refused_by: &RefusingLimit) -> RateLimits {
        let terms = Terms::default().name(refused_by.to_string());
        match (&*self.current.load(), refused_by) {
            (Some(current), RefusingLimit::Distributed(name)) => current.rate_limits(*name, &terms),
            (Some(current), RefusingLimit::DistributedClient(key)) => current.client_rate_limits(key, &terms),
            _ => RateLimits::default(),
        }
    }

    pub(crate) fn publish(&self) {
        self.with_current(DistributedQuotas::publish);
    }

    /// Refuses all requests that wait, and all later ones.
    pub(crate) fn close(&self) {
        self.with_current(DistributedQuotas::close);
    }

    fn with_current(&self, act: impl FnOnce(&DistributedQuotas)) {
        self.current.load().as_deref().map(act);
    }
}

impl DistributedGrants {
    /// Says that the request is forwarded: its tokens are used.
    pub(crate) fn mark_used(&mut self) {
        self.is_used = true;
    }

    /// Sets the real cost in each of the quotas.
    pub(crate) fn settle(&mut self, actual: u64) {
        self.clients.iter_mut().for_each(|grant| grant.settle(actual));
        self.shared.iter_mut().for_each(|grant| grant.settle(actual));
    }
}

impl Drop for DistributedGrants {
    fn drop(&mut self) {
        if !self.is_used {
            self.settle(0);
        }
    }
}
