//! `X-RateLimit-Limit`, `-Remaining`, `-Reset`: the fields in use before anything was specified.

use super::items::{QuotaPolicy, ServiceLimit};
use super::limits::RateLimits;
use http::{HeaderMap, HeaderName};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// A number from here on is a Unix time in seconds: as seconds from now it would be 31 years.
const UNIX: u64 = 1_000_000_000;
/// A number from here on is a Unix time in milliseconds: as seconds it would be the year 33,658.
const UNIX_MILLIS: u64 = 1_000_000_000_000;

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

/// Reads the fields. They carry no quota name, so policy and limit get the name `x-ratelimit`.
pub(super) fn read(headers: &HeaderMap) -> RateLimits {
    let name: Arc<str> = Arc::from("x-ratelimit");
    let limit = number(headers, &REMAINING).map(|available| ServiceLimit {
        name: Arc::clone(&name),
        available,
        window: number(headers, &RESET).map(|reset| from_now(reset, super::dates::now(headers))),
        partition_key: None,
    });
    let policy = number(headers, &LIMIT).map(|quota| QuotaPolicy {
        name,
        quota,
        unit: Default::default(),
        window: None,
        partition_key: None,
        burst: None,
    });
    RateLimits { policies: policy.into_iter().collect(), limits: limit.into_iter().collect() }
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let digits = headers.get(name)?.to_str().ok()?.trim();
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn from_now(reset: u64, now: SystemTime) -> u64 {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    match reset {
        ..UNIX => reset,
        UNIX..UNIX_MILLIS => reset.saturating_sub(now.as_secs()),
        _ => (u128::from(reset).saturating_sub(now.as_millis())).div_ceil(1_000) as u64,
    }
}
