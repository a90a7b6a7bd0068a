//! `X-RateLimit-Limit`, `-Remaining`, `-Reset`: the fields in use before anything was specified.

use super::limits::RateLimits;
use http::{HeaderMap, HeaderName};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

pub(super) fn write(rate_limits: &RateLimits, headers: &mut HeaderMap) {
    let Some(tightest) = rate_limits.tightest() else { return };
    let other = headers.get(REMAINING).and_then(|other| other.to_str().ok()?.trim().parse::<u64>().ok());
    if other.is_some_and(|other| other <= tightest.available) {
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
