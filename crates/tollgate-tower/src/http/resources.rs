//! Limits per resource, as providers of APIs send them: requests, tokens, input tokens, output tokens.

use super::items::{MOST, MOST_ITEMS};
use super::times::{self, BILLION};
use http::{HeaderMap, HeaderName};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The name of the resource of GitHub's fields.
const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
/// The resource of fields that name none.
const DEFAULT_RESOURCE: &str = "requests";

/// The values of a response about one resource that the server limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLimit {
    /// The name of the resource, as in the fields: `requests`, `tokens`, `input-tokens`, `output-tokens`, or for GitHub
    /// `core`, `search`. Fields that name no resource are about `requests`.
    pub resource: Arc<str>,
    /// The most units that the server grants in one window.
    pub limit: Option<u64>,
    /// The length of the window, which few servers send: `100;w=21600`.
    pub window: Option<Duration>,
    /// The units that are left.
    pub remaining: Option<u64>,
    /// The time from the response to the reset: for OpenAI and Anthropic until all units of the limit are available
    /// again, for GitHub until the next window begins. Zero if that instant has passed.
    pub reset: Option<Duration>,
}

/// All that a response says about resources, in the fields of OpenAI, Anthropic, GitHub and many others.
///
/// | fields | sent by | `reset` |
/// |---|---|---|
/// | `x-ratelimit-limit-<resource>`, `x-ratelimit-remaining-<resource>`, `x-ratelimit-reset-<resource>` | OpenAI, Azure, Groq, Cerebras | `6m0s`, `20ms`, `7.66ms`, or seconds |
/// | `anthropic-ratelimit-<resource>-limit`, `-remaining`, `-reset` | Anthropic | an instant of RFC 3339 |
/// | `x-ratelimit-limit`, `-remaining`, `-reset`, `-reset-after`, `-resource` | GitHub, Discord, Reddit, Envoy and many others | Unix time, or seconds from now |
/// | `ratelimit-limit`, `-remaining`, `-reset`, `-reset-after` | GitLab, Docker Hub | the same |
/// | `x-rate-limit-limit`, `-remaining`, `-reset`, `-reset-after` | Okta, Twitter | the same |
///
/// Each form of `reset` is understood in each set of fields: seconds with or without a fraction, durations as Go writes
/// them, Unix times in seconds, milliseconds, microseconds or nanoseconds, instants of RFC 3339, and HTTP dates. A number
/// beyond a year of seconds is a Unix time. Instants count from the `Date` of the response, because they are by the clock
/// of the server; without a `Date`, from the local time. `reset-after` needs no clock, and goes before `reset`. A time
/// below zero, or in the past, is zero.
///
/// Of several numbers in a limit or in what remains, as in `2, 0`, the smallest counts. A fraction of a unit is dropped.
///
/// Implausible values are ignored, and counted in [`ignored`](Self::ignored): text that is not a number, negative
/// numbers (Azure sends -1 for unknown), more than 15 digits, a limit of 0, more remaining than the limit, a reset in
/// more than a year, and more than 32 resources. In fields without a resource in their names, less than 0 remaining of a
/// limit that was sent is 0. If a field is sent twice, or two fields are about the same resource, the first counts, and of
/// what remains the least.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_tower::http::ResourceLimits;
/// let mut headers = http::HeaderMap::new();
/// headers.insert("x-ratelimit-limit-tokens", "150000".parse()?);
/// headers.insert("x-ratelimit-remaining-tokens", "149984".parse()?);
/// headers.insert("x-ratelimit-reset-tokens", "6m0s".parse()?);
/// headers.insert("x-ratelimit-remaining-requests", "-1".parse()?);
/// let read = ResourceLimits::read(&headers);
/// let tokens = read.get("tokens").unwrap();
/// assert_eq!((tokens.limit, tokens.remaining), (Some(150_000), Some(149_984)));
/// assert_eq!(tokens.reset, Some(Duration::from_secs(360)));
/// assert_eq!((read.get("requests"), read.ignored), (None, 1));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLimits {
    /// The resources about which the response says anything, in the order of their first field.
    pub limits: Vec<ResourceLimit>,
    /// How many values were ignored.
    pub ignored: u64,
}

/// A set of fields that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `x-ratelimit-limit-<resource>`.
    OpenAi,
    /// `anthropic-ratelimit-<resource>-limit`.
    Anthropic,
    /// `x-ratelimit-limit`.
    XRateLimit,
    /// `ratelimit-limit`.
    RateLimit,
    /// `x-rate-limit-limit`.
    XRateDashLimit,
}

impl Family {
    /// The families whose names contain no resource.
    pub(super) const PLAIN: [Self; 3] = [Self::RateLimit, Self::XRateLimit, Self::XRateDashLimit];

    pub(super) fn is_plain(self) -> bool {
        Self::PLAIN.contains(&self)
    }
}

/// In the order in which the fields are evaluated: what remains may depend on the limit, and the last reset counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Limit,
    Remaining,
    Reset,
    ResetAfter,
}

const KINDS: [(&str, Kind); 4] =
    [("limit", Kind::Limit), ("remaining", Kind::Remaining), ("reset", Kind::Reset), ("reset-after", Kind::ResetAfter)];

impl ResourceLimits {
    /// Reads the fields of a response.
    pub fn read(headers: &HeaderMap) -> Self {
        Self::read_only(headers, |_| true)
    }

    /// Reads the fields of one family.
    pub(super) fn read_family(headers: &HeaderMap, family: Family) -> Self {
        Self::read_only(headers, |other| other == family)
    }

