//! The checked configuration.

pub(crate) mod certificate;
pub(crate) mod file;
pub(crate) mod log_destination;
pub(crate) mod options;
pub(crate) mod problem;
pub(crate) mod redis;
pub(crate) mod timeouts;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tollgate::Quota;

use crate::llm::Llm;
use crate::request::keys::Keys;
use crate::request::networks::Networks;
use crate::request::route::Routes;
use crate::request::rule::RuleSet;
use crate::upstream::backends::Backends;
use crate::upstream::connector::UpstreamProtocol;
use log_destination::Destination;
use problem::{Located, Problem};
use redis::{Redis, RedisFixed};
use timeouts::Timeouts;

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) fixed: Fixed,
    /// The TLS of the clients' connections; `None`: they are not encrypted.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// The upstreams, with their state, which a change of the configuration keeps.
    pub(crate) upstreams: Backends,
    /// The authorities that may vouch for upstreams.
    pub(crate) roots: Arc<RootCertStore>,
    /// How long a request may wait in the queues.
    pub(crate) max_wait: Duration,
    pub(crate) timeouts: Timeouts,
    /// How long a shutdown waits for the requests that wait and those in flight.
    pub(crate) grace: Duration,
    pub(crate) quota: Quota,
    /// Whether all gateways share `quota`.
    pub(crate) is_distributed: bool,
    pub(crate) in_flight: Option<u64>,
    pub(crate) keys: Keys,
    /// The names under which the admin address may be reached, besides numeric addresses and `localhost`.
    pub(crate) admin_hosts: Vec<String>,
    pub(crate) routes: Routes,
    pub(crate) networks: Networks,
    pub(crate) llm: Option<Arc<Llm>>,
    /// The limits of routes and blocks of addresses.
    pub(crate) rules: RuleSet,
    /// The server of the quotas that all gateways share, if there are any.
    pub(crate) redis: Option<Redis>,
}

/// The settings that are read at the start only.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    pub(crate) listen: Located<SocketAddr>,
    pub(crate) admin: Located<SocketAddr>,
    /// Whether clients speak TLS. A file that loses the table must not make the port one of plain text.
    pub(crate) is_encrypted: Located<bool>,
    /// Whether upstreams speak HTTP/2 without being asked.
    pub(crate) upstream_http2: Located<bool>,
    /// The file of the authorities that may vouch for upstreams; `None`: those of the Web.
    pub(crate) upstream_ca: Located<Option<PathBuf>>,
    /// `None`: as many as the open files allow, up to a default.
    pub(crate) max_connections: Located<Option<usize>>,
    pub(crate) max_connections_per_address: Located<usize>,
    pub(crate) max_waiting: Located<usize>,
    pub(crate) max_keys: Located<u64>,
    /// How many tokens each key may have in flight.
    pub(crate) key_in_flight: Located<Option<u64>>,
    pub(crate) redis: Located<Option<RedisFixed>>,
    /// Whether every response reports the remaining tokens, or only refusals.
    pub(crate) reports_always: Located<bool>,
    /// The file that keeps the levels of all buckets over a restart; `None` if they begin full.
    pub(crate) state: Located<Option<PathBuf>>,
    /// How often that file is written.
    pub(crate) state_every: Located<Duration>,
    /// `None`: no access log.
    pub(crate) access_log: Located<Option<Destination>>,
    /// Whether its paths have their queries.
    pub(crate) access_log_query: Located<bool>,
}

impl Config {
    /// The scheme of the URLs that clients use.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Whether the limits of models follow what the upstreams say.
    pub(crate) fn follows_upstreams(&self) -> bool {
        self.llm.as_ref().is_some_and(|llm| llm.follows)
    }

    /// What the upstreams speak.
    pub(crate) fn upstream_protocol(&self) -> UpstreamProtocol {
        if self.fixed.upstream_http2.value { UpstreamProtocol::Http2 } else { UpstreamProtocol::Http1 }
    }

    /// Checks that every difference from `old` can be applied without a restart.
    pub(crate) fn check_fixed(&self, path: &Path, old: &Fixed) -> Result<(), Problem> {
        let new = &self.fixed;
        let changed = [
            ("listen", new.listen.line, new.listen.value != old.listen.value),
            ("admin", new.admin.line, new.admin.value != old.admin.value),
            ("[tls]", new.is_encrypted.line, new.is_encrypted.value != old.is_encrypted.value),
            ("upstream_http2", new.upstream_http2.line, new.upstream_http2.value != old.upstream_http2.value),
            ("upstream_ca", new.upstream_ca.line, new.upstream_ca.value != old.upstream_ca.value),
            ("max_connections", new.max_connections.line, new.max_connections.value != old.max_connections.value),
            (
                "max_connections_per_address",
                new.max_connections_per_address.line,
                new.max_connections_per_address.value != old.max_connections_per_address.value,
            ),
            ("max_waiting", new.max_waiting.line, new.max_waiting.value != old.max_waiting.value),
            ("keys.max_keys", new.max_keys.line, new.max_keys.value != old.max_keys.value),
            ("keys.in_flight", new.key_in_flight.line, new.key_in_flight.value != old.key_in_flight.value),
            ("state", new.state.line, new.state.value != old.state.value),
            ("state_every", new.state_every.line, new.state_every.value != old.state_every.value),
            ("access_log", new.access_log.line, new.access_log.value != old.access_log.value),
            ("access_log_query", new.access_log_query.line, new.access_log_query.value != old.access_log_query.value),
            ("[redis]", new.redis.line, new.redis.value != old.redis.value),
            ("rate_limit_fields", new.reports_always.line, new.reports_always.value != old.reports_always.value),
        ];
        let Some((name, line, _)) = changed.into_iter().find(|(.., changed)| *changed) else { return Ok(()) };
        Err(Problem::fixed(path, name, line))
    }
}
