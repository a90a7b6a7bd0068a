//! The checked configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tollgate::Quota;

use super::keys::Keys;
use super::problem::{At, Problem};
use super::route::Routes;
use super::target::Target;
use super::timeouts::Timeouts;

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) fixed: Fixed,
    /// The TLS of the clients' connections; `None`: they are not encrypted.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) upstream: Target,
    /// The authorities that may vouch for upstreams.
    pub(crate) roots: Arc<RootCertStore>,
    /// How long a request may wait in the queues.
    pub(crate) max_wait: Duration,
    pub(crate) timeouts: Timeouts,
    /// How long a shutdown waits for the requests that wait and those in flight.
    pub(crate) grace: Duration,
    pub(crate) global: Quota,
    pub(crate) in_flight: Option<u64>,
    pub(crate) keys: Keys,
    /// The names under which the admin address may be reached, besides numeric addresses and `localhost`.
    pub(crate) admin_hosts: Vec<String>,
    pub(crate) routes: Routes,
}

/// The settings that are read at the start only.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    pub(crate) listen: At<SocketAddr>,
    pub(crate) admin: At<SocketAddr>,
    /// Whether upstreams speak HTTP/2 without being asked.
    pub(crate) upstream_http2: At<bool>,
    /// The file of the authorities that may vouch for upstreams; `None`: those of the Web.
    pub(crate) upstream_ca: At<Option<PathBuf>>,
    /// `None`: as many as the open files allow, up to a default.
    pub(crate) max_connections: At<Option<usize>>,
    pub(crate) max_connections_per_address: At<usize>,
    pub(crate) max_waiting: At<usize>,
    pub(crate) max_keys: At<u64>,
    /// How many tokens each key may have in flight.
    pub(crate) key_in_flight: At<Option<u64>>,
    /// Whether every response reports the remaining tokens, or only refusals.
    pub(crate) tells_always: At<bool>,
    /// The file that keeps the levels of all buckets over a restart; `None` if they begin full.
    pub(crate) state: At<Option<PathBuf>>,
    /// How often that file is written.
    pub(crate) state_every: At<Duration>,
}

impl Config {
    /// The scheme of the URLs that clients use.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Checks that every difference from `old` can be applied without a restart.
    pub(crate) fn check_fixed(&self, path: &Path, old: &Fixed) -> Result<(), Problem> {
        let new = &self.fixed;
        let changed = [
            ("listen", new.listen.line, new.listen.value != old.listen.value),
            ("admin", new.admin.line, new.admin.value != old.admin.value),
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
            ("rate_limit_fields", new.tells_always.line, new.tells_always.value != old.tells_always.value),
        ];
        let Some((name, line, _)) = changed.into_iter().find(|(.., changed)| *changed) else { return Ok(()) };
        Err(Problem::fixed(path, name, line))
    }
}
