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

    /// Creates a quota that holds back no call: for a plan without a limit, where a quota has to be given.
    ///
    /// It is an ordinary quota of 2<sup>24</sup> tokens per nanosecond, with a burst of 2<sup>48</sup> tokens, the largest
    /// cost of a claim. It is written `unlimited`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Quota;
    /// # fn main() -> Result<(), tollgate::ParseQuotaError> {
    /// let plan = |text: &str| text.parse::<Quota>();
    /// assert_eq!((plan("unlimited")?, plan("10/s")?), (Quota::unlimited(), Quota::per_second(10)));
    /// # Ok(()) }
    /// ```
    // A higher rate would have no packed levels, and each call on a key with this quota would take the slow path.
    pub const fn unlimited() -> Self {
        Self::new(1 << 24, Duration::from_nanos(1)).burst(1 << 48)
    }

    /// Sets the burst: the most tokens that may pass at once, and that an idle bucket saves up. It replaces an earlier
    /// burst, and the capacity of a manual quota.
    #[must_use = "this returns the changed quota"]
    pub const fn burst(mut self, tokens: u64) -> Self {
        self.burst = Some(tokens);
        self
    }

    /// Starts with `tokens` tokens in the bucket instead of a full bucket; 0 starts empty. It replaces an earlier
    /// value.
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

    /// Whether both quotas are the same, apart from how full a bucket starts.
    #[cfg(feature = "state")]
    pub(crate) fn is_same_limit(&self, other: &Self) -> bool {
        self.amount == other.amount
            && self.period == other.period
            && self.capacity() == other.capacity()
            && self.refill == other.refill
    }

    /// The burst, if it was set.
    pub(crate) const fn explicit_burst(&self) -> Option<u64> {
        self.burst
    }

    pub(crate) const fn refill(&self) -> Refill {
        self.refill
    }

    /// The period in nanoseconds, for a quota that was checked.
    pub(crate) const fn period_nanos(&self) -> u64 {
        self.period.as_nanos() as u64
    }

    /// Checks whether a limiter can be built from this quota, such as one that was read from a file.
    ///
    /// `Quotas::check` (feature `keyed`) also checks what a keyed limiter needs.
    ///
    /// # Errors
    ///
    /// Returns the [`ConfigError`] that [`Limiter::new`](crate::Limiter::new) would return.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ConfigError, Quota};
    /// let quota: Quota = "100/s, burst 0".parse().expect("it is written correctly");
    /// assert!(matches!(quota.check(), Err(ConfigError::BadBurst { burst: 0, .. })));
    /// ```
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_at(0)
    }

    /// Checks every rule for the quota with the index `index` of a limiter. The error does not know its name; see
    /// [`ConfigError::of_quota`].
    pub(crate) fn check_at(&self, index: usize) -> Result<(), ConfigError> {
        let (burst, quota_name) = (self.capacity(), None);
        if !self.is_manual() {
            if self.amount == 0 {
                return Err(ConfigError::ZeroAmount { quota: index, quota_name });
            }
            if self.period.is_zero() || u64::try_from(self.period.as_nanos()).is_err() {
                return Err(ConfigError::BadPeriod { quota: index, quota_name, period: self.period });
            }
        }
        if burst == 0 || burst > MAX_BURST {
            return Err(ConfigError::BadBurst { quota: index, quota_name, burst, most: MAX_BURST });
        }
        if self.is_stepped() && self.amount > burst {
            return Err(ConfigError::StepAboveBurst { quota: index, quota_name, amount: self.amount, burst });
        }
        match self.initial {
            Some(initial) if initial > burst => {
                Err(ConfigError::InitialAboveBurst { quota: index, quota_name, initial, burst })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::unlimited() {
            return f.write_str("unlimited");
        }
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

    /// Parses a rate, then any of `, burst N`, `, initial N`, `, stepped`.
    ///
    /// | part | written as |
    /// |---|---|
    /// | rate | `AMOUNT/PERIOD`, `AMOUNT per PERIOD`, `manual CAPACITY` or `unlimited` |
    /// | number of tokens | `1000`, `1_000`, `1k`; the suffixes are `k`, `M` and `G` for 10^3, 10^6 and 10^9 |
    /// | period | a unit, or a whole number and a unit: `s`, `10s`, `10 seconds` |
    /// | unit | `ns`, `us`, `ms`, `s`, `min` or `m`, `h`, `d`; also `sec`, `hr` and other usual abbreviations, and the words, singular and plural |
    ///
    /// `burst=20` is read like `burst 20`. A quota prints in one form only, such as `1000/s, burst 20, initial 3, stepped`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the part that is wrong, says what it should be, and knows its place in the text.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Quota;
    /// # fn main() -> Result<(), tollgate::ParseQuotaError> {
    /// for text in ["1000/s", "1_000/s", "1k/sec", "1k per second"] {
    ///     assert_eq!(text.parse::<Quota>()?.to_string(), "1000/s");
    /// }
    ///
    /// let error = "100/fortnight".parse::<Quota>().unwrap_err();
    /// assert!(error.to_string().starts_with("`fortnight` is no period"));
    /// assert_eq!(error.span(), 4..13);
    /// # Ok(()) }
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        parse(text, text)
    }
}

impl TryFrom<&str> for Quota {
    type Error = ParseQuotaError;

    /// Parses the same text as [`FromStr`](std::str::FromStr).
    fn try_from(text: &str) -> Result<Self, ParseQuotaError> {
        text.parse()
    }
}

pub use text::ParseQuotaError;
pub(crate) use text::parse;

mod text {
    //! Quotas as text: `100/s, burst 20`.

    use super::{Quota, fmt};
    use std::ops::Range;
    use std::time::Duration;

    /// The error for text that is not a quota: names the wrong part and what it should be.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("`{part}` is no {expected}; a quota is written like `100/s, burst 20`, `5/10s, stepped` or `manual 50`")]
    pub struct ParseQuotaError {
        part: String,
        at: usize,
        expected: &'static str,
    }

    impl ParseQuotaError {
        /// Returns where in the text the wrong part stands, in bytes: to mark it in a configuration file.
        pub fn span(&self) -> Range<usize> {
            self.at..self.at + self.part.len()
        }
    }

    /// Each unit with all its spellings, the first of which is printed, and its nanoseconds. The largest unit first.
    const UNITS: [(&[&str], u64); 7] = [
        (&["d", "day", "days"], 86_400_000_000_000),
        (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000_000),
        (&["min", "m", "mins", "minute", "minutes"], 60_000_000_000),
        (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
        (&["ms", "msec", "millis", "millisecond", "milliseconds"], 1_000_000),
        (&["us", "\u{b5}s", "\u{3bc}s", "usec", "micros", "microsecond", "microseconds"], 1_000),
        (&["ns", "nsec", "nanos", "nanosecond", "nanoseconds"], 1),
    ];

    const SUFFIXES: [(char, u64); 4] = [('k', 1_000), ('K', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];

    /// A period, printed in the largest unit that divides it.
    pub(super) struct Period(pub(super) Duration);

    impl fmt::Display for Period {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let nanos = self.0.as_nanos();
            let fits = |unit: &&(&[&str], u64)| nanos.is_multiple_of(unit.1 as u128) && nanos > 0;
            let (names, unit) = UNITS.iter().find(fits).unwrap_or(&(&["ns"], 1));
            match nanos / *unit as u128 {
                1 => f.write_str(names[0]),
                count => write!(f, "{count}{}", names[0]),
            }
        }
    }

    /// A part of the text that is not what it should be.
    struct Wrong<'t>(&'t str, &'static str);

    /// Parses digits, with `_` between them.
    fn digits(part: &str) -> Option<u64> {
        let is_enclosed = !part.starts_with('_') && !part.ends_with('_');
        let is_number = is_enclosed && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        if is_number { part.replace('_', "").parse().ok() } else { None }
    }

    fn number(part: &str) -> Result<u64, Wrong<'_>> {
        let part = part.trim();
        let suffix = SUFFIXES.iter().find_map(|(suffix, times)| Some((part.strip_suffix(*suffix)?, *times)));
        let (count, times) = suffix.unwrap_or((part, 1));
        let number = digits(count).and_then(|count| count.checked_mul(times));
        number.ok_or(Wrong(part, "whole number of tokens such as `1000`, `1_000` or `1k`"))
    }

    fn period(part: &str) -> Result<Duration, Wrong<'_>> {
        let part = part.trim();
        let end = part.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(part.len());
        let (count, unit) = part.split_at(end);
        let count = if count.is_empty() { Some(1) } else { digits(count) };
        let unit = UNITS.iter().find(|(names, _)| names.contains(&unit.trim()));
        let nanos = unit.and_then(|(_, nanos)| count?.checked_mul(*nanos));
        nanos.map(Duration::from_nanos).ok_or(Wrong(part, "period such as `s`, `10s`, `min`, `h`, `d`, `ms`"))
    }

    fn rate(part: &str) -> Result<Quota, Wrong<'_>> {
        if part == "unlimited" {
            return Ok(Quota::unlimited());
        }
        if let Some(capacity) = part.strip_prefix("manual ") {
            return number(capacity).map(Quota::manual);
        }
        let (amount, every) =
            part.split_once('/').or_else(|| part.split_once(" per ")).ok_or(Wrong(part, "rate such as `100/s`"))?;
        Ok(Quota::new(number(amount)?, period(every)?))
    }

    const TWICE: &str = "further part: it is given already, remove one of the two";
    const MANUAL_BURST: &str = "part of a manual quota: its burst is the capacity, as in `manual 50`";

    fn change(quota: Quota, part: &str) -> Result<Quota, Wrong<'_>> {
        match part.split_once('=').or_else(|| part.split_once(' ')).map(|(name, value)| (name.trim_end(), value)) {
            Some(("burst", _)) if quota.is_manual() => Err(Wrong(part, MANUAL_BURST)),
            Some(("burst", _)) if quota.burst.is_some() => Err(Wrong(part, TWICE)),
            Some(("initial", _)) if quota.initial.is_some() => Err(Wrong(part, TWICE)),
            None if part == "stepped" && quota.is_stepped() => Err(Wrong(part, TWICE)),
            Some(("burst", tokens)) => Ok(quota.burst(number(tokens)?)),
            Some(("initial", tokens)) => Ok(quota.initial(number(tokens)?)),
            None if part == "stepped" && !quota.is_manual() => Ok(quota.stepped()),
            _ => Err(Wrong(part, "`burst N`, `initial N` or `stepped`")),
        }
    }

    /// Parses a quota that is a part of `text`, in which errors have their place.
    pub(crate) fn parse(quota: &str, text: &str) -> Result<Quota, ParseQuotaError> {
        let mut parts = quota.split(',').map(str::trim);
        let first = rate(parts.next().unwrap_or_default());
        let quota = parts.fold(first, |quota, part| change(quota?, part));
        quota.map_err(|Wrong(part, expected)| {
            // Each part is a slice of the text.
            let at = part.as_ptr().addr() - text.as_ptr().addr();
            ParseQuotaError { part: part.to_owned(), at, expected }
        })
    }
}

