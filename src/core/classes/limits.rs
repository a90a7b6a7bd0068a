//! What the limiter's quotas mean for the scheduler.

use super::floor::{FloorTime, Rate};
use crate::Quota;
use crate::quota::MAX_BURST;

/// What the limiter's quotas mean for the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The smallest burst: no installment is larger. Without a quota, the largest burst that there is.
    pub(super) burst: u64,
    /// The slowest quota, if time refills any of them.
    pub(super) slowest: Option<Quota>,
    /// Its rate.
    pub(super) rate: Option<Rate>,
    /// The time in which a quota mints two bursts; that of the quota that takes longest.
    pub(super) arrears: FloorTime,
}

impl Limits {
    pub(crate) fn of(quotas: impl Iterator<Item = Quota> + Clone) -> Self {
        let rates = quotas.clone().filter_map(|quota| Some((Rate::of(quota)?, quota)));
        let slowest = rates.clone().reduce(|a, b| if b.0.is_below(a.0) { b } else { a });
        let times = rates.map(|(rate, quota)| rate.time_of(quota.capacity().saturating_mul(2)));
        Self {
            burst: quotas.map(|quota| quota.capacity()).min().unwrap_or(MAX_BURST),
            slowest: slowest.map(|(_, quota)| quota),
            rate: slowest.map(|(rate, _)| rate),
            arrears: times.max().unwrap_or(0),
        }
    }
}
