//! The items of the fields that describe one quota: its policy, and the units that are left.

use super::unit::Unit;
use std::sync::Arc;
use std::time::Duration;
use tollgate::Quota;

/// The largest number that a structured field can carry.
pub(super) const MOST: u64 = 999_999_999_999_999;
/// A response with more quotas or resources than this is not plausible. The rest is ignored: items are compared
/// pairwise, so the work grows with the square of their number.
pub(super) const MOST_ITEMS: usize = 32;

const SECOND: u128 = 1_000_000_000;
const HOUR: u128 = 3_600 * SECOND;

/// One quota as an item of `RateLimit-Policy`: a number of units in a number of seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaPolicy {
    /// The name of the quota.
    pub name: Arc<str>,
    /// `q`: units in each window.
    pub quota: u64,
    /// `qu`: the unit that is counted.
    pub unit: Unit,
    /// `w`: the window in seconds. `None` if the quota is not refilled by time.
    pub window: Option<u64>,
    /// `pk`: the partition key, which identifies the owner of the quota.
    pub partition_key: Option<Arc<[u8]>>,
    /// `tollgate-burst`: the burst in units, if it differs from `q`. Clients that do not know this parameter ignore
    /// it.
    pub burst: Option<u64>,
}

impl QuotaPolicy {
    /// Creates the policy of `quota` under this name.
    ///
    /// The window is the period and the quota is the amount, as the operator configured them; their ratio is the rate.
    /// A period that is not a whole number of seconds is written as several periods, or is rounded up together with
    /// its amount.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    /// use tollgate_tower::http::QuotaPolicy;
    /// let policy = QuotaPolicy::of("api", &Quota::new(3, Duration::from_millis(1_500)).burst(20));
    /// assert_eq!((policy.quota, policy.window, policy.burst), (6, Some(3), Some(20)));
    /// ```
    pub fn of(name: impl Into<Arc<str>>, quota: &Quota) -> Self {
        let (amount, window) = match whole_window(quota) {
            Some((amount, window)) => (amount, Some(window)),
            None => (quota.capacity(), None),
        };
        // Compare with the amount that is written: of 1 per 700 ms, written as 10 in 7 s, only 1 can be taken at once.
        let burst = Some(quota.capacity()).filter(|burst| *burst != amount);
        let unit = Unit::Requests;
        Self { name: name.into(), quota: amount.min(MOST), unit, window, partition_key: None, burst }
    }
}

/// Returns the amount and the window in whole seconds; `None` for a manual quota.
fn whole_window(quota: &Quota) -> Option<(u64, u64)> {
    let nanos = u64::try_from(quota.period().as_nanos()).unwrap_or(u64::MAX);
    if quota.is_manual() || nanos == 0 {
        return None;
    }
    if nanos % SECOND as u64 == 0 {
        // The same result without divisions of 128 bits.
        return Some((quota.amount().min(MOST), nanos / SECOND as u64));
    }
    let times = SECOND / u128::from(gcd(nanos, SECOND as u64));
    let exact = u128::from(nanos) * times;
    // Round long windows up: an amount of 1,000,003 tokens in a year of milliseconds would be unreadable.
    let span = if exact <= HOUR { exact } else { u128::from(nanos) };
    let window = span.div_ceil(SECOND);
    let amount = u128::from(quota.amount()).checked_mul(window * SECOND).map(|product| product / u128::from(nanos));
    Some((amount.map_or(MOST, |amount| amount.min(MOST.into()) as u64), window as u64))
}

/// The units that are left of one quota, as an item of `RateLimit`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceLimit {
    /// The name of the quota.
    pub name: Arc<str>,
    /// `r`: whole units that are available.
    pub available: u64,
    /// `t`: the seconds, rounded up, until one more unit is available; no more than `available` can be used before.
    /// `None` if the time is unknown.
    pub window: Option<u64>,
    /// `pk`: the partition key, which identifies the owner of the quota.
    pub partition_key: Option<Arc<[u8]>>,
}

impl ServiceLimit {
    /// Creates the limit of the quota of this name: `available` units now, and one more after `more_in`.
    pub fn of(name: impl Into<Arc<str>>, available: u64, more_in: Option<Duration>) -> Self {
        // A wait of zero means that something other than the schedule delays the next unit.
        let window = more_in.filter(|wait| !wait.is_zero()).map(|wait| whole_seconds(wait).min(MOST));
        Self { name: name.into(), available: available.min(MOST), window, partition_key: None }
    }
}

/// Converts to seconds, rounded up.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// The greatest common divisor, by Euclid's algorithm.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Converts, limited to the largest number that a field can carry.
pub(super) fn integer(number: u64) -> i64 {
    number.min(MOST) as i64
}
