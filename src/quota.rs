//! A quota: how many tokens may pass in which time. A plain value, checked when a limiter is built from it.

use crate::error::ConfigError;
use std::fmt;
use std::time::Duration;

/// The largest burst. With it, all positions of a limiter stay comparable.
pub(crate) const MAX_BURST: u64 = 1 << 61;

/// How many tokens may pass in which time, and how many of them at once.
///
/// `Quota::per_second(100).burst(20)` lets 100 tokens pass **per second** on average, and at most 20 at once. Without
/// [`burst`](Quota::burst), the burst is the amount of one period. Buckets start full unless
/// [`initial`](Quota::initial) says otherwise.
///
/// A quota is a plain value. It is checked when a limiter or bucket is built from it, which returns a [`ConfigError`]
/// that names what to change.
///
/// | refill | made by | tokens arrive |
/// |---|---|---|
/// | continuous | [`new`](Quota::new), [`per_second`](Quota::per_second), ... | one by one, evenly |
/// | stepped | [`stepped`](Quota::stepped) | all at each end of a period |
/// | manual | [`manual`](Quota::manual) | when `replenish(n)` is called |
///
/// Fractions of a token are carried exactly, at any rate from one token in a century to many in each nanosecond.
///
/// A quota can be parsed from text and prints as the same text.
///
/// # Examples
///
/// ```
/// use tollgate::Quota;
/// # fn main() -> Result<(), tollgate::ParseQuotaError> {
/// let quota: Quota = "100/s, burst 20".parse()?;
/// assert_eq!(quota, Quota::per_second(100).burst(20));
/// assert_eq!(quota.to_string(), "100/s, burst 20");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    amount: u64,
    period: Duration,
    burst: Option<u64>,
    initial: Option<u64>,
    refill: Refill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refill {
    Continuous,
    Stepped,
    Manual,
}

impl Quota {
    /// Creates a quota of `amount` tokens in each `period`, arriving evenly.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    /// assert_eq!(Quota::new(100, Duration::from_secs(1)), Quota::per_second(100));
    /// ```
    pub const fn new(amount: u64, period: Duration) -> Self {
        Self { amount, period, burst: None, initial: None, refill: Refill::Continuous }
    }

