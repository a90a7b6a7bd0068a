//! The limiters of distributed quotas.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use tollgate::metrics::Meter;
use tollgate::{ConfigError, ConsumeError, Limiter, OwnedGrant, Quota};
use tollgate_tower::http::{RateLimits, Terms};

use super::BuildError;
use crate::config::Config;
use crate::config::redis::{OutagePolicy, RedisFixed, Server, connect, store};
use crate::limits::builders::{Builders, KeyedLimiter, OwnedKeyedGrant};
use crate::limits::fair_queue::FairQueue;
use crate::limits::refusing_limit::{ALL, KEY, RefusingLimit};
use crate::limits::rule_client_limits::RuleKey;
use crate::limits::time_left::TimeLeft;
use crate::request::client::Client;
use crate::request::client_hash::ClientHash;
use crate::request::name::Name;
use crate::request::rule::unlimited;

/// How many requests of this gateway wait for the tokens of a store at a time. The store serves them in order of arrival;
/// the others wait in front of it, where the clients share the turns by weight. There are several, so that the time in
/// which the server answers does not bound the rate.
const TURNS: u64 = 16;

/// The distributed quotas of one version.
pub(super) struct DistributedQuotas {
    server: Arc<Server>,
    version: u32,
    outage: OutagePolicy,
    /// The quotas that clients share, by name.
    shared: HashMap<Name, Arc<DistributedLimit>>,
    /// The quotas of each client, of its key and within rules.
    clients: Arc<DistributedClients>,
}

/// A quota that clients share.
struct DistributedLimit {
    quota: Quota,
    limiter: Limiter,
    meter: Meter,
    turns: FairQueue,
}

struct DistributedClients {
    limiter: KeyedLimiter<RuleKey>,
    meter: Meter<KeyedLimiter<RuleKey>>,
}

impl DistributedQuotas {
    /// Builds the quotas of the configuration in force; `None` if none is distributed. Those of `old` that are the same
    /// continue.
    pub(super) fn build(
        config: &Arc<ArcSwap<Config>>,
        builders: &Builders,
        old: Option<&Self>,
    ) -> Result<Option<Self>, BuildError> {
        let current = config.load_full();
        let Some(redis) = &current.redis else { return Ok(None) };
        let (redis, version) = (&redis.fixed, redis.quota_version.value);
        let server = match old {
            Some(old) => Arc::clone(&old.server),
            None => Arc::new(connect(redis)?),
        };
        let kept = old.filter(|old| old.version == version);
        let mut shared = HashMap::new();
        for (name, quota) in shared_quotas(&current) {
            let same = kept.and_then(|kept| kept.shared.get(&name)).filter(|limit| limit.quota == quota);
            let limit = match same {
                Some(limit) => Arc::clone(limit),
                None => {
                    let store = store(&server, redis, &format!("limit:{name}"), version)?;
                    let limiter = Limiter::builder().quota(quota).distributed(store).build()?;
                    Arc::new(DistributedLimit::new(name, quota, limiter, config, builders)?)
                }
            };
            shared.insert(name, limit);
        }
        let clients = match kept {
            Some(kept) => Arc::clone(&kept.clients),
            None => Arc::new(DistributedClients::new(&server, redis, version, config)?),
        };
        Ok(Some(Self { server, version, outage: redis.outage, shared, clients }))
    }

    /// Waits for tokens of a quota that clients share. `None` if it is not distributed, or if the server is down and this
    /// gateway goes on with its own limits.
    pub(super) async fn admit(
        &self,
        name: Name,
        client: &Client,
        cost: u64,
        left: &mut TimeLeft,
    ) -> Result<Option<OwnedGrant>, (RefusingLimit, ConsumeError)> {
        let Some(limit) = self.shared.get(&name).filter(|_| cost > 0) else { return Ok(None) };
        let refused = |why| (RefusingLimit::Distributed(name), why);
        let max_wait = left.get();
        let _turn = left.spend(pin!(limit.turns.admit(client, 1, max_wait))).await.map_err(refused)?;
        let claim = limit.limiter.clone().consume_owned(cost).within(left.get());
        self.or_local(left.spend(pin!(claim)).await).map_err(refused)
    }

    /// Refuses a request that would be refused at once by a quota that clients share, as far as this gateway knows, or that
    /// finds too many others there. Takes no tokens.
    pub(super) fn check(&self, name: Name, client: &Client, cost: u64, max_wait: Duration) -> Result<(), ConsumeError> {
        let Some(limit) = self.shared.get(&name).filter(|_| cost > 0) else { return Ok(()) };
        limit.turns.check_full(client, 1)?;
        if limit.turns.waiting() > 0 {
            return Ok(());
        }
        // A claim knows from earlier answers of the server when it cannot be granted yet.
        let claim = limit.limiter.clone().consume_owned(cost).within(max_wait);
        let Some(granted) = claim.now_or_never() else { return Ok(()) };
        if let Some(mut grant) = self.or_local(granted)? {
            grant.settle(0);
        }
        Ok(())
    }

    /// How long a request would wait for tokens of a client's quota, as far as this gateway knows.
    pub(super) fn estimate_client(&self, key: &RuleKey, cost: u64) -> Option<Duration> {
        self.clients.limiter.estimate(key, cost)
    }

