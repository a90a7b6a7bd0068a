//! The TOML file as it is written, and the rules that it must follow. Parsing has no effects: a file that is refused
//! changes nothing.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use serde::de::{Deserialize, Deserializer, Error as _};
use tollgate::{KeyedLimiter, Limiter, Quota};
use toml::Spanned;

use super::config::{Config, Fixed, Keys, Unlisted};
use super::forwarding::Proxies;
use super::name::Name;
use super::problem::{At, Problem, Source};
use super::route::{Route, Routes};
use super::timeouts::Timeouts;

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
}

/// The file as it is written.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Spanned<Address>,
    admin: Spanned<Address>,
    upstream: Upstream,
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
    #[serde(default = "default_buffer")]
    body_buffer: Spanned<u64>,
    #[serde(default = "seconds::<20>")]
    grace: Spanned<Time>,
    quota: Spanned<Quota>,
    in_flight: Option<Spanned<u64>>,
    #[serde(default = "default_fields")]
    rate_limit_fields: Spanned<Fields>,
    keys: KeysTable,
    #[serde(default)]
    routes: Vec<RouteTable>,
}

/// Which responses have `RateLimit` fields.
#[derive(PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fields {
    Refusals,
    Always,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysTable {
    header: Spanned<String>,
    quota: Spanned<Quota>,
    in_flight: Option<Spanned<u64>>,
    #[serde(default = "default_unlisted")]
    unlisted: Unlisted,
    #[serde(default)]
    proxies_before: usize,
    trusted_proxies: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default = "default_keys")]
    max_keys: Spanned<u64>,
    overflow: Option<Spanned<Quota>>,
    #[serde(default)]
    listed: BTreeMap<String, Listed>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    key: Spanned<String>,
    quota: Option<Spanned<Quota>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteTable {
    path: Spanned<String>,
    #[serde(default)]
    methods: Vec<Spanned<String>>,
    cost: Spanned<u64>,
    body_buffer: Option<Spanned<u64>>,
}

/// The largest `body_buffer`: each connection may fill one.
const MOST_BUFFERED: u64 = 16 << 20;

/// A value that the file does not contain has no line. If a message had to name one, the first line would do.
fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn default_connections_per_address() -> Spanned<usize> {
    nowhere(1_000)
}

fn default_waiting() -> Spanned<usize> {
    nowhere(1_000)
}

fn default_keys() -> Spanned<u64> {
    nowhere(100_000)
}

fn default_fields() -> Spanned<Fields> {
    nowhere(Fields::Refusals)
}

fn default_unlisted() -> Unlisted {
    Unlisted::ByAddress
}

fn default_buffer() -> Spanned<u64> {
    nowhere(64 << 10)
}

fn seconds<const SECONDS: u64>() -> Spanned<Time> {
    nowhere(Time(Duration::from_secs(SECONDS)))
}

impl File {
    pub(crate) fn check(self, source: &Source<'_>) -> Result<Config, Problem> {
        let Self { quota, in_flight, routes, .. } = self;
        let max_wait = self.max_wait.as_ref().0;
        Limiter::new(*quota.as_ref()).map_err(|error| source.problem(Some(quota.span()), error))?;
        if quota.as_ref().is_manual() {
            let what = "a manual quota is never refilled here: write one with a rate, like \"100/s, burst 20\"";
            return Err(source.problem(Some(quota.span()), what));
        }
        check_cap(source, in_flight.as_ref())?;
        let max_keys = source.at(self.keys.max_keys.clone());
        let key_in_flight = self.keys.in_flight.clone();
        let keys = self.keys.check(source)?;
        let mut checked = Vec::new();
        let caps = [("in_flight", in_flight.as_ref()), ("keys.in_flight", key_in_flight.as_ref())];
        for route in routes {
            let (route, cost) = route.check(source)?;
            let in_the_way = cannot_pass(route.cost, *quota.as_ref(), &keys, caps, max_wait);
            in_the_way.map_or(Ok(()), |why| Err(source.problem(Some(cost), why)))?;
            checked.push(route);
        }
        // Every other route costs 1.
        let in_the_way = cannot_pass(1, *quota.as_ref(), &keys, caps, max_wait);
        in_the_way.map_or(Ok(()), |why| Err(source.problem(Some(self.max_wait.span()), why)))?;
        let timeouts = Timeouts {
            upstream: check_timeout(source, "upstream_timeout", &self.upstream_timeout)?,
            upstream_idle: check_timeout(source, "upstream_idle_timeout", &self.upstream_idle_timeout)?,
            client: check_timeout(source, "client_timeout", &self.client_timeout)?,
            header: check_timeout(source, "header_timeout", &self.header_timeout)?,
            idle: check_timeout(source, "idle_timeout", &self.idle_timeout)?,
        };
        let body_buffer = check_buffer(source, &self.body_buffer)?;
        let connections = self.max_connections.iter().chain([&self.max_connections_per_address]);
        connections.into_iter().try_for_each(|connections| check_connections(source, connections))?;
        let address = |address: Spanned<Address>| source.at(address).map(|Address(address)| address);
        Ok(Config {
            fixed: Fixed {
                listen: address(self.listen),
                admin: address(self.admin),
                max_connections: at_optional(source, self.max_connections),
                max_connections_per_address: source.at(self.max_connections_per_address),
                max_waiting: source.at(self.max_waiting),
                max_keys,
                key_in_flight: at_optional(source, key_in_flight),
                tells_always: source.at(self.rate_limit_fields).map(|fields| fields == Fields::Always),
            },
            upstream: self.upstream.0,
            admin_hosts: self.admin_hosts.into_iter().map(|host| check_host(source, host)).collect::<Result<_, _>>()?,
            max_wait,
            timeouts,
            grace: self.grace.as_ref().0,
            global: quota.into_inner(),
            in_flight: in_flight.map(Spanned::into_inner),
            keys,
            routes: Routes::new(checked, body_buffer),
        })
    }
}