#[cfg(feature = "serde")]
mod as_serde {
    //! In every format, quotas are serialized as their text.

    use super::Quota;
    #[cfg(feature = "keyed")]
    use crate::Quotas;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    impl Serialize for Quota {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    #[cfg(feature = "keyed")]
    impl Serialize for Quotas {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let text = self.to_string();
            if text.parse().as_ref() == Ok(self) {
                return serializer.serialize_str(&text);
            }
            let why = "quotas are written as text: there must be one, and no name may have a `;` or a space at an end";
            Err(serde::ser::Error::custom(why))
        }
    }

    macro_rules! deserialize_as_text {
        ($type:ty) => {
            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                    text.parse().map_err(de::Error::custom)
                }
            }
        };
    }

    deserialize_as_text!(Quota);
    #[cfg(feature = "keyed")]
    deserialize_as_text!(Quotas);
}

pub(crate) fn check_max_cost(max_cost: Option<u64>) -> Result<(), ConfigError> {
    if max_cost == Some(0) { Err(ConfigError::ZeroMaxCost) } else { Ok(()) }
}

/// Checks an in-flight cap.
pub(crate) fn check_cap(cap: u64) -> Result<(), ConfigError> {
    if cap == 0 || cap > MAX_BURST {
        return Err(ConfigError::BadMaxInFlight { cap, most: MAX_BURST });
    }
    Ok(())
}
