//! The learned rate as series.

use super::names;
use super::series::Series;
use super::tally::Tally;
use crate::adaptive::{Adaptive, ChangeReason, Target};
use crate::handle::Limiter;
use metrics::SharedString;
use std::fmt;

/// Publishes what an [`Adaptive`] has learned. See the [module](super).
///
/// Its limiter can have a [`Meter`](super::Meter) too, with the same key.
pub struct AdaptiveMeter<T: Target = Limiter> {
    adaptive: Adaptive<T>,
    tally: Tally,
}

impl<T: Target> AdaptiveMeter<T> {
    /// Creates a meter of `adaptive`. `key` is the value of the label `key` of all its series.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Adaptive, metrics::AdaptiveMeter};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = Adaptive::between("1/s", "5000/s").build()?;
    /// let meter = AdaptiveMeter::new("api", &api);
    /// meter.publish(); // when the metrics are scraped
    /// # Ok(()) }
    /// ```
    pub fn new(key: impl Into<SharedString>, adaptive: &Adaptive<T>) -> Self {
        Self { adaptive: adaptive.clone(), tally: Tally::new(key.into(), false) }
    }

    /// Sets all series to their current values. Call it before each scrape.
    ///
    /// # Panics
    ///
    /// Panics if the recorder panics.
    pub fn publish(&self) {
        let series = Series::of(&self.tally.name);
        let seen = self.adaptive.snapshot();
        series.gauge(names::ADAPTIVE_RATE, self.adaptive.tokens_per_second());
        series.counter(names::ADAPTIVE_ANSWERS, Some(("result", "accepted")), seen.accepted);
        series.counter(names::ADAPTIVE_ANSWERS, Some(("result", "refused")), seen.refused);
        for (reason, changes) in seen.changes() {
            series.counter(names::ADAPTIVE_CHANGES, Some(("reason", ChangeReason::name(reason))), changes);
        }
    }
}

impl<T: Target> fmt::Debug for AdaptiveMeter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveMeter").field("adaptive", &self.adaptive).finish_non_exhaustive()
    }
}
