//! Settings of an adaptive rate.

use super::bounds::{Bounds, rate};
use super::control::{Control, Law};
use super::error::AdaptiveError;
use super::phase::Phase;
use super::target::Driven;
use super::{Adaptive, Target};
use crate::set_twice::SetTwice;
use crate::{Limiter, Quota};
use std::time::Duration;

const LONGEST_SETTLE: Duration = Duration::from_secs(86_400);
/// The draft of the RateLimit header fields calls longer windows implausible.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Builds an [`Adaptive`]; returned by [`Adaptive::between`].
///
/// The defaults suit limits from one request per second to many thousands, and round trips up to some seconds.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` or `drive` is called"]
pub struct AdaptiveBuilder {
    bounds: Result<Bounds, AdaptiveError>,
    start: Option<Result<Quota, AdaptiveError>>,
    increase: Option<f64>,
    decrease: Option<f64>,
    settle: Option<Duration>,
    burst: Option<u64>,
    longest_pause: Option<Duration>,
    seed: Option<u64>,
    set_twice: SetTwice,
}

impl AdaptiveBuilder {
    pub(super) fn new(slowest: Result<Quota, AdaptiveError>, fastest: Result<Quota, AdaptiveError>) -> Self {
        let bounds = slowest.and_then(|slowest| Bounds::new(slowest, fastest?));
        Self {
            bounds,
            start: None,
            increase: None,
            decrease: None,
            settle: None,
            burst: None,
            longest_pause: None,
            seed: None,
            set_twice: SetTwice::default(),
        }
    }

    /// Starts with this rate. The default is the slowest rate.
    ///
    /// The first search is exponential: it reaches any rate within seconds.
    pub fn start<Q: TryInto<Quota, Error: Into<AdaptiveError>>>(mut self, rate: Q) -> Self {
        self.set_twice.set("start", &mut self.start, rate.try_into().map_err(Into::into));
        self
    }

    /// Sets the additive increase: by how many tokens per second the rate grows in each second, at the beginning of the
    /// growth. The growth then doubles, each time after 0.45 s plus half the interval between two requests, until a
    /// request is refused. The value must be positive and finite.
    ///
    /// The default is 0.2 requests per second in each second. Above 100 requests per second it is larger, in proportion to
    /// the square root of the rate. A larger value finds a raised limit sooner, and more requests are refused.
    pub fn increase_per_second(mut self, tokens: f64) -> Self {
        self.set_twice.set("increase_per_second", &mut self.increase, tokens);
        self
    }

    /// Sets the multiplicative decrease: the smallest share of the rate that one refusal leaves, from 0.01 to 0.98. The
    /// default is 0.5.
    ///
    /// Most decreases are smaller: the rate falls to what the server accepted lately.
    pub fn decrease(mut self, share: f64) -> Self {
        self.set_twice.set("decrease", &mut self.decrease, share);
        self
    }

    /// Sets the settle time: the longest time for which a rate that was found is kept before a higher one is tried. It may
    /// be one day at most. The default is 8.5 s. A rate is kept for 140 requests if they take less time than this, but for
    /// no less than 0.6 s.
    ///
    /// With a longer time fewer requests are refused, and a raised limit is found later. At 10 requests per second
    /// each attempt costs about one refusal.
    pub fn settle(mut self, time: Duration) -> Self {
        self.set_twice.set("settle", &mut self.settle, time);
        self
    }

    /// Sets the burst of every rate, in tokens. The default is the burst of the fastest rate, if it is written out
    /// (`"5000/s, burst 20"`), and otherwise the tokens of 10 ms, at least 1. The bursts of the slowest and of the starting
    /// rate are ignored.
    pub fn burst(mut self, tokens: u64) -> Self {
        self.set_twice.set("burst", &mut self.burst, tokens);
        self
    }

    /// Pauses for no longer than this, whatever the server says. The default is ten minutes.
    pub fn longest_pause(mut self, pause: Duration) -> Self {
        self.set_twice.set("longest_pause", &mut self.longest_pause, pause);
        self
    }

