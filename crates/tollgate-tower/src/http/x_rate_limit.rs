//! `X-RateLimit-Limit`, `-Remaining`, `-Reset`: the fields in use before anything was specified.

use super::limits::RateLimits;
use http::{HeaderMap, HeaderName};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

pub(super) fn write(rate_limits: &RateLimits, headers: &mut HeaderMap) {
    let Some(tightest) = rate_limits.tightest() else { return };
    let limit = rate_limits.policy(&tightest.name).map(|policy| policy.quota);
    // Readers take more than the limit for a mistake, and a burst can be larger.
    let available = limit.map_or(tightest.available, |limit| tightest.available.min(limit));
    let other = headers.get(REMAINING).and_then(|other| other.to_str().ok()?.trim().parse::<u64>().ok());
    if other.is_some_and(|other| other <= available) {
        return;
    }
    headers.remove(LIMIT);
    headers.remove(RESET);
    headers.insert(REMAINING, available.into());
    if let Some(limit) = limit {
        headers.insert(LIMIT, limit.into());
    }
    if let Some(window) = tightest.window {
        headers.insert(RESET, window.into());
    }
}
