//! `X-RateLimit-Limit`, `-Remaining`, `-Reset`: the fields in use before anything was specified.

use super::items::{QuotaPolicy, ServiceLimit, whole_seconds};
use super::limits::RateLimits;
use super::reset;
use super::resources::{Family, RESOURCE, ResourceLimits};
use http::{HeaderMap, HeaderName};
use std::sync::Arc;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

pub(super) fn write(rate_limits: &RateLimits, headers: &mut HeaderMap) {
    let Some(tightest) = rate_limits.tightest() else { return };
    if number(headers, &REMAINING).is_some_and(|other| other <= tightest.available) {
        return;
    }
    headers.remove(LIMIT);
    headers.remove(RESET);
    headers.insert(REMAINING, tightest.available.into());
    if let Some(policy) = rate_limits.policy(&tightest.name) {
        headers.insert(LIMIT, policy.quota.into());
    }
    if let Some(window) = tightest.window {
        headers.insert(RESET, window.into());
    }
}

/// Reads the fields, and counts the values that are implausible. The fields of most servers carry no name, so policy
/// and limit get the name `x-ratelimit`.
pub(super) fn read(headers: &HeaderMap) -> (RateLimits, u64) {
    let read = ResourceLimits::read_family(headers, Family::Plain);
    let Some(found) = read.limits.first() else { return (RateLimits::default(), read.ignored) };
    let name: Arc<str> = if headers.contains_key(RESOURCE) { found.resource.clone() } else { Arc::from("x-ratelimit") };
    let limit = found.remaining.map(|available| ServiceLimit {
        name: Arc::clone(&name),
        available,
        window: found.reset.map(whole_seconds),
        partition_key: None,
    });
    let policy = found.limit.map(|quota| QuotaPolicy {
        name,
        quota,
        unit: Default::default(),
        window: None,
        partition_key: None,
        burst: None,
    });
    (RateLimits { policies: policy.into_iter().collect(), limits: limit.into_iter().collect() }, read.ignored)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    reset::number(headers.get(name)?.to_str().ok()?.trim())
}
