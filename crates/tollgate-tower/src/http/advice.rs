//! What a response asks of its client. Pure, except for the time of day, which is needed if a response contains dates
//! but not its own date.

use super::dates;
use super::format::{Format, Unit};
use super::items::QuotaPolicy;
use super::limits::RateLimits;
use http::header::{AGE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use std::time::{Duration, SystemTime};

/// What a response asks of its client.
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
    /// Use no more than this many units before the next response.
    pub available: Option<u64>,
    /// The slowest policy that was sent with a window.
    pub policy: Option<QuotaPolicy>,
}

impl Advice {
    /// Reads what a response says about quotas that count `unit`, in the first of `formats` that it contains.
    ///
    /// `Retry-After` counts on refusals and failures (status 400 and above), and takes precedence over the windows of
    /// all formats. A quota that is used up asks to wait until its window has ended. Malformed fields are ignored.
    /// Quota fields of a response from a cache (its `Age` is above 0) are ignored, because they do not describe the
    /// present.
    pub fn read(status: StatusCode, headers: &HeaderMap, formats: &[Format], unit: &Unit) -> Self {
        let is_refusal = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let is_failure = status.is_client_error() || status.is_server_error();
        let retry_after = retry_after(headers).filter(|_| is_failure);
        let limits = if is_cached(headers) { None } else { limits_on(headers, formats, unit) }.unwrap_or_default();
        let used_up = limits.limits.iter().filter(|limit| limit.available == 0);
        let window = used_up.filter_map(|limit| limit.window).max().map(Duration::from_secs);
        let available = limits.limits.iter().map(|limit| limit.available).min();
        Self {
            wait: retry_after.or(window),
            available: available.or(is_refusal.then_some(0)),
            policy: limits.policies.into_iter().filter(|policy| policy.window.is_some()).reduce(slower),
        }
    }
}

/// Returns the limits on quotas that count `unit`, in the first format that has any.
fn limits_on(headers: &HeaderMap, formats: &[Format], unit: &Unit) -> Option<RateLimits> {
    let read = |format: &Format| {
        let mut limits = RateLimits::read(*format, headers);
        // A limit without a policy is assumed to count `unit`.
        let policies = &limits.policies;
        limits.limits.retain(|limit| policies.iter().all(|policy| policy.name != limit.name || policy.unit == *unit));
        limits.policies.retain(|policy| policy.unit == *unit);
        limits
    };
    formats.iter().map(read).find(|limits| !limits.limits.is_empty() || !limits.policies.is_empty())
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

/// Reads `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a `u64` can have: longer than any client waits.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until: SystemTime = dates::parse(value)?;
    Some(until.duration_since(dates::now(headers)).unwrap_or_default())
}
