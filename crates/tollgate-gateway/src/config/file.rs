//! The TOML file as it is written, and the rules that it must follow. Parsing has no effects: a file that is refused
//! changes nothing.

mod access_log;
mod checks;
mod health;
mod keys;
mod llm;
mod networks;
mod redis;
mod rewording;
mod routes;
mod rules;
mod tls;
mod values;

use std::path::{Path, PathBuf};

use tollgate::Quota;
use toml::Spanned;

use super::problem::{Located, Problem, Source};
use super::redis::Redis;
use super::timeouts::Timeouts;
use super::{Config, Fixed};
use crate::request::keys::Unlisted;
use crate::request::networks::Networks;
use crate::request::route::Routes;
use crate::request::rule::RuleSet;
use crate::upstream::backends::Backends;
use access_log::check_access_log;
use checks::{
    at_optional, check_buffer, check_cap, check_connections, check_host, check_shared_quota, check_timeout,
    check_upstreams,
};
use health::HealthTable;
use keys::KeysTable;
use llm::{LlmTable, check_llm};
use networks::NetworkTable;
use redis::{DistributedLimits, RedisTable, check_distributed};
use rewording::reword;
use routes::{Bounds, RouteTable};
use tls::{TlsTable, check_roots};
pub(crate) use values::Address;
use values::{Time, Upstreams, seconds, unlocated};

impl Config {
    /// Reads the text of the file.
    pub(crate) fn read(path: &Path) -> Result<String, Problem> {
        std::fs::read_to_string(path).map_err(|error| Problem::unreadable(path, &error))
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, Problem> {
        let source = Source { path, text };
        let file: File = toml::from_str(text).map_err(|error| source.problem(error.span(), reword(error.message())))?;
        file.check(&source)
    }

    /// The other files that `text` names: a change of them is a change of the configuration.
    pub(crate) fn named_files(text: &str) -> Vec<PathBuf> {
        let file: Option<File> = toml::from_str(text).ok();
        file.iter().flat_map(File::named).cloned().collect()
    }
}

/// The file as it is written.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Spanned<Address>,
    admin: Spanned<Address>,
    upstream: Spanned<Upstreams>,
    health: Option<HealthTable>,
    #[serde(default = "default_http2")]
    upstream_http2: Spanned<bool>,
    upstream_ca: Option<Spanned<PathBuf>>,
    #[serde(default)]
    admin_hosts: Vec<Spanned<String>>,
    max_connections: Option<Spanned<usize>>,
    #[serde(default = "default_connections_per_address")]
    max_connections_per_address: Spanned<usize>,
    #[serde(default = "default_waiting")]
    max_waiting: Spanned<usize>,
    max_wait: Spanned<Time>,
    #[serde(default = "seconds::<30>")]
    upstream_timeout: Spanned<Time>,
    #[serde(default = "seconds::<60>")]
    upstream_idle_timeout: Spanned<Time>,
    #[serde(default = "seconds::<30>")]
    client_timeout: Spanned<Time>,
    #[serde(default = "seconds::<10>")]
    header_timeout: Spanned<Time>,
    #[serde(default = "seconds::<75>")]
    idle_timeout: Spanned<Time>,
    #[serde(default = "seconds::<300>")]
    websocket_idle_timeout: Spanned<Time>,
    #[serde(default = "default_buffer")]
    body_buffer: Spanned<u64>,
    #[serde(default = "seconds::<20>")]
    grace: Spanned<Time>,
    state: Option<Spanned<PathBuf>>,
    #[serde(default = "seconds::<60>")]
    state_every: Spanned<Time>,
    access_log: Option<Spanned<String>>,
    #[serde(default = "default_query")]
    access_log_query: Spanned<bool>,
    quota: Spanned<Quota>,
    distributed: Option<Spanned<bool>>,
    in_flight: Option<Spanned<u64>>,
    #[serde(default = "default_fields")]
    rate_limit_fields: Spanned<Fields>,
    tls: Option<Spanned<TlsTable>>,
    keys: Spanned<KeysTable>,
    #[serde(default)]
    routes: Vec<RouteTable>,
    #[serde(default)]
    networks: Vec<NetworkTable>,
    llm: Option<Spanned<LlmTable>>,
    redis: Option<Spanned<RedisTable>>,
}

/// Which responses have `RateLimit` fields.
#[derive(Clone, PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fields {
    Refusals,
    Always,
}

fn default_connections_per_address() -> Spanned<usize> {
    unlocated(1_000)
}

fn default_http2() -> Spanned<bool> {
    unlocated(false)
}

fn default_waiting() -> Spanned<usize> {
    unlocated(1_000)
}

fn default_fields() -> Spanned<Fields> {
    unlocated(Fields::Refusals)
}

fn default_query() -> Spanned<bool> {
    unlocated(false)
}

fn default_buffer() -> Spanned<u64> {
    unlocated(64 << 10)
}

