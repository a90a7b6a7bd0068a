//! The limits of resources as quotas. OpenAI and Anthropic refill each bucket steadily, and `reset` is the time at which
//! it is full again. So a client that knows the window need not wait for the reset. Most other servers begin a new window
//! at the reset.

use super::items::{QuotaPolicy, ServiceLimit, whole_seconds};
use super::limits::RateLimits;
use super::resources::{Family, ResourceLimit, ResourceLimits};
use super::unit::Unit;
use http::HeaderMap;
use std::time::Duration;

const MINUTE: u64 = 60;
/// OpenAI limits requests and tokens per minute and per day, and others per hour too.
const WINDOWS: [u64; 3] = [MINUTE, 3_600, 86_400];
/// The window that follows from `reset` may differ from the true one by this factor: `reset` is rounded.
const TOLERANCE: f64 = 1.25;

/// Reads the fields of these families.
pub(super) fn read(headers: &HeaderMap, families: &[Family]) -> RateLimits {
    let mut found = RateLimits::default();
    for family in families {
        let read = ResourceLimits::read_family(headers, *family);
        found.policies.extend(read.limits.iter().filter_map(|limit| policy(limit, *family)));
        found.limits.extend(read.limits.iter().filter_map(service_limit));
    }
    found
}

fn service_limit(limit: &ResourceLimit) -> Option<ServiceLimit> {
    let (name, window) = (limit.resource.clone(), limit.reset.map(whole_seconds));
    Some(ServiceLimit { name, available: limit.remaining?, window, partition_key: None })
}

/// Returns the unit that a resource counts. Fields without a resource in their names count requests.
pub(super) fn unit(limit: &ResourceLimit, family: Family) -> Unit {
    if family.is_plain() { Unit::Requests } else { Unit::from(&*limit.resource) }
}

/// Returns the quota of a resource; `None` if its limit was not sent.
pub(super) fn policy(limit: &ResourceLimit, family: Family) -> Option<QuotaPolicy> {
    let window = match family {
        // Anthropic's limits are per minute, and its resets are rounded to a second, from which nothing follows.
        Family::Anthropic => Some(MINUTE),
        Family::OpenAi => window(limit),
        _ => limit.window.map(whole_seconds),
    };
    let (name, unit) = (limit.resource.clone(), unit(limit, family));
    Some(QuotaPolicy { name, quota: limit.limit?, unit, window, partition_key: None, burst: None })
}

/// Returns the window in seconds of a bucket that is refilled steadily: in `reset`, the units that were used come back.
/// `None` if no usual window fits.
fn window(limit: &ResourceLimit) -> Option<u64> {
    let (most, reset) = (limit.limit?, limit.reset?);
    let used = most - limit.remaining?;
    // Without use this is not a number, which no window fits.
    let window = reset.as_secs_f64() * most as f64 / used as f64;
    WINDOWS.into_iter().find(|usual| {
        let ratio = window / *usual as f64;
        (1.0 / TOLERANCE..=TOLERANCE).contains(&ratio)
    })
}

/// Returns the quota at whose rate the units that are left last until the reset, for a server that begins a new window
/// then. `None` if this is unknown, or if nothing is left.
pub(super) fn spread(limit: &ResourceLimit, family: Family) -> Option<QuotaPolicy> {
    let policy = policy(limit, family).filter(|policy| policy.window.is_none() && family.is_plain())?;
    let (left, reset) = (limit.remaining.filter(|left| *left > 0)?, limit.reset.filter(|reset| !reset.is_zero())?);
    // The conversion saturates.
    let window = (reset.as_secs_f64() * policy.quota as f64 / left as f64).ceil() as u64;
    Some(QuotaPolicy { window: Some(window), ..policy })
}

/// Returns the time until one more unit is available, if the window is known.
pub(super) fn next_unit(policy: &QuotaPolicy) -> Option<Duration> {
    Some(Duration::from_secs_f64(policy.window? as f64 / policy.quota as f64))
}