    /// Creates a quota of `amount` tokens in each second. (Not one token per `amount` seconds, as in some other
    /// limiters.)
    pub const fn per_second(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(1))
    }

    /// Creates a quota of `amount` tokens in each minute.
    pub const fn per_minute(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(60))
    }

    /// Creates a quota of `amount` tokens in each hour.
    pub const fn per_hour(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(3_600))
    }

    /// Creates a quota of `amount` tokens in each day of 24 hours.
    pub const fn per_day(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(86_400))
    }

    /// Creates a quota of `capacity` tokens that is refilled only by
    /// [`Limiter::replenish`](crate::Limiter::replenish).
    pub const fn manual(capacity: u64) -> Self {
        Self { amount: 0, period: Duration::ZERO, burst: Some(capacity), initial: None, refill: Refill::Manual }
    }

    /// Sets the burst: the most tokens that may pass at once, and that an idle bucket saves up.
    #[must_use = "this returns the changed quota"]
    pub const fn burst(mut self, tokens: u64) -> Self {
        self.burst = Some(tokens);
        self
    }

    /// Starts with `tokens` tokens in the bucket instead of a full bucket; 0 starts empty.
    #[must_use = "this returns the changed quota"]
    pub const fn initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// Makes the tokens of a period arrive all at once at the end of the period.
    ///
    /// Periods count from the instant at which the limiter is built, and never drift.
    /// [`Limiter::set_quota`](crate::Limiter::set_quota) leaves them where they are if the period stays the same; its
    /// documentation says what happens otherwise.
    ///
    /// In any window, at most `burst + amount x (period ends inside the window)` tokens pass.
    #[must_use = "this returns the changed quota"]
    pub const fn stepped(mut self) -> Self {
        if !matches!(self.refill, Refill::Manual) {
            self.refill = Refill::Stepped;
        }
        self
    }

    /// Returns the tokens per period; 0 for a manual quota.
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns the period; zero for a manual quota.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Returns the most tokens that the bucket holds: the burst.
    pub const fn capacity(&self) -> u64 {
        match self.burst {
            Some(burst) => burst,
            None => self.amount,
        }
    }

    /// Returns the number of tokens in the bucket at the start.
    pub const fn filled_at_start(&self) -> u64 {
        match self.initial {
            Some(initial) => initial,
            None => self.capacity(),
        }
    }

    /// Returns true if tokens arrive only at the ends of periods.
    pub const fn is_stepped(&self) -> bool {
        matches!(self.refill, Refill::Stepped)
    }

    /// Returns true if tokens arrive only by hand.
    pub const fn is_manual(&self) -> bool {
        matches!(self.refill, Refill::Manual)
    }

    pub(crate) const fn refill(&self) -> Refill {
        self.refill
    }

    /// The period in nanoseconds, for a quota that was checked.
    pub(crate) const fn period_nanos(&self) -> u64 {
        self.period.as_nanos() as u64
    }

    /// Checks every rule for the quota with the index `index` of a limiter.
    pub(crate) fn check(&self, index: usize) -> Result<(), ConfigError> {
        let burst = self.capacity();
        if !self.is_manual() {
            if self.amount == 0 {
                return Err(ConfigError::ZeroAmount { quota: index });
            }
            if self.period.is_zero() || u64::try_from(self.period.as_nanos()).is_err() {
                return Err(ConfigError::BadPeriod { quota: index, period: self.period });
            }
        }
        if burst == 0 || burst > MAX_BURST {
            return Err(ConfigError::BadBurst { quota: index, burst, most: MAX_BURST });
        }
        if self.is_stepped() && self.amount > burst {
            return Err(ConfigError::StepAboveBurst { quota: index, amount: self.amount, burst });
        }
        match self.initial {
            Some(initial) if initial > burst => Err(ConfigError::InitialAboveBurst { quota: index, initial, burst }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_manual() {
            write!(f, "manual {}", self.capacity())?;
        } else {
            write!(f, "{}/{}", self.amount, text::Period(self.period))?;
            if let Some(burst) = self.burst {
                write!(f, ", burst {burst}")?;
            }
        }
        if let Some(initial) = self.initial {
            write!(f, ", initial {initial}")?;
        }
        if self.is_stepped() {
            write!(f, ", stepped")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Quota {
    type Err = ParseQuotaError;

    /// Parses `AMOUNT/PERIOD` or `manual CAPACITY`, then any of `, burst N`, `, initial N`, `, stepped`. A period is a
    /// unit (`s`, `min`, `h`, `d`, `ms`, `us`, `ns`) or a number and a unit (`10s`).
    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        text::parse(text)
    }
}

pub use text::ParseQuotaError;

mod text {
    //! Quotas as text: `100/s, burst 20`.

    use super::{Quota, fmt};
    use std::time::Duration;

    /// The error for text that is not a quota: names the wrong part and what it should be.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("`{part}` is no {expected}; a quota is written like `100/s, burst 20`, `5/10s, stepped` or `manual 50`")]
    pub struct ParseQuotaError {
        part: String,
        expected: &'static str,
    }

    const UNITS: [(&str, u64); 7] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];

    /// A period, printed in the largest unit that divides it.
    pub(super) struct Period(pub(super) Duration);

    impl fmt::Display for Period {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let nanos = self.0.as_nanos();
            let fits = |unit: &&(&str, u64)| nanos.is_multiple_of(unit.1 as u128) && nanos > 0;
            let (name, unit) = UNITS.iter().find(fits).unwrap_or(&("ns", 1));
            match nanos / *unit as u128 {
                1 => f.write_str(name),
                count => write!(f, "{count}{name}"),
            }
        }
    }

    fn wrong(part: &str, expected: &'static str) -> ParseQuotaError {
        ParseQuotaError { part: part.to_owned(), expected }
    }

    fn number(part: &str) -> Result<u64, ParseQuotaError> {
        part.trim().parse().map_err(|_| wrong(part.trim(), "whole number of tokens"))
    }

    fn period(part: &str) -> Result<Duration, ParseQuotaError> {
        let part = part.trim();
        let error = || wrong(part, "period such as `s`, `10s`, `min`, `h`, `d`, `ms`");
        let digits = part.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let (count, unit) = part.split_at(digits);
        let count: u64 = if count.is_empty() { 1 } else { count.parse().map_err(|_| error())? };
        let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(error)?;
        count.checked_mul(*nanos).map(Duration::from_nanos).ok_or_else(error)
    }

    pub(super) fn parse(text: &str) -> Result<Quota, ParseQuotaError> {
        let mut parts = text.split(',').map(str::trim);
        let rate = parts.next().unwrap_or_default();
        let mut quota = if let Some(capacity) = rate.strip_prefix("manual ") {
            Quota::manual(number(capacity)?)
        } else {
            let (amount, every) = rate.split_once('/').ok_or_else(|| wrong(rate, "rate"))?;
            Quota::new(number(amount)?, period(every)?)
        };
        for part in parts {
            quota = match part.split_once(' ') {
                Some(("burst", tokens)) => quota.burst(number(tokens)?),
                Some(("initial", tokens)) => quota.initial(number(tokens)?),
                None if part == "stepped" && !quota.is_manual() => quota.stepped(),
                _ => return Err(wrong(part, "`burst N`, `initial N` or `stepped`")),
            };
        }
        Ok(quota)
    }
}

#[cfg(feature = "serde")]
mod as_serde {
    //! In every format, a quota is serialized as its text.

    use super::Quota;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    impl Serialize for Quota {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Quota {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
            text.parse().map_err(de::Error::custom)
        }
    }
}

/// Checks an in-flight cap.
pub(crate) fn check_cap(cap: u64) -> Result<(), ConfigError> {
    if cap == 0 || cap > MAX_BURST {
        return Err(ConfigError::BadMaxInFlight { cap, most: MAX_BURST });
    }
    Ok(())
}
