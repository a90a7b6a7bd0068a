//! Limits per resource, as providers of APIs send them: requests, tokens, input tokens, output tokens.

use super::items::{MOST, MOST_ITEMS};
use super::{dates, reset};
use http::{HeaderMap, HeaderName};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The name of the resource of GitHub's fields.
pub(super) const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
/// The resource of fields that name none.
const DEFAULT_RESOURCE: &str = "requests";

/// The values of a response about one resource that the server limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLimit {
    /// The name of the resource, as in the fields: `requests`, `tokens`, `input-tokens`, `output-tokens`, or for GitHub
    /// `core`, `search`. Fields that name no resource are about `requests`.
    pub resource: Arc<str>,
    /// The most units that the server grants in one window. The fields do not say how long the window is.
    pub limit: Option<u64>,
    /// The units that are left.
    pub remaining: Option<u64>,
    /// The time from the response to the reset: for OpenAI and Anthropic until all units of the limit are available
    /// again, for GitHub until the next window begins. Zero if that instant has passed.
    pub reset: Option<Duration>,
}

/// All that a response says about resources, in the fields of OpenAI, Anthropic and GitHub, and of servers that send the
/// same.
///
/// | fields | sent by | `reset` |
/// |---|---|---|
/// | `x-ratelimit-limit-<resource>`, `x-ratelimit-remaining-<resource>`, `x-ratelimit-reset-<resource>` | OpenAI, Azure, Groq, Cerebras | `6m0s`, `20ms`, `7.66ms`, or seconds |
/// | `anthropic-ratelimit-<resource>-limit`, `-remaining`, `-reset` | Anthropic | an instant of RFC 3339 |
/// | `x-ratelimit-limit`, `-remaining`, `-reset`, `-resource` | GitHub and many others | Unix time in seconds or milliseconds, or seconds from now |
///
/// Each form of `reset` is understood in each set of fields. Instants count from the `Date` of the response, because they
/// are by the clock of the server; without a `Date`, from the local time.
///
/// Implausible values are ignored, and counted in [`ignored`](Self::ignored): text that is not a number, negative
/// numbers (Azure sends -1 for unknown), more than 15 digits, a limit of 0, more remaining than the limit, a reset in
/// more than a year, and more than 32 resources. If a field is sent twice, or two fields are about the same resource,
/// the first counts.
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
    Plain,
}

#[derive(Clone, Copy)]
enum Kind {
    Limit,
    Remaining,
    Reset,
}

const KINDS: [(&str, Kind); 3] = [("limit", Kind::Limit), ("remaining", Kind::Remaining), ("reset", Kind::Reset)];

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
        let now = dates::now(headers);
        let mut read = Self::default();
        for (name, value) in headers {
            let Some((family, resource, kind)) = field(name.as_str()).filter(|(family, ..)| is_wanted(*family)) else {
                continue;
            };
            let resource = if family == Family::Plain { plain_resource(headers) } else { resource };
            let is_used = value.to_str().is_ok_and(|text| read.set(resource, kind, text.trim(), now));
            read.ignored += u64::from(!is_used);
        }
        read.ignore_contradictions();
        read
    }

    /// Sets one value. Returns false if it is implausible.
    fn set(&mut self, resource: &str, kind: Kind, text: &str, now: SystemTime) -> bool {
        let value = match kind {
            Kind::Limit | Kind::Remaining => {
                let is_plausible = |number: &u64| *number <= MOST && (*number > 0 || matches!(kind, Kind::Remaining));
                reset::number(text).filter(is_plausible).map(Value::Units)
            }
            Kind::Reset => reset::read(text, now).map(Value::Time),
        };
        let Some(value) = value else { return false };
        let Some(limit) = self.entry(resource) else { return false };
        match (kind, value) {
            (Kind::Limit, Value::Units(units)) => set_once(&mut limit.limit, units),
            (_, Value::Units(units)) => set_once(&mut limit.remaining, units),
            (_, Value::Time(time)) => set_once(&mut limit.reset, time),
        }
    }

    /// The limit of a resource; `None` if there are too many.
    fn entry(&mut self, resource: &str) -> Option<&mut ResourceLimit> {
        let found = self.limits.iter().position(|limit| *limit.resource == *resource);
        if found.is_none() {
            if self.limits.len() == MOST_ITEMS {
                return None;
            }
            self.limits.push(ResourceLimit { resource: resource.into(), limit: None, remaining: None, reset: None });
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

enum Value {
    Units(u64),
    Time(Duration),
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
    let rest = name.strip_prefix("x-ratelimit-")?;
    match rest.split_once('-') {
        Some((first, resource)) if !resource.is_empty() => Some((Family::OpenAi, resource, kind(first)?)),
        Some(_) => None,
        None => Some((Family::Plain, DEFAULT_RESOURCE, kind(rest)?)),
    }
}

fn kind(word: &str) -> Option<Kind> {
    KINDS.into_iter().find(|(name, _)| *name == word).map(|(_, kind)| kind)
}

/// The resource of `x-ratelimit-limit`, `-remaining` and `-reset`.
fn plain_resource(headers: &HeaderMap) -> &str {
    let named = headers.get(RESOURCE).and_then(|name| name.to_str().ok()).map(str::trim);
    named.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_RESOURCE)
}
