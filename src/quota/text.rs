//! Quotas as text: `100/s, burst 20`.

use super::Quota;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// The error for text that is not a quota: names the wrong part and what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuotaError {
    part: String,
    at: usize,
    expected: &'static str,
}

impl std::error::Error for ParseQuotaError {}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, expected, .. } = self;
        write!(
            f,
            "`{part}` is no {expected}; a quota is written like `100/s, burst 20`, `5/10s, stepped` or `manual 50`"
        )
    }
}

impl ParseQuotaError {
    /// Returns where in the text the wrong part stands, in bytes: to mark it in a configuration file.
    pub fn span(&self) -> Range<usize> {
        self.at..self.at + self.part.len()
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
            match self.calendar() {
                Some(calendar) if calendar.is_counted_from_1970() => {
                    write!(f, "{}/{}@epoch", self.amount, Period(self.period))?
                }
                Some(calendar) => write!(f, "{}/{calendar}", self.amount)?,
                None => write!(f, "{}/{}", self.amount, Period(self.period))?,
            }
            if let Some(burst) = self.burst {
                write!(f, ", burst {burst}")?;
            }
        }
        if let Some(initial) = self.initial {
            write!(f, ", initial {initial}")?;
        }
        if self.is_stepped() && self.calendar().is_none() {
            write!(f, ", stepped")?;
        }
        if self.is_sliding() {
            write!(f, ", sliding")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Quota {
    type Err = ParseQuotaError;

    /// Parses a rate, then any of `, burst N`, `, initial N`, and `, stepped` or `, sliding`.
    ///
    /// | part | written as |
    /// |---|---|
    /// | rate | `AMOUNT/PERIOD`, `AMOUNT per PERIOD`, `manual CAPACITY` or `unlimited` |
    /// | number of tokens | `1000`, `1_000`, `1k`; the suffixes are `k`, `M` and `G` for 10^3, 10^6 and 10^9 |
    /// | period | a unit, or a whole number and a unit: `s`, `10s`, `10 seconds` |
    /// | period of a calendar | `second`, `minute`, `hour`, `day`, `week`, `month` or `year`, then `@` and a time zone: `day@UTC`, `month@America/Los_Angeles`; or a period and `@epoch`: `10s@epoch` |
    /// | day on which weeks or months begin | `, day N`, as in `1000/month@UTC, day 15` |
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
struct Period(Duration);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let fits = |unit: &&(&[&str], u64)| nanos % unit.1 as u128 == 0 && nanos > 0;
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
    let by_sign = part.split_once('/').filter(|(amount, _)| !amount.contains(" per "));
    let (amount, every) = by_sign.or_else(|| part.split_once(" per ")).ok_or(Wrong(part, "rate such as `100/s`"))?;
    let amount = number(amount)?;
    #[cfg(feature = "calendar")]
    if let Some((unit, zone)) = every.split_once('@') {
        return calendar(amount, unit.trim(), zone.trim());
    }
    #[cfg(not(feature = "calendar"))]
    if every.contains('@') {
        return Err(Wrong(every.trim(), "period in a build without the feature `calendar`"));
    }
    Ok(Quota::new(amount, period(every)?))
}

#[cfg(feature = "calendar")]
fn calendar<'t>(amount: u64, unit: &'t str, zone: &'t str) -> Result<Quota, Wrong<'t>> {
    if zone == "epoch" {
        return Ok(Quota::new(amount, period(unit)?).from_epoch());
    }
    let quota = match unit {
        "second" | "sec" | "s" => Quota::per_calendar_second(amount),
        "minute" | "min" | "m" => Quota::per_calendar_minute(amount),
        "hour" | "hr" | "h" => Quota::per_calendar_hour(amount),
        "day" | "d" => Quota::per_calendar_day(amount),
        "week" | "w" => Quota::per_calendar_week(amount),
        "month" => Quota::per_calendar_month(amount),
        "year" | "y" => Quota::per_calendar_year(amount),
        _ => return Err(Wrong(unit, "calendar period: `second`, `minute`, `hour`, `day`, `week`, `month` or `year`")),
    };
    quota.in_time_zone(zone).map_err(|_| Wrong(zone, "time zone such as `UTC` or `America/Los_Angeles`"))
}

/// Sets the day on which the periods of a calendar quota begin.
#[cfg(feature = "calendar")]
fn starting_on<'t>(quota: Quota, part: &'t str, day: &str) -> Result<Quota, Wrong<'t>> {
    let most = quota.calendar().and_then(|calendar| calendar.most_days());
    let most = most.ok_or(Wrong(part, "part of this quota: only weeks and months of a calendar begin on some day"))?;
    let day = digits(day.trim()).and_then(|day| u8::try_from(day).ok()).filter(|day| (1..=most).contains(day));
    let expected =
        if most == 7 { "day of a week, from `day 1` (Monday) to `day 7`" } else { "day from `day 1` to `day 31`" };
    Ok(quota.starting_on(day.ok_or(Wrong(part, expected))?))
}

const TWICE: &str = "further part: it is given already, remove one of the two";
const MANUAL_PERIODS: &str = "part of a manual quota: it has no periods";
const MANUAL_BURST: &str = "part of a manual quota: its burst is the capacity, as in `manual 50`";

fn change(quota: Quota, part: &str) -> Result<Quota, Wrong<'_>> {
    match part.split_once('=').or_else(|| part.split_once(' ')).map(|(name, value)| (name.trim_end(), value)) {
        Some(("burst", _)) if quota.is_manual() => Err(Wrong(part, MANUAL_BURST)),
        None if quota.is_manual() && matches!(part, "stepped" | "sliding") => Err(Wrong(part, MANUAL_PERIODS)),
        Some(("burst", _)) if quota.burst.is_some() => Err(Wrong(part, TWICE)),
        Some(("initial", _)) if quota.initial.is_some() => Err(Wrong(part, TWICE)),
        #[cfg(feature = "calendar")]
        Some(("day", _)) if quota.calendar().is_some_and(|calendar| calendar.day() != 1) => Err(Wrong(part, TWICE)),
        #[cfg(feature = "calendar")]
        Some(("day", day)) => starting_on(quota, part, day),
        None if part == "stepped" && quota.is_stepped() => Err(Wrong(part, TWICE)),
        None if part == "sliding" && quota.is_sliding() => Err(Wrong(part, TWICE)),
        None if matches!(part, "stepped" | "sliding") && (quota.is_stepped() || quota.is_sliding()) => {
            Err(Wrong(part, "part of this quota: it is either stepped or sliding"))
        }
        Some(("burst", tokens)) => Ok(quota.burst(number(tokens)?)),
        Some(("initial", tokens)) => Ok(quota.initial(number(tokens)?)),
        None if part == "stepped" => Ok(quota.stepped()),
        None if part == "sliding" => Ok(quota.sliding()),
        _ => Err(Wrong(part, "`burst N`, `initial N`, `stepped` or `sliding`")),
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
