//! What the fields tell of one quota: its policy, and what is left of it.

use super::format::Unit;
use crate::Quota;
use crate::core::schedule::gcd;
use std::sync::Arc;
use std::time::Duration;

/// The largest number that a structured field can carry.
pub(super) const MOST: u64 = 999_999_999_999_999;

const SECOND: u128 = 1_000_000_000;
const HOUR: u128 = 3_600 * SECOND;

/// One quota as an item of `RateLimit-Policy` tells it: so many units in so many seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaPolicy {
    /// What the quota is called.
    pub name: Arc<str>,
    /// `q`: units in each window.
    pub quota: u64,
    /// `qu`: what is counted.
    pub unit: Unit,
    /// `w`: the window, in seconds. `None` if no clock fills it.
    pub window: Option<u64>,
    /// `pk`: whose quota it is.
    pub partition_key: Option<Arc<[u8]>>,
    /// `tollgate-burst`, where the burst is not `q`: units at once. A comment to those who do not know it.
    pub burst: Option<u64>,
}

impl QuotaPolicy {
    /// A quota of this name.
    ///
    /// The window is the period, the quota the amount: what the operator wrote, and their ratio is the rate. A period
    /// that is no whole number of seconds is told as several, or rounded up with the amount that belongs to it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    /// use tollgate::http::QuotaPolicy;
    /// let policy = QuotaPolicy::of("api", &Quota::new(3, Duration::from_millis(1_500)).burst(20));
    /// assert_eq!((policy.quota, policy.window, policy.burst), (6, Some(3), Some(20)));
    /// ```
    pub fn of(name: impl Into<Arc<str>>, quota: &Quota) -> Self {
        let (amount, window) = match whole_window(quota) {
            Some((amount, window)) => (amount, Some(window)),
            None => (quota.capacity(), None),
        };
        // Compared with what is told: of 1 per 700 ms, told as 10 in 7 s, only 1 can be had at once.
        let burst = Some(quota.capacity()).filter(|burst| *burst != amount);
        let unit = Unit::Requests;
        Self { name: name.into(), quota: amount.min(MOST), unit, window, partition_key: None, burst }
    }
}

/// The amount and the window in whole seconds; `None` for a manual quota.
fn whole_window(quota: &Quota) -> Option<(u64, u64)> {
    let nanos = u64::try_from(quota.period().as_nanos()).unwrap_or(u64::MAX);
    if quota.is_manual() || nanos == 0 {
        return None;
    }
    let times = SECOND / u128::from(gcd(nanos, SECOND as u64));
    let exact = u128::from(nanos) * times;
    // Nobody wants to read of 1,000,003 tokens in a year of milliseconds.
    let span = if exact <= HOUR { exact } else { u128::from(nanos) };
    let window = span.div_ceil(SECOND);
    let amount = u128::from(quota.amount()).checked_mul(window * SECOND).map(|product| product / u128::from(nanos));
    Some((amount.map_or(MOST, |amount| amount.min(MOST.into()) as u64), window as u64))
}

/// What is left of one quota, as an item of `RateLimit` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceLimit {
    /// What the quota is called.
    pub name: Arc<str>,
    /// `r`: whole units that are there.
    pub available: u64,
    /// `t`: the seconds in which no more than these can be used: until one more is there, rounded up. `None` if no clock
    /// can tell.
    pub window: Option<u64>,
    /// `pk`: whose quota it is.
    pub partition_key: Option<Arc<[u8]>>,
}

impl ServiceLimit {
    /// `available` units of the quota of this name, and one more after `more_in`.
    pub fn of(name: impl Into<Arc<str>>, available: u64, more_in: Option<Duration>) -> Self {
        // None at all: something else than the schedule stands in the way.
        let window = more_in.filter(|wait| !wait.is_zero()).map(|wait| whole_seconds(wait).min(MOST));
        Self { name: name.into(), available: available.min(MOST), window, partition_key: None }
    }
}

/// Seconds, rounded up.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}
