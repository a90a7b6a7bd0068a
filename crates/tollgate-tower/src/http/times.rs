//! Times in header fields: one reader for every field, and for all forms in which servers write a time from now or an
//! instant.

use http::HeaderMap;
use http::header::DATE;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time from now that is longer than this is not plausible.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

pub(super) const BILLION: u128 = 1_000_000_000;

/// Returns the time of the response by the server's clock, because instants in it refer to that clock. If the response
/// has no `Date`, returns the local time.
pub(super) fn now(headers: &HeaderMap) -> SystemTime {
    headers.get(DATE).and_then(|date| instant(date.to_str().ok()?.trim())).unwrap_or_else(SystemTime::now)
}

/// Reads the time from `now` to what the text says. Returns `None` if the text says nothing, or more than a year from
/// now.
///
/// | text | meaning |
/// |---|---|
/// | `30`, `0.25` | seconds from now |
/// | `1372700873`, `1372700873.5`, `1372700873000` | Unix time in seconds, milliseconds, microseconds or nanoseconds |
/// | `6m0s`, `60s`, `20ms`, `2m59.56s` | a time from now, as Go writes durations |
/// | `2025-08-21T12:40:59Z`, `2025-08-21 12:40:59 +0000` | an instant, RFC 3339 and similar |
/// | `Thu, 21 Aug 2025 12:40:59 GMT` | an instant, RFC 9110; also with `UTC` or `+0000` |
///
/// A time below zero and an instant in the past are zero from now.
pub(super) fn read(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let until = |instant: SystemTime| instant.duration_since(now).unwrap_or_default();
    let time = match billionths(unsigned) {
        Some(nanos) if nanos <= LONGEST.as_nanos() => Duration::from_nanos(nanos as u64),
        Some(number) => until(unix_time(number)?),
        None => duration(unsigned).or_else(|| Some(until(instant(unsigned)?)))?,
    };
    let time = if unsigned.len() < text.len() { Duration::ZERO } else { time };
    Some(time).filter(|time| *time <= LONGEST)
}

/// Reads a decimal number without a sign, in billionths. Digits below a billionth are dropped.
pub(super) fn billionths(text: &str) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: u32 = format!("{fraction:0<9.9}").parse().ok()?;
    Some(u128::from(whole) * BILLION + u128::from(fraction))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a number, in billionths, as a Unix time. Its size tells its unit: as milliseconds, a number of seconds would be
/// in 1970, and a number of milliseconds as seconds would be beyond the year 33,000. Numbers before 2001 are not
/// plausible.
fn unix_time(number: u128) -> Option<SystemTime> {
    let nanos = match number / BILLION {
        ..1_000_000_000 => return None,
        1_000_000_000..1_000_000_000_000 => number,
        1_000_000_000_000..1_000_000_000_000_000 => number / 1_000,
        1_000_000_000_000_000..1_000_000_000_000_000_000 => number / 1_000_000,
        _ => number / BILLION,
    };
    UNIX_EPOCH.checked_add(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// Reads a duration as Go writes it: numbers with units, without spaces.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (value, after) = rest.split_at(rest.find(|letter: char| letter.is_ascii_alphabetic())?);
        let end = after.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let nanos: u128 = match unit {
            "d" => 86_400 * BILLION,
            "h" => 3_600 * BILLION,
            "m" => 60 * BILLION,
            "s" => BILLION,
            "ms" => 1_000_000,
            "us" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        let nanos = billionths(value)?.checked_mul(nanos)? / BILLION;
        total = total.checked_add(Duration::from_nanos(u64::try_from(nanos).ok()?))?;
        rest = after;
    }
    Some(total).filter(|_| !text.is_empty())
}

fn instant(text: &str) -> Option<SystemTime> {
    rfc_3339(text).or_else(|| http_date(text))
}

/// Reads a date of RFC 9110, which ends in `GMT`. Some servers write `UTC` or `+0000`.
fn http_date(text: &str) -> Option<SystemTime> {
    let date = [" UTC", " +0000"].into_iter().find_map(|zone| text.strip_suffix(zone));
    httpdate::parse_http_date(&date.map_or(text.to_owned(), |date| format!("{date} GMT"))).ok()
}

/// Reads `2025-08-21T12:40:59.5Z` or, with an offset, `2025-08-21T14:40:59+02:00` or `2025-08-21 14:40:59 +0200`.
fn rfc_3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = parts(date, '-', [4, 2, 2])?;
    let zone = time.find(|letter: char| !matches!(letter, '0'..='9' | ':' | '.'))?;
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
    let offset = offset_seconds(zone.trim_start())?;
    let seconds = days_since_epoch(year, month, day) * 86_400 + (hour * 3_600 + minute * 60 + second) - offset;
    let fraction = Duration::from_nanos(billionths(&format!("0.{fraction}"))? as u64);
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
    if matches!(zone, "Z" | "z" | "UTC" | "GMT") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let offset = zone.strip_prefix(['-', '+'])?;
    let (hours, minutes) = offset.split_once(':').or_else(|| offset.split_at_checked(2))?;
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
