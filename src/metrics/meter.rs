//! The meter of a limiter.

use super::names;
use super::series::Series;
use super::tally::Tally;
use crate::limiter::Limiter;
use crate::observe::Observers;
use crate::snapshot::Snapshot;
use metrics::SharedString;
use std::sync::Arc;

/// Counts what a [`Limiter`] does, and publishes it on request. See the [module](super).
///
/// From the moment the meter is made, the limiter itself counts its refusals and records its waits, through any clone,
/// layer, stream or joint claim. It continues to do so when the meter is dropped. Clones are the same meter.
#[derive(Clone, Debug)]
pub struct Meter {
    limiter: Limiter,
    tally: Arc<Tally>,
}

impl Meter {
    /// Creates a meter of `limiter`. `key` is the value of the label `key` of all its series. Each meter needs its own
    /// key.
    ///
    /// # Errors
    ///
    /// Returns [`AlreadyMetered`] if the limiter has a meter: use a clone of that meter.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Quota, metrics::Meter};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Quota::per_second(100))?;
    /// let meter = Meter::new("api", &limiter)?;
    /// assert!(Meter::new("other", &limiter).is_err());
    /// # meter.publish();
    /// # Ok(()) }
    /// ```
    pub fn new(key: impl Into<SharedString>, limiter: &Limiter) -> Result<Self, AlreadyMetered> {
        let tally = attach(key.into(), limiter.core().observers())?;
        Ok(Self { limiter: limiter.clone(), tally })
    }

    /// Sets all series to their current values. Call it before each scrape.
    ///
    /// It takes the limiter's lock once, for a [snapshot](Limiter::snapshot), and holds no lock while it calls the
    /// recorder.
    ///
    /// # Panics
    ///
    /// Panics if the recorder panics.
    pub fn publish(&self) {
        publish(&Series::of(&self.tally), &self.tally, &self.limiter.snapshot());
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Returns the value of the label `key` of all its series.
    pub fn key(&self) -> &str {
        &self.tally.name
    }
}

/// The error of a second meter for one limiter: the existing meter already counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this limiter is metered as `{key}` already: use a clone of that meter")]
#[non_exhaustive]
pub struct AlreadyMetered {
    /// The key of the existing meter.
    pub key: String,
}

/// Makes a limiter count under `key` from now on.
pub(super) fn attach(key: SharedString, observers: &Observers) -> Result<Arc<Tally>, AlreadyMetered> {
    let tally = Arc::new(Tally::new(key));
    observers.admit(Box::new(Arc::clone(&tally))).map_err(|key| AlreadyMetered { key })?;
    Ok(tally)
}

fn publish(series: &Series<'_>, tally: &Tally, seen: &Snapshot) {
    publish_refusals(series, tally);
    publish_grants(series, seen.granted, seen.refunded);
    let least = seen.quotas.iter().map(|quota| quota.level).min().unwrap_or(0);
    series.gauge(names::TOKENS, least.max(0) as f64);
    series.gauge(names::DEBT, least.min(0).unsigned_abs() as f64);
    if seen.quotas.len() > 1 {
        for (index, quota) in seen.quotas.iter().enumerate() {
            let name = quota.name.clone().map_or_else(|| index.to_string().into(), SharedString::from);
            series.gauge_of(names::QUOTA_TOKENS, Some(("quota", name)), quota.level as f64);
        }
    }
    series.gauge(names::WAITING, seen.waiting_tasks as f64);
    series.gauge(names::WAITING_TOKENS, seen.waiting_tokens as f64);
    if let Some(in_flight) = seen.in_flight {
        series.gauge(names::IN_FLIGHT, in_flight as f64);
    }
    series.seconds(names::PAUSED, seen.paused_for.unwrap_or_default());
    series.seconds(names::LATENESS, seen.lateness);
}

/// Publishes grants and refunds, in tokens.
pub(super) fn publish_grants(series: &Series<'_>, granted: u64, refunded: u64) {
    series.counter(names::ACQUIRE, Some(("result", "allow")), granted);
    series.counter(names::REFUNDED, None, refunded);
}

/// Publishes all reasons, also those without a refusal so far: a rate is then visible from the first refusal on.
pub(super) fn publish_refusals(series: &Series<'_>, tally: &Tally) {
    for (reason, calls) in tally.refused() {
        series.counter(names::REFUSALS, Some(("reason", reason.name())), calls);
    }
    series.counter(names::ACQUIRE, Some(("result", "deny")), tally.refused_tokens());
}
