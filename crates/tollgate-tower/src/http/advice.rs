//! The waits and limits that a response asks its client to keep. Pure, except for the time of day, which is needed if a
//! response contains dates but not its own date.

use super::format::{Format, Unit};
use super::items::QuotaPolicy;
use super::limits::RateLimits;
use super::resources::{Family, ResourceLimits};
use super::{dates, refilled, reset};
use http::header::{AGE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, StatusCode};
use std::time::{Duration, SystemTime};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// The waits and limits that a response asks its client to keep.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_tower::http::{Advice, Format, Unit};
/// let mut headers = http::HeaderMap::new();
/// headers.insert("ratelimit-policy", r#""burst";q=100;w=60"#.parse()?);
/// headers.insert("ratelimit", r#""burst";r=0;t=30"#.parse()?);
/// let advice = Advice::read(http::StatusCode::OK, &headers, &[Format::Draft11], &Unit::Requests);
/// assert_eq!((advice.wait, advice.available), (Some(Duration::from_secs(30)), Some(0)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// Send no request for this long.
    pub wait: Option<Duration>,
    /// The time until the server has one more unit. A client that refills its quota as [`policy`](Self::policy) says
    /// can wait for this, in place of [`wait`](Self::wait). `Some` only for quotas that the server refills steadily, and
    /// not after a `Retry-After`.
    pub next_unit: Option<Duration>,
    /// Use no more than this many units before the next response.
    pub available: Option<u64>,
    /// The slowest policy with a window that was sent, or that can be computed from the reset.
    pub policy: Option<QuotaPolicy>,
    /// How many values were ignored because they are malformed or implausible.
    pub ignored: u64,
}

impl Advice {
    /// Reads what a response says about quotas that count `unit`, in the first of `formats` that it contains.
    ///
    /// `Retry-After` counts on refusals and failures (status 400 and above), and takes precedence over the windows of
    /// all formats. A quota that is used up asks to wait until its window has ended. Malformed fields are ignored, and
    /// counted. Quota fields of a response from a cache (its `Age` is above 0) are ignored, because they do not describe
    /// the present.
    pub fn read(status: StatusCode, headers: &HeaderMap, formats: &[Format], unit: &Unit) -> Self {
        let is_refusal = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let is_failure = status.is_client_error() || status.is_server_error();
        let mut advice = if is_cached(headers) { Self::default() } else { Self::read_formats(headers, formats, unit) };
        let (wait, ignored) = if is_failure { retry_after(headers) } else { (None, 0) };
        if wait.is_some() {
            (advice.wait, advice.next_unit) = (wait, None);
        }
        advice.ignored += ignored;
        advice.available = advice.available.or(is_refusal.then_some(0));
        advice
    }

    /// Reads the first format that says anything about `unit`.
    fn read_formats(headers: &HeaderMap, formats: &[Format], unit: &Unit) -> Self {
        let mut ignored = 0;
        for format in formats {
            let (found, more) = match format {
                Format::Draft11 | Format::XRateLimit => Self::listed(headers, *format, unit),
                Format::OpenAi => Self::refilled(headers, Family::OpenAi, unit),
                Format::Anthropic => Self::refilled(headers, Family::Anthropic, unit),
            };
            ignored += more;
            if let Some(found) = found {
                return Self { ignored, ..found };
            }
        }
        Self { ignored, ..Self::default() }
    }

    /// Reads a format that lists quotas. Also returns how many values were ignored.
    fn listed(headers: &HeaderMap, format: Format, unit: &Unit) -> (Option<Self>, u64) {
        let (mut found, ignored) = RateLimits::read_counted(format, headers);
        // A limit without a policy is assumed to count `unit`.
        let policies = &found.policies;
        found.limits.retain(|limit| policies.iter().all(|policy| policy.name != limit.name || policy.unit == *unit));
        found.policies.retain(|policy| policy.unit == *unit);
        if found.limits.is_empty() && found.policies.is_empty() {
            return (None, ignored);
        }
        let used_up = found.limits.iter().filter(|limit| limit.available == 0);
        let advice = Self {
            wait: used_up.filter_map(|limit| limit.window).max().map(Duration::from_secs),
            available: found.limits.iter().map(|limit| limit.available).min(),
            policy: found.policies.into_iter().filter(|policy| policy.window.is_some()).reduce(slower),
            ..Self::default()
        };
        (Some(advice), ignored)
    }

    /// Reads a format with a quota for each resource, which the server refills steadily.
    fn refilled(headers: &HeaderMap, family: Family, unit: &Unit) -> (Option<Self>, u64) {
        let read = ResourceLimits::read_family(headers, family);
        let Some(limit) = read.limits.iter().find(|limit| Unit::from(&*limit.resource) == *unit) else {
            return (None, read.ignored);
        };
        let policy = refilled::policy(limit, family).filter(|policy| policy.window.is_some());
        let is_used_up = limit.remaining == Some(0);
        let advice = Self {
            wait: limit.reset.filter(|_| is_used_up),
            next_unit: policy.as_ref().and_then(refilled::next_unit).filter(|_| is_used_up),
            available: limit.remaining,
            policy,
            ignored: 0,
        };
        (Some(advice), read.ignored)
    }
}

fn slower(one: QuotaPolicy, other: QuotaPolicy) -> QuotaPolicy {
    let pace = |these: &QuotaPolicy, those: &QuotaPolicy| {
        u128::from(these.quota) * u128::from(those.window.unwrap_or(u64::MAX))
    };
    if pace(&other, &one) < pace(&one, &other) { other } else { one }
}

fn is_cached(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse::<u64>().ok());
    age.is_some_and(|age| age > 0)
}

/// Reads `Retry-After`, in seconds or as a date. OpenAI and Azure also send `retry-after-ms`, which is more exact. Also
/// returns how many of the fields that were read are malformed.
fn retry_after(headers: &HeaderMap) -> (Option<Duration>, u64) {
    let mut malformed = 0;
    for (name, read) in [(RETRY_AFTER_MS, millis as fn(&str, &HeaderMap) -> _), (RETRY_AFTER, seconds_or_date)] {
        let Some(value) = headers.get(name) else { continue };
        match value.to_str().ok().and_then(|text| read(text.trim(), headers)) {
            Some(wait) => return (Some(wait), malformed),
            None => malformed += 1,
        }
    }
    (None, malformed)
}

fn millis(text: &str, _: &HeaderMap) -> Option<Duration> {
    reset::number(text).map(Duration::from_millis)
}

fn seconds_or_date(text: &str, headers: &HeaderMap) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a `u64` can have: longer than any client waits.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let until: SystemTime = dates::parse(text)?;
    Some(until.duration_since(dates::now(headers)).unwrap_or_default())
}
