//! What the limiter's quotas mean for the scheduler.

use super::floor::{FloorTime, Rate};
use crate::Quota;
use crate::quota::MAX_BURST;

/// What the limiter's quotas mean for the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The smallest burst: no installment is larger. Without a quota, the largest burst that there is.
    pub(super) burst: u64,
    /// The rate of the slowest quota, if time refills any of them.
    pub(super) rate: Option<Rate>,
    /// The time in which a quota mints two bursts; that of the quota that takes longest.
    pub(super) arrears: FloorTime,
}

impl Limits {
    pub(crate) fn of(quotas: impl Iterator<Item = Quota> + Clone) -> Self {
        let rates = quotas.clone().filter_map(|quota| Some((Rate::of(quota)?, quota.capacity())));
        let slowest = rates.clone().map(|(rate, _)| rate).reduce(|a, b| if b.is_below(a) { b } else { a });
        let times = rates.map(|(rate, burst)| rate.time_of(burst.saturating_mul(2)));
        Self {
            burst: quotas.map(|quota| quota.capacity()).min().unwrap_or(MAX_BURST),
            rate: slowest,
            arrears: times.max().unwrap_or(0),
        }
    }
}