impl KeysTable {
    fn check(self, source: &Source<'_>) -> Result<Keys, Problem> {
        let header = HeaderName::try_from(self.header.as_ref().as_str()).map_err(|_| {
            let what = format!("`{}` is not a header name: write one like \"x-api-key\"", self.header.as_ref());
            source.problem(Some(self.header.span()), what)
        })?;
        if *self.max_keys.as_ref() == 0 {
            let what = "`max_keys` is 0: write at least 1; `unlisted = \"refuse\"` admits listed keys only";
            return Err(source.problem(Some(self.max_keys.span()), what));
        }
        check_keyed(source, &self.quota)?;
        self.overflow.iter().try_for_each(|quota| check_keyed(source, quota))?;
        check_cap(source, self.in_flight.as_ref())?;
        let proxies = check_proxies(source, self.proxies_before, self.trusted_proxies)?;
        let (mut names, mut quotas) = (HashMap::new(), BTreeMap::new());
        for (name, Listed { key, quota }) in self.listed {
            let name = Name::new(&name);
            if key.as_ref().is_empty() || HeaderValue::from_str(key.as_ref()).is_err() {
                let what = format!("the key of `{name}` cannot be sent in a header: write visible ASCII characters");
                return Err(source.problem(Some(key.span()), what));
            }
            if let Some(quota) = quota {
                check_keyed(source, &quota)?;
                quotas.insert(name, quota.into_inner());
            }
            let span = key.span();
            if let Some(other) = names.insert(key.into_inner(), name) {
                let what = format!("`{name}` has the key of `{other}`: give each its own");
                return Err(source.problem(Some(span), what));
            }
        }
        let (quota, unlisted) = (self.quota.into_inner(), self.unlisted);
        let overflow = self.overflow.map_or(quota, Spanned::into_inner);
        Ok(Keys { header, quota, overflow, unlisted, proxies, names, quotas })
    }
}

fn check_proxies(
    source: &Source<'_>,
    before: usize,
    trusted: Option<Spanned<Vec<Spanned<String>>>>,
) -> Result<Proxies, Problem> {
    let Some(trusted) = trusted else { return Ok(Proxies { before, trusted: None }) };
    if before == 0 {
        let what = "`trusted_proxies` has no effect without `proxies_before`: write how many proxies a request passes";
        return Err(source.problem(Some(trusted.span()), what));
    }
    let network = |text: Spanned<String>| {
        text.as_ref().parse().map_err(|()| {
            let what = format!("`{}` is not a block of addresses: write one like \"10.0.0.0/8\"", text.as_ref());
            source.problem(Some(text.span()), what)
        })
    };
    let trusted = trusted.into_inner().into_iter().map(network).collect::<Result<_, _>>()?;
    Ok(Proxies { before, trusted: Some(trusted) })
}

fn check_keyed(source: &Source<'_>, quota: &Spanned<Quota>) -> Result<(), Problem> {
    let built = KeyedLimiter::<()>::builder().quota(*quota.as_ref()).build();
    built.map(drop).map_err(|error| source.problem(Some(quota.span()), error))
}

fn check_cap(source: &Source<'_>, cap: Option<&Spanned<u64>>) -> Result<(), Problem> {
    let Some(cap) = cap else { return Ok(()) };
    if *cap.as_ref() == 0 {
        return Err(source.problem(Some(cap.span()), "`in_flight` is 0: no request could ever pass; write at least 1"));
    }
    let built = Limiter::builder().quota(Quota::per_second(1)).max_in_flight(*cap.as_ref()).build();
    built.map(drop).map_err(|error| source.problem(Some(cap.span()), error))
}

fn at_optional<T>(source: &Source<'_>, value: Option<Spanned<T>>) -> At<Option<T>> {
    value.map_or(source.at(nowhere(None)), |value| source.at(value).map(Some))
}

