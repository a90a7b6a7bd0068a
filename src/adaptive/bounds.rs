//! Rates as numbers and as quotas.

use super::error::AdaptiveError;
use crate::Quota;
use crate::quota::MAX_BURST;
use std::time::Duration;

/// A quota for a rate has at least so many tokens per period, so that every step of the rate changes it.
const RESOLUTION: f64 = 1_048_576.0;
/// The longest period of such a quota, in seconds: some 30 years.
const LONGEST: f64 = 1e9;
/// The burst of a rate, if none is set: the tokens of so many seconds.
const BURST: f64 = 0.01;

/// The slowest and the fastest rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) slowest: Quota,
    pub(super) fastest: Quota,
    /// The burst of every rate; `None`: [`BURST`].
    pub(super) burst: Option<u64>,
}

impl Bounds {
    pub(super) fn new(slowest: Quota, fastest: Quota) -> Result<Self, AdaptiveError> {
        checked("slowest", slowest)?;
        checked("fastest", fastest)?;
        if is_slower(fastest, slowest) {
            return Err(AdaptiveError::Crossed { slowest: Box::new(slowest), fastest: Box::new(fastest) });
        }
        Ok(Self { slowest, fastest, burst: fastest.explicit_burst() })
    }

    /// The rate that a new limiter starts with.
    pub(super) fn checked_start(&self, start: Quota) -> Result<f64, AdaptiveError> {
        checked("starting", start)?;
        if is_slower(start, self.slowest) || is_slower(self.fastest, start) {
            return Err(AdaptiveError::StartOutside {
                start: Box::new(start),
                slowest: Box::new(self.slowest),
                fastest: Box::new(self.fastest),
            });
        }
        Ok(rate(start))
    }

    /// The quota of `rate` tokens per second, never outside of the bounds.
    pub(super) fn quota(&self, rate: f64) -> Quota {
        let period = (RESOLUTION / rate).clamp(1.0, LONGEST).ceil();
        // The conversion saturates.
        let quota = Quota::new((rate * period) as u64, Duration::from_secs(period as u64));
        let quota = if quota.amount() == 0 || !is_slower(self.slowest, quota) {
            self.slowest
        } else if !is_slower(quota, self.fastest) {
            self.fastest
        } else {
            quota
        };
        let burst = self.burst.unwrap_or(((rate * BURST) as u64).clamp(1, MAX_BURST));
        Quota::new(quota.amount(), quota.period()).burst(burst)
    }
}

/// Tokens per second.
pub(super) fn rate(quota: Quota) -> f64 {
    quota.amount() as f64 / quota.period().as_secs_f64()
}

fn checked(which: &'static str, quota: Quota) -> Result<(), AdaptiveError> {
    if quota.is_manual() || quota.is_stepped() || quota.is_sliding() {
        return Err(AdaptiveError::NotContinuous { which, quota });
    }
    quota.check().map_err(|error| AdaptiveError::BadQuota { which, error })
}

/// True if `one` has fewer tokens per second than `other`.
fn is_slower(one: Quota, other: Quota) -> bool {
    let product = |amount: u64, period: u64| u128::from(amount) * u128::from(period);
    product(one.amount(), other.period_nanos()) < product(other.amount(), one.period_nanos())
}