    /// Sets the seed of the random pauses that get clients out of step, for tests and simulations that are to be
    /// repeated. By default each `Adaptive` has a different seed, also in other processes.
    ///
    /// Clients with the same seed stay in step: give each of several clients in a simulation its own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.set_twice.set("seed", &mut self.seed, seed);
        self
    }

    /// Creates a limiter with the starting rate, and drives it.
    ///
    /// # Errors
    ///
    /// Returns an [`AdaptiveError`] that names the wrong setting.
    pub fn build(self) -> Result<Adaptive, AdaptiveError> {
        let (control, bounds) = self.checked()?;
        let limiter = Limiter::new(bounds.quota(control.rate()))?;
        Ok(self.driving(limiter, control, bounds))
    }

    /// Drives the first quota of an existing limiter, which takes the starting rate at once.
    ///
    /// Other quotas of the limiter stay as they are: put the adaptive one first. Drive a limiter with one `Adaptive`, and
    /// clone that: two would undo each other's rates.
    ///
    /// # Errors
    ///
    /// Returns an [`AdaptiveError`] that names the wrong setting, or says why the limiter cannot be driven.
    pub fn drive(self, limiter: &Limiter) -> Result<Adaptive, AdaptiveError> {
        self.drive_target(limiter.clone())
    }

    /// Drives the first quota of one key; its other quotas stay. They are all [its
    /// own](crate::KeyedLimiter::set_one_quota_for) from now on, and it keeps them when the `Adaptive` is dropped. Feature
    /// `keyed`.
    ///
    /// # Errors
    ///
    /// Returns an [`AdaptiveError`] that names the wrong setting, or says why the key cannot be driven.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Adaptive, KeyedLimiter, Quota};
    /// let hosts: KeyedLimiter<&str> = KeyedLimiter::new(Quota::per_second(10))?;
    /// let api = Adaptive::between("1/s", "500/s").start("20/s").drive_key(&hosts, "api.example.com")?;
    /// api.consume(1).await?.throttled(None);
    /// assert!(api.tokens_per_second() < 20.0);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "keyed")]
    pub fn drive_key<K, S>(
        self,
        limiter: &crate::KeyedLimiter<K, S>,
        key: K,
    ) -> Result<Adaptive<super::KeyOf<K, S>>, AdaptiveError>
    where
        K: std::hash::Hash + Eq + Clone,
        S: std::hash::BuildHasher,
    {
        self.drive_target(super::KeyOf::new(limiter.clone(), key))
    }

    fn drive_target<T: Target>(self, target: T) -> Result<Adaptive<T>, AdaptiveError> {
        let (control, bounds) = self.checked()?;
        target.driven().set_rate(bounds.quota(control.rate()))?;
        Ok(self.driving(target, control, bounds))
    }

    fn driving<T: Target>(&self, target: T, control: Control, bounds: Bounds) -> Adaptive<T> {
        Adaptive::new(target, control, bounds, Phase::new(self.seed), self.longest_pause.unwrap_or(LONGEST_PAUSE))
    }

    /// Checks all settings.
    fn checked(&self) -> Result<(Control, Bounds), AdaptiveError> {
        self.set_twice.check()?;
        let mut bounds = self.bounds.clone()?;
        bounds.burst = self.burst.or(bounds.burst);
        let start = match self.start.clone() {
            Some(start) => bounds.checked_start(start?)?,
            None => rate(bounds.slowest),
        };
        let checked = bounds.quota(start).check();
        checked.map_err(|error| AdaptiveError::BadQuota { which: "starting", error })?;
        let mut law = Law::new(rate(bounds.slowest), rate(bounds.fastest));
        if let Some(value) = self.increase {
            if !(value.is_finite() && value > 0.0) {
                return Err(AdaptiveError::BadIncrease { value });
            }
            law.increase = Some(value);
        }
        if let Some(value) = self.decrease {
            if !(0.01..=0.98).contains(&value) {
                return Err(AdaptiveError::BadDecrease { value });
            }
            law.decrease = value;
        }
        if let Some(value) = self.settle {
            if value > LONGEST_SETTLE {
                return Err(AdaptiveError::BadSettle { value });
            }
            law.settle = value.as_secs_f64();
        }
        Ok((Control::new(law, start), bounds))
    }
}
