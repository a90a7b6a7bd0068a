//! The TOML file as it is written, and the rules that it must follow. Parsing has no effects: a file that is refused
//! changes nothing.

mod checks;
mod keys;
mod routes;
mod tls;
mod values;

use std::path::{Path, PathBuf};

use tollgate::{Limiter, Quota};
use toml::Spanned;

use super::config::{Config, Fixed};
use super::problem::{At, Problem, Source};
use super::route::Routes;
use super::timeouts::Timeouts;
use checks::{at_optional, check_buffer, check_cap, check_connections, check_host, check_timeout};
use keys::KeysTable;
use routes::{Bounds, RouteTable};
use tls::{TlsTable, check_roots};
use values::{Address, Time, Upstream, nowhere, seconds};

impl Config {
    /// Reads and checks the file. Also returns its text: the task that watches the file compares later texts with it.
    pub(crate) fn read(path: &Path) -> Result<(Self, String), Problem> {
        let text = std::fs::read_to_string(path).map_err(|error| Problem::unreadable(path, &error))?;
        Ok((Self::parse(path, &text)?, text))
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, Problem> {
        let source = Source { path, text };
        let file: File = toml::from_str(text).map_err(|error| source.problem(error.span(), error.message()))?;
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
    upstream: Upstream,
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
    quota: Spanned<Quota>,
    in_flight: Option<Spanned<u64>>,
    #[serde(default = "default_fields")]
    rate_limit_fields: Spanned<Fields>,
    tls: Option<TlsTable>,
    keys: KeysTable,
    #[serde(default)]
    routes: Vec<RouteTable>,
}

/// Which responses have `RateLimit` fields.
#[derive(Clone, PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fields {
    Refusals,
    Always,
}

fn default_connections_per_address() -> Spanned<usize> {
    nowhere(1_000)
}

fn default_http2() -> Spanned<bool> {
    nowhere(false)
}

fn default_waiting() -> Spanned<usize> {
    nowhere(1_000)
}

fn default_fields() -> Spanned<Fields> {
    nowhere(Fields::Refusals)
}

fn default_buffer() -> Spanned<u64> {
    nowhere(64 << 10)
}

impl File {
    fn check(self, source: &Source<'_>) -> Result<Config, Problem> {
        self.check_quota(source)?;
        let timeouts = self.timeouts(source)?;
        let body_buffer = check_buffer(source, &self.body_buffer)?;
        let fixed = self.fixed(source)?;
        let key_in_flight = self.keys.in_flight.clone();
        let keys = self.keys.check(source)?;
        let bounds = Bounds {
            quota: *self.quota.as_ref(),
            keys: &keys,
            caps: [("in_flight", self.in_flight.as_ref()), ("keys.in_flight", key_in_flight.as_ref())],
            max_wait: self.max_wait.as_ref().0,
        };
        let routes =
            self.routes.into_iter().map(|route| bounds.check_route(source, route)).collect::<Result<_, _>>()?;
        // Every other route costs 1.
        bounds.check_cost(1).map_err(|why| source.problem(Some(self.max_wait.span()), why))?;
        let admin_hosts = self.admin_hosts.into_iter().map(|host| check_host(source, host));
        let roots = check_roots(source, self.upstream_ca.as_ref())?;
        let tls = self.tls.map(|tls| tls.check(source)).transpose()?;
        Ok(Config {
            fixed,
            tls,
            upstream: self.upstream.0,
            roots,
            admin_hosts: admin_hosts.collect::<Result<_, _>>()?,
            max_wait: self.max_wait.as_ref().0,
            timeouts,
            grace: self.grace.as_ref().0,
            global: self.quota.into_inner(),
            in_flight: self.in_flight.map(Spanned::into_inner),
            keys,
            routes: Routes::new(routes, body_buffer),
        })
    }

    fn named(&self) -> impl Iterator<Item = &PathBuf> {
        self.tls.iter().flat_map(TlsTable::files)
    }

    fn check_quota(&self, source: &Source<'_>) -> Result<(), Problem> {
        let (quota, span) = (*self.quota.as_ref(), self.quota.span());
        Limiter::new(quota).map_err(|error| source.problem(Some(span.clone()), error))?;
        if quota.is_manual() {
            let what = "a manual quota is never refilled here: write one with a rate, like \"100/s, burst 20\"";
            return Err(source.problem(Some(span), what));
        }
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

    fn fixed(&self, source: &Source<'_>) -> Result<Fixed, Problem> {
        let connections = self.max_connections.iter().chain([&self.max_connections_per_address]);
        connections.into_iter().try_for_each(|connections| check_connections(source, connections))?;
        let address = |address: &Spanned<Address>| source.at(address.clone()).map(|Address(address)| address);
        Ok(Fixed {
            listen: address(&self.listen),
            admin: address(&self.admin),
            upstream_http2: source.at(self.upstream_http2.clone()),
            upstream_ca: at_optional(source, self.upstream_ca.clone()),
            max_connections: at_optional(source, self.max_connections.clone()),
            max_connections_per_address: source.at(self.max_connections_per_address.clone()),
            max_waiting: source.at(self.max_waiting.clone()),
            max_keys: source.at(self.keys.max_keys.clone()),
            key_in_flight: at_optional(source, self.keys.in_flight.clone()),
            tells_always: source.at(self.rate_limit_fields.clone()).map(|fields| fields == Fields::Always),
            state: at_optional(source, self.state.clone()),
            state_every: At {
                value: check_timeout(source, "state_every", &self.state_every)?,
                ..source.at(self.state_every.clone()).map(|Time(every)| every)
            },
        })
    }
}