fn check_connections(source: &Source<'_>, connections: &Spanned<usize>) -> Result<(), Problem> {
    let what = "0 connections: no request could ever come; write at least 1";
    if *connections.as_ref() == 0 { Err(source.problem(Some(connections.span()), what)) } else { Ok(()) }
}

fn check_host(source: &Source<'_>, host: Spanned<String>) -> Result<String, Problem> {
    let is_name = host.as_ref().parse().is_ok_and(|authority: Authority| authority.host() == host.as_ref());
    if is_name {
        return Ok(host.into_inner());
    }
    let what = format!("`{}` is not a host name: write one like \"gateway.internal\", without a port", host.as_ref());
    Err(source.problem(Some(host.span()), what))
}

fn check_timeout(source: &Source<'_>, name: &str, time: &Spanned<Time>) -> Result<Duration, Problem> {
    let Time(timeout) = *time.as_ref();
    let what = || format!("`{name}` is 0s, and nothing takes no time: write one like \"30s\"");
    if timeout.is_zero() { Err(source.problem(Some(time.span()), what())) } else { Ok(timeout) }
}

fn check_buffer(source: &Source<'_>, bytes: &Spanned<u64>) -> Result<usize, Problem> {
    let size = *bytes.as_ref();
    let what =
        || format!("`body_buffer` is {size} bytes, which each connection may take: write at most {MOST_BUFFERED}");
    if size > MOST_BUFFERED { Err(source.problem(Some(bytes.span()), what())) } else { Ok(size as usize) }
}

impl RouteTable {
    /// Parses a route, with the span of its cost.
    fn check(self, source: &Source<'_>) -> Result<(Route, Range<usize>), Problem> {
        if !self.path.as_ref().starts_with('/') {
            let what = format!("the path `{}` does not begin with a slash: write \"/reports\"", self.path.as_ref());
            return Err(source.problem(Some(self.path.span()), what));
        }
        let mut methods = Vec::new();
        for name in self.methods {
            // Any token is a valid method, but all common methods are upper case.
            let method = Method::from_bytes(name.as_ref().as_bytes()).ok();
            let method = method.filter(|method| !method.as_str().contains(|c: char| c.is_ascii_lowercase()));
            methods.push(method.ok_or_else(|| {
                source.problem(Some(name.span()), format!("`{}` is not a method: write \"POST\"", name.as_ref()))
            })?);
        }
        let cost = self.cost.span();
        let body_buffer = self.body_buffer.map(|bytes| check_buffer(source, &bytes)).transpose()?;
        Ok((Route::new(self.path.as_ref(), methods, self.cost.into_inner(), body_buffer), cost))
    }
}

/// The reason why a request of `cost` could never pass, even in an idle gateway.
fn cannot_pass(
    cost: u64,
    global: Quota,
    keys: &Keys,
    caps: [(&str, Option<&Spanned<u64>>); 2],
    max_wait: Duration,
) -> Option<String> {
    for (name, most) in caps {
        if let Some(most) = most.map(|most| *most.as_ref()).filter(|most| cost > *most) {
            return Some(format!(
                "a cost of {cost} exceeds `{name}` of {most} and could never pass: lower it, or raise `{name}`"
            ));
        }
    }
    let all = [("all", global), ("each key", keys.quota), ("`overflow`", keys.overflow)].into_iter();
    let all = all.chain(keys.quotas.iter().map(|(name, quota)| (name.as_str(), *quota)));
    for (whose, quota) in all {
        let full = Limiter::new(quota.initial(quota.capacity())).expect("the quota was checked");
        let wait = full.estimate(cost);
        if wait.is_none_or(|wait| wait > max_wait) {
            let wait = wait.map_or("for ever".to_owned(), |wait| format!("for {}", humantime::format_duration(wait)));
            return Some(format!(
                "a cost of {cost} waits {wait} even in a full bucket of the quota \"{quota}\" of {whose}, and `max_wait` is \
                 {}: lower the cost, or raise the burst or `max_wait`",
                humantime::format_duration(max_wait)
            ));
        }
    }
    None
}

/// An address to listen on.
struct Address(SocketAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::custom(format!("`{text}` is not an address to listen on: write one like \"127.0.0.1:8080\""))
        })
    }
}

/// A duration.
#[derive(Clone, Copy)]
struct Time(Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|_| {
            D::Error::custom(format!("`{text}` is not a duration: write one like \"2s\", \"250ms\" or \"1m 30s\""))
        })
    }
}

/// The upstream's address.
struct Upstream(Authority);

impl<'de> Deserialize<'de> for Upstream {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let plain = |uri: &Uri| uri.scheme() == Some(&Scheme::HTTP) && uri.path() == "/" && uri.query().is_none();
        let authority = text.parse().ok().filter(plain).and_then(|uri| uri.authority().cloned());
        authority.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is not an upstream: write one like \"http://127.0.0.1:3000\", without a path \
                 (TLS is not supported)"
            ))
        })
    }
}
