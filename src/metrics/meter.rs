//! The meter of a limiter, plain or keyed.

use super::classes::publish_classes;
use super::names::{self, OTHERS};
use super::series::Series;
use super::tally::{QUOTAS, Tally};
use crate::handle::Limiter;
use crate::observe::Observers;
use metrics::SharedString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Counts what a limiter does, and publishes it on request. See the [module](super).
///
/// From the moment the meter is made, the limiter itself counts its refusals and records its waits, through any clone,
/// layer, stream or joint claim. It continues to do so when the meter is dropped. Clones are the same meter.
///
/// `L` is [`Limiter`], or a `KeyedLimiter` or `DistributedKeyedLimiter` (feature `keyed`), which is summed over all its
/// keys.
pub struct Meter<L: Metered = Limiter> {
    limiter: L,
    tally: Arc<Tally>,
    pub(super) names: L::Names,
}

impl<L: Metered> Meter<L> {
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
    pub fn new(key: impl Into<SharedString>, limiter: &L) -> Result<Self, AlreadyMetered> {
        let tally = Arc::new(Tally::new(key.into(), L::IS_KEYED));
        limiter.observers().admit(Box::new(Arc::clone(&tally))).map_err(|key| AlreadyMetered { key })?;
        Ok(Self { limiter: limiter.clone(), tally, names: L::Names::default() })
    }

    /// Sets all series to their current values. Call it before each scrape.
    ///
    /// It takes a snapshot of the limiter, and holds no lock of the limiter while it calls the recorder.
    ///
    /// # Panics
    ///
    /// Panics if the recorder panics, or a function given to `naming`.
    pub fn publish(&self) {
        let series = Series::of(&self.tally.name);
        // All reasons, also those without a refusal so far: a rate is then visible from the first refusal on.
        for (reason, calls) in self.tally.refused() {
            series.counter(names::REFUSALS, Some(("reason", reason.name())), calls);
        }
        series.counter(names::ACQUIRE, Some(("result", "deny")), self.tally.refused_tokens());
        let totals = self.limiter.publish(&series, &self.tally, &self.names);
        series.counter(names::ACQUIRE, Some(("result", "allow")), totals.granted);
        series.counter(names::REFUNDED, None, totals.refunded);
        series.gauge(names::WAITING, totals.waiting_tasks as f64);
        series.gauge(names::WAITING_TOKENS, totals.waiting_tokens as f64);
        if let Some(in_flight) = totals.in_flight {
            series.gauge(names::IN_FLIGHT, in_flight as f64);
        }
        series.seconds(names::LATENESS, totals.lateness);
        let would_refuse: Vec<_> = self.tally.would_refuse().collect();
        if totals.dry_run || would_refuse.iter().any(|(_, calls)| *calls > 0) {
            for (reason, calls) in would_refuse {
                series.counter(names::WOULD_REFUSE, Some(("reason", reason.name())), calls);
            }
        }
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &L {
        &self.limiter
    }

    /// Returns the value of the label `key` of all its series.
    pub fn key(&self) -> &str {
        &self.tally.name
    }
}

impl<L: Metered> Clone for Meter<L> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), tally: Arc::clone(&self.tally), names: self.names.clone() }
    }
}

impl<L: Metered> fmt::Debug for Meter<L> {
    /// Omits the keys of a keyed limiter: they may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("key", &self.tally.name).finish_non_exhaustive()
    }
}

/// A limiter that can have a meter. It cannot be named outside of this crate, and so not implemented.
pub trait Metered: Clone {
    /// How its keys are named in series.
    type Names: Clone + Default;

    /// Whether it is a limiter per key.
    const IS_KEYED: bool;

    #[allow(private_interfaces, reason = "no code outside of this crate can call it")]
    fn observers(&self) -> &Observers;

    /// Sets the series that only limiters of this kind have, and returns the values of those that all have.
    #[allow(private_interfaces, reason = "no code outside of this crate can call it")]
    fn publish(&self, series: &Series<'_>, tally: &Tally, names: &Self::Names) -> Totals;
}

/// What limiters of all kinds publish.
#[derive(Debug)]
pub struct Totals {
    pub(super) granted: u64,
    pub(super) refunded: u64,
    pub(super) waiting_tasks: u64,
    pub(super) waiting_tokens: u64,
    pub(super) in_flight: Option<u64>,
    pub(super) lateness: Duration,
    /// Whether a quota is in dry run.
    pub(super) dry_run: bool,
}

impl Metered for Limiter {
    type Names = ();

    const IS_KEYED: bool = false;

    #[allow(private_interfaces, reason = "no code outside of this crate can call it")]
    fn observers(&self) -> &Observers {
        self.core().observers()
    }

    #[allow(private_interfaces, reason = "no code outside of this crate can call it")]
    fn publish(&self, series: &Series<'_>, tally: &Tally, _: &()) -> Totals {
        let seen = self.snapshot();
        // A limiter with only an in-flight cap has no bucket, which is not the same as an empty one.
        if let Some(least) = seen.quotas.iter().map(|quota| quota.level).min() {
            series.gauge(names::TOKENS, least.max(0) as f64);
            series.gauge(names::DEBT, least.min(0).unsigned_abs() as f64);
        }
        if seen.quotas.len() > 1 {
            for (index, quota) in seen.quotas.iter().enumerate() {
                let name = quota.name.clone().map_or_else(|| index.to_string().into(), SharedString::from);
                if index < QUOTAS {
                    series.counter_of(names::QUOTA_REFUSALS, ("quota", name.clone()), tally.refused_by(index));
                }
                series.gauge_of(names::QUOTA_TOKENS, Some(("quota", name)), quota.level as f64);
            }
            if seen.quotas.len() > QUOTAS {
                let others = ("quota", SharedString::const_str(OTHERS));
                series.counter_of(names::QUOTA_REFUSALS, others, tally.refused_by(QUOTAS));
            }
        }
        publish_classes(series, tally, &self.core().class_totals());
        if seen.dry_run.is_some() {
            for (index, quota) in seen.quotas.iter().enumerate().take(QUOTAS) {
                let name = quota.name.clone().map_or_else(|| index.to_string().into(), SharedString::from);
                series.counter_of(names::QUOTA_WOULD_REFUSE, ("quota", name), tally.would_be_refused_by(index));
            }
            if seen.quotas.len() > QUOTAS {
                let others = ("quota", SharedString::const_str(OTHERS));
                series.counter_of(names::QUOTA_WOULD_REFUSE, others, tally.would_be_refused_by(QUOTAS));
            }
        }
        #[cfg(feature = "distributed")]
        if let Some(store) = self.core().store() {
            super::store::publish_store(series, &store.tally().snapshot(), &store.circuits());
        }
        series.seconds(names::PAUSED, seen.paused_for.unwrap_or_default());
        Totals {
            granted: seen.granted,
            refunded: seen.refunded,
            waiting_tasks: seen.waiting_tasks,
            waiting_tokens: seen.waiting_tokens,
            in_flight: seen.in_flight,
            lateness: seen.lateness,
            dry_run: seen.dry_run.is_some(),
        }
    }
}

/// The error of a second meter for one limiter: the existing meter already counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlreadyMetered {
    /// The key of the existing meter.
    pub key: String,
}

impl std::error::Error for AlreadyMetered {}

impl fmt::Display for AlreadyMetered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this limiter is metered as `{}` already: use a clone of that meter", self.key)
    }
}