    /// Waits for tokens of a client's quota, as [`admit`](Self::admit) does.
    pub(super) async fn admit_client(
        &self,
        key: RuleKey,
        cost: u64,
        left: &mut TimeLeft,
    ) -> Result<Option<OwnedKeyedGrant<RuleKey>>, (RefusingLimit, ConsumeError)> {
        if cost == 0 {
            return Ok(None);
        }
        let claim = self.clients.limiter.clone().consume_owned(key, cost).within(left.get());
        self.or_local(left.spend(pin!(claim)).await).map_err(|why| (RefusingLimit::DistributedClient(key), why))
    }

    fn or_local<T>(&self, granted: Result<T, ConsumeError>) -> Result<Option<T>, ConsumeError> {
        match granted {
            Err(ConsumeError::Unreachable) if self.outage == OutagePolicy::Local => Ok(None),
            granted => granted.map(Some),
        }
    }

    pub(super) fn rate_limits(&self, name: Name, terms: &Terms) -> RateLimits {
        let limit = self.shared.get(&name);
        limit.map(|limit| RateLimits::of(&limit.limiter.snapshot(), terms)).unwrap_or_default()
    }

    pub(super) fn client_rate_limits(&self, key: &RuleKey, terms: &Terms) -> RateLimits {
        RateLimits::of_key(&self.clients.limiter, key, terms)
    }

    /// Changes the shares of the clients.
    pub(super) fn change(&self, old: &Config, new: &Config) {
        self.shared.values().for_each(|limit| limit.turns.change(old, new));
    }

    pub(super) fn publish(&self) {
        self.clients.meter.publish();
        self.shared.values().for_each(|limit| limit.meter.publish());
    }

    pub(super) fn close(&self) {
        self.clients.limiter.close();
        self.shared.values().for_each(|limit| limit.limiter.close());
    }
}

impl DistributedLimit {
    fn new(
        name: Name,
        quota: Quota,
        limiter: Limiter,
        config: &Arc<ArcSwap<Config>>,
        builders: &Builders,
    ) -> Result<Self, ConfigError> {
        let places = builders.limiter().quota(unlimited()).max_in_flight(TURNS).classes().build()?;
        let turns = FairQueue::of_rule(&places, config, [(); 2].map(|()| builders.keyed()))?;
        let meter = Meter::new(format!("{name} distributed"), &limiter).expect("a new limiter has no meter");
        Ok(Self { quota, limiter, meter, turns })
    }
}

impl DistributedClients {
    fn new(
        server: &Server,
        redis: &RedisFixed,
        version: u32,
        config: &Arc<ArcSwap<Config>>,
    ) -> Result<Self, BuildError> {
        let stores = store(server, redis, "clients", version)?;
        let (quotas, current) = (Arc::clone(config), config.load());
        let limiter = tollgate::KeyedLimiter::builder()
            .hasher(ClientHash::default())
            .quota_by(move |key: &RuleKey| client_quota(&quotas.load(), key))
            .max_keys(current.fixed.max_keys.value)
            .max_waiting(current.fixed.max_waiting.value)
            .distributed_by(stores, store_name)
            .build()?;
        let meter = Meter::new("clients distributed", &limiter).expect("a new limiter has no meter");
        Ok(Self { limiter, meter })
    }
}

/// The name of the store of a client's quota. The length keeps any two apart, whatever the names contain.
fn store_name(key: &RuleKey) -> String {
    let rule = key.rule.as_str();
    let client = match key.client {
        Client::Listed(name) => format!("listed:{name}"),
        Client::Key { digest: [first, second], .. } => format!("key:{first:016x}{second:016x}"),
        Client::Address(address) => format!("address:{address}"),
        Client::Overflow => "overflow".to_owned(),
    };
    format!("{}:{rule}:{client}", rule.len())
}

fn client_quota(config: &Config, key: &RuleKey) -> Quota {
    if key.rule.as_str() == KEY {
        return config.keys.quota_of(&key.client);
    }
    config.rules.get(&key.rule).and_then(|rule| rule.each).unwrap_or_else(unlimited)
}

/// The distributed quotas that clients share.
pub(super) fn shared_quotas(config: &Config) -> BTreeMap<Name, Quota> {
    let rules = config.rules.iter().filter(|(_, rule)| rule.is_distributed);
    let rules = rules.filter_map(|(name, rule)| Some((*name, rule.quota?)));
    let all = config.is_distributed.then(|| (Name::new(ALL), config.quota));
    all.into_iter().chain(rules).collect()
}

#[test]
fn no_two_clients_have_one_store() {
    let rules = ["key", "route /a", "route /a:listed:b"].map(Name::new);
    let clients = [
        Client::Listed(Name::new("b")),
        Client::Listed(Name::new("overflow")),
        Client::Key { digest: [1, 2], shown: *b"abcd" },
        Client::Address([127, 0, 0, 1].into()),
        Client::Overflow,
    ];
    let keys = rules.iter().flat_map(|rule| clients.iter().map(|client| RuleKey { rule: *rule, client: *client }));
    let names: std::collections::HashSet<String> = keys.map(|key| store_name(&key)).collect();
    assert_eq!(names.len(), rules.len() * clients.len());
}
