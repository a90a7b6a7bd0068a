//! When a limit resets: the texts that servers write for a time from now, or for an instant.

use super::dates;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time from now that is longer than this is not plausible.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// A number from here on is a Unix time in seconds: as seconds from now it would be 31 years.
const UNIX: u64 = 1_000_000_000;
/// A number from here on is a Unix time in milliseconds: as seconds it would be the year 33,658.
const UNIX_MILLIS: u64 = 1_000_000_000_000;

/// Reads the time from `now` to a reset. Returns `None` if the text says nothing, or more than a year from now.
///
/// | text | meaning |
/// |---|---|
/// | `30`, `0.25` | seconds from now |
/// | `1372700873`, `1372700873000` | Unix time in seconds or milliseconds |
/// | `6m0s`, `1s`, `20ms`, `2m59.56s` | a time from now, as Go writes durations |
/// | `2025-08-21T12:40:59Z` | an instant, RFC 3339 |
/// | `Thu, 21 Aug 2025 12:40:59 GMT` | an instant, RFC 9110 |
///
/// An instant in the past is zero from now.
pub(super) fn read(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let reset = match number(text) {
        Some(number) => from_number(number, now),
        None => decimal(text).or_else(|| duration(text)).or_else(|| Some(until(instant(text)?, now)))?,
    };
    Some(reset).filter(|reset| *reset <= LONGEST)
}

/// Reads a number that consists of digits only.
pub(super) fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Reads a number as seconds from now, or as a Unix time.
pub(super) fn from_number(number: u64, now: SystemTime) -> Duration {
    match number {
        ..UNIX => Duration::from_secs(number),
        UNIX..UNIX_MILLIS => Duration::from_secs(number).saturating_sub(since_epoch(now)),
        _ => Duration::from_millis(number).saturating_sub(since_epoch(now)),
    }
}

fn since_epoch(now: SystemTime) -> Duration {
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn until(instant: SystemTime, now: SystemTime) -> Duration {
    instant.duration_since(now).unwrap_or_default()
}

/// Reads seconds with a fraction: digits, at most one point, digits. Digits below a nanosecond are dropped.
fn decimal(text: &str) -> Option<Duration> {
    scaled(text, 1_000_000_000)
}

/// Reads a decimal number of units of `nanos` nanoseconds each.
fn scaled(text: &str, nanos: u64) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // More digits than nanoseconds can have are cut.
    let fraction = fraction.get(..fraction.len().min(18)).filter(|digits| is_digits(digits))?;
    let whole: u128 = if whole.is_empty() { 0 } else { number(whole)?.into() };
    let part = u128::from(number(fraction).unwrap_or(0)) * u128::from(nanos) / 10_u128.pow(fraction.len() as u32);
    let total = whole * u128::from(nanos) + part;
    Some(Duration::from_nanos(u64::try_from(total).ok()?))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a duration as Go writes it: numbers with units, without spaces.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (value, after) = rest.split_at(rest.find(|letter: char| letter.is_ascii_alphabetic())?);
        let end = after.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let nanos = match unit {
            "d" => 86_400_000_000_000,
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        total = total.checked_add(scaled(value, nanos)?)?;
        rest = after;
    }
    Some(total).filter(|_| !text.is_empty())
}

fn instant(text: &str) -> Option<SystemTime> {
    rfc_3339(text).or_else(|| dates::parse(text))
}

/// Reads `2025-08-21T12:40:59.5Z` or, with an offset, `2025-08-21T14:40:59+02:00`.
fn rfc_3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = parts(date, '-', [4, 2, 2])?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = parts(time, ':', [2, 2, 2])?;
    // A leap second is read as the second after it.
    if !(1..=12).contains(&month)
        || !(1..=days_in(year, month)).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let offset = offset_seconds(zone)?;
    let seconds = days_since_epoch(year, month, day) * 86_400 + (hour * 3_600 + minute * 60 + second) - offset;
    let fraction = scaled(&format!("0.{fraction}"), 1_000_000_000)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))?.checked_add(fraction)
}

/// Splits into three numbers of so many digits each.
fn parts(text: &str, separator: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && is_digits(part))?;
        *number = part.parse().ok()?;
    }
    if parts.next().is_none() { Some(numbers) } else { None }
}

fn offset_seconds(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let [hours, minutes, _] = parts(&format!("{hours}:{minutes}:00"), ':', [2, 2, 2])?;
    if hours <= 23 && minutes <= 59 { Some(sign * (hours * 3_600 + minutes * 60)) } else { None }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    // The years 0 to `year - 1` and 0 to 1969, each with year 0 as a leap year.
    let years = year * 365 + leap_days(year - 1 + 400) - (1_970 * 365 + leap_days(1_969 + 400));
    years + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1
}