    /// Returns what the response says about the resource of this name.
    pub fn get(&self, resource: &str) -> Option<&ResourceLimit> {
        self.limits.iter().find(|limit| *limit.resource == *resource)
    }

    fn read_only(headers: &HeaderMap, is_wanted: impl Fn(Family) -> bool) -> Self {
        let now = times::now(headers);
        let mut read = Self::default();
        let named = headers.iter().filter_map(|(name, value)| Some((field(name.as_str())?, value)));
        let mut fields: Vec<_> = named.filter(|((family, ..), _)| is_wanted(*family)).collect();
        fields.sort_by_key(|((.., kind), _)| *kind);
        for ((family, resource, kind), value) in fields {
            let resource = if family == Family::XRateLimit { plain_resource(headers) } else { resource };
            let is_used = value.to_str().is_ok_and(|text| read.set(family, resource, kind, text.trim(), now));
            read.ignored += u64::from(!is_used);
        }
        read.limits.retain(|limit| limit.limit.is_some() || limit.remaining.is_some() || limit.reset.is_some());
        read.ignore_contradictions();
        read
    }

    /// Sets one value. Returns false if it is implausible, or not the first.
    fn set(&mut self, family: Family, resource: &str, kind: Kind, text: &str, now: SystemTime) -> bool {
        let Some(limit) = self.entry(resource) else { return false };
        match kind {
            Kind::Limit => units(text).filter(|(most, _)| *most > 0).is_some_and(|(most, window)| {
                limit.window = limit.window.or(window);
                set_once(&mut limit.limit, most)
            }),
            Kind::Remaining => {
                let overdrawn = text.strip_prefix('-').filter(|_| family.is_plain() && limit.limit.is_some());
                let left = overdrawn.map_or_else(|| units(text), |text| Some((0, units(text)?.1)));
                left.is_some_and(|(left, window)| {
                    limit.window = limit.window.or(window);
                    let is_first = set_once(&mut limit.remaining, left);
                    limit.remaining = limit.remaining.min(Some(left));
                    is_first
                })
            }
            Kind::Reset => times::read(text, now).is_some_and(|time| set_once(&mut limit.reset, time)),
            Kind::ResetAfter => {
                let time = times::read(text, now);
                limit.reset = time.or(limit.reset);
                time.is_some()
            }
        }
    }

    /// The limit of a resource; `None` if there are too many.
    fn entry(&mut self, resource: &str) -> Option<&mut ResourceLimit> {
        let found = self.limits.iter().position(|limit| *limit.resource == *resource);
        if found.is_none() {
            if self.limits.len() == MOST_ITEMS {
                return None;
            }
            let resource = resource.into();
            self.limits.push(ResourceLimit { resource, limit: None, window: None, remaining: None, reset: None });
        }
        let place = found.unwrap_or(self.limits.len() - 1);
        self.limits.get_mut(place)
    }

    /// Ignores the values of a resource that has more left than its limit: one of the two is wrong.
    fn ignore_contradictions(&mut self) {
        for limit in &mut self.limits {
            if limit.limit.is_some_and(|most| limit.remaining > Some(most)) {
                limit.remaining = None;
                self.ignored += 1;
            }
        }
    }
}

/// Reads a number of units, and their window if there is one: `0.0`, `100;w=21600`. Of a list, such as `2, 0` or
/// `10, 10;w=60`, the smallest number counts, with its window.
fn units(text: &str) -> Option<(u64, Option<Duration>)> {
    let item = |item: &str| {
        let mut parts = item.split(';').map(str::trim);
        let units = times::billionths(parts.next()?)? / BILLION;
        let window = parts.find_map(|part| part.strip_prefix("w=")?.parse().ok());
        let window = window.filter(|seconds| (1..=MOST).contains(seconds)).map(Duration::from_secs);
        Some((u64::try_from(units).ok().filter(|units| *units <= MOST)?, window))
    };
    text.split(',').filter_map(item).min_by_key(|(units, window)| (*units, window.is_none()))
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> bool {
    let is_first = slot.is_none();
    slot.get_or_insert(value);
    is_first
}

/// Splits the name of a field, which is in lower case.
fn field(name: &str) -> Option<(Family, &str, Kind)> {
    if let Some(rest) = name.strip_prefix("anthropic-ratelimit-") {
        let (resource, last) = rest.rsplit_once('-')?;
        return Some((Family::Anthropic, resource, kind(last)?)).filter(|_| !resource.is_empty());
    }
    for (prefix, family) in ["ratelimit-", "x-ratelimit-", "x-rate-limit-"].into_iter().zip(Family::PLAIN) {
        if let Some(kind) = name.strip_prefix(prefix).and_then(kind) {
            return Some((family, DEFAULT_RESOURCE, kind));
        }
    }
    let (first, resource) = name.strip_prefix("x-ratelimit-")?.split_once('-')?;
    Some((Family::OpenAi, resource, kind(first)?)).filter(|_| !resource.is_empty())
}

fn kind(word: &str) -> Option<Kind> {
    KINDS.into_iter().find(|(name, _)| *name == word).map(|(_, kind)| kind)
}

/// The resource of `x-ratelimit-limit`, `-remaining` and `-reset`.
fn plain_resource(headers: &HeaderMap) -> &str {
    let named = headers.get(RESOURCE).and_then(|name| name.to_str().ok()).map(str::trim);
    named.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_RESOURCE)
}