impl File {
    fn check(self, source: &Source<'_>) -> Result<Config, Problem> {
        self.check_quota(source)?;
        let timeouts = self.timeouts(source)?;
        let body_buffer = check_buffer(source, &self.body_buffer)?;
        let redis = self.redis(source)?;
        let fixed = self.fixed(source, redis.as_ref())?;
        let key_in_flight = self.keys.as_ref().in_flight.clone();
        let keys_span = self.keys.span();
        let keys = self.keys.into_inner().check(source, keys_span)?;
        let bounds = Bounds {
            quota: *self.quota.as_ref(),
            keys: &keys,
            caps: [("in_flight", self.in_flight.as_ref()), ("keys.in_flight", key_in_flight.as_ref())],
            max_wait: self.max_wait.as_ref().0,
        };
        let mut rules = RuleSet::new();
        let routes = self.routes.iter().map(|route| bounds.check_route(source, route, &mut rules));
        let routes = routes.collect::<Result<Vec<_>, _>>()?;
        let (mut networks, max_wait) = (Networks::default(), self.max_wait.as_ref().0);
        let most = routes.iter().map(|route| route.cost).fold(1, u64::max);
        for network in &self.networks {
            network.check(source, most, max_wait, &mut networks, &mut rules)?;
        }
        let llm_route = self.routes.iter().find_map(RouteTable::llm);
        let llm = check_llm(source, self.llm, llm_route, max_wait, &mut rules)?;
        // Every other route costs 1.
        bounds.check_cost(1).map_err(|why| source.problem(Some(self.max_wait.span()), why))?;
        let admin_hosts = self.admin_hosts.into_iter().map(|host| check_host(source, host));
        let roots = check_roots(source, self.upstream_ca.as_ref())?;
        let tls = self.tls.map(|tls| tls.as_ref().check(source)).transpose()?;
        let health = self.health.map(|health| health.check(source)).transpose()?;
        let upstreams = Backends::new(check_upstreams(source, self.upstream)?, health);
        Ok(Config {
            fixed,
            tls,
            upstreams,
            roots,
            admin_hosts: admin_hosts.collect::<Result<_, _>>()?,
            max_wait: self.max_wait.as_ref().0,
            timeouts,
            grace: self.grace.as_ref().0,
            is_distributed: check_distributed(source, self.distributed.as_ref(), false, [&self.quota])?,
            quota: self.quota.into_inner(),
            in_flight: self.in_flight.map(Spanned::into_inner),
            keys,
            routes: Routes::new(routes, body_buffer),
            networks,
            llm,
            rules,
            redis,
        })
    }

    fn named(&self) -> impl Iterator<Item = &PathBuf> {
        self.tls.iter().map(Spanned::as_ref).flat_map(TlsTable::files)
    }

    /// The server of the quotas that all gateways share, if there are any.
    fn redis(&self, source: &Source<'_>) -> Result<Option<Redis>, Problem> {
        let (mut limits, keys) = (DistributedLimits::default(), self.keys.as_ref());
        limits.note(self.distributed.as_ref(), false);
        limits.note(keys.distributed.as_ref(), true);
        self.routes.iter().for_each(|route| limits.note(route.distributed.as_ref(), route.key_quota.is_some()));
        self.networks.iter().for_each(|network| limits.note(network.distributed.as_ref(), false));
        self.llm.iter().for_each(|llm| llm.as_ref().note_distributed(&mut limits));
        limits.check_redis(source, self.redis.as_ref(), keys.unlisted == Unlisted::ByKey)
    }

    fn check_quota(&self, source: &Source<'_>) -> Result<(), Problem> {
        check_shared_quota(source, &self.quota)?;
        check_cap(source, self.in_flight.as_ref())
    }

    fn timeouts(&self, source: &Source<'_>) -> Result<Timeouts, Problem> {
        Ok(Timeouts {
            upstream: check_timeout(source, "upstream_timeout", &self.upstream_timeout)?,
            upstream_idle: check_timeout(source, "upstream_idle_timeout", &self.upstream_idle_timeout)?,
            client: check_timeout(source, "client_timeout", &self.client_timeout)?,
            header: check_timeout(source, "header_timeout", &self.header_timeout)?,
            idle: check_timeout(source, "idle_timeout", &self.idle_timeout)?,
            websocket_idle: check_timeout(source, "websocket_idle_timeout", &self.websocket_idle_timeout)?,
        })
    }

    fn fixed(&self, source: &Source<'_>, redis: Option<&Redis>) -> Result<Fixed, Problem> {
        let connections = self.max_connections.iter().chain([&self.max_connections_per_address]);
        connections.into_iter().try_for_each(|connections| check_connections(source, connections))?;
        let address = |address: &Spanned<Address>| source.at(address.clone()).map(|Address(address)| address);
        Ok(Fixed {
            listen: address(&self.listen),
            admin: address(&self.admin),
            is_encrypted: at_optional(source, self.tls.clone()).map(|tls| tls.is_some()),
            upstream_http2: source.at(self.upstream_http2.clone()),
            upstream_ca: at_optional(source, self.upstream_ca.clone()),
            max_connections: at_optional(source, self.max_connections.clone()),
            max_connections_per_address: source.at(self.max_connections_per_address.clone()),
            max_waiting: source.at(self.max_waiting.clone()),
            max_keys: source.at(self.keys.as_ref().max_keys.clone()),
            key_in_flight: at_optional(source, self.keys.as_ref().in_flight.clone()),
            redis: at_optional(source, self.redis.clone()).map(|_| redis.map(|redis| redis.fixed.clone())),
            reports_always: source.at(self.rate_limit_fields.clone()).map(|fields| fields == Fields::Always),
            state: at_optional(source, self.state.clone()),
            state_every: Located {
                value: check_timeout(source, "state_every", &self.state_every)?,
                ..source.at(self.state_every.clone()).map(|Time(every)| every)
            },
            access_log: check_access_log(source, self.access_log.as_ref(), &self.access_log_query)?,
            access_log_query: source.at(self.access_log_query.clone()),
        })
    }
}
