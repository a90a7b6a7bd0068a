//! Instants as text: numbers and timestamps, to the nanosecond.

use clap::ValueEnum;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The unit of a number without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    S,
    Ms,
    Us,
    Ns,
}

impl Unit {
    fn nanos(self) -> u128 {
        match self {
            Self::S => 1_000_000_000,
            Self::Ms => 1_000_000,
            Self::Us => 1_000,
            Self::Ns => 1,
        }
    }
}

/// Parses a number of `unit`, RFC 3339, or a date and a time without an offset, which are taken as UTC. Returns
/// nanoseconds since the origin: for timestamps, since 1970.
pub fn parse(text: &str, unit: Unit) -> Result<u64, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let nanos = decimal(text, unit.nanos()).ok_or_else(|| no_instant(text))?;
        let too_far = || format!("`{text}` is more than 584 years: say with --unit ms, us or ns what it counts");
        return u64::try_from(nanos).map_err(|_| too_far());
    }
    let as_utc = || Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok();
    let timestamp = text.parse::<Timestamp>().ok().or_else(as_utc).ok_or_else(|| no_instant(text))?;
    since_1970(timestamp, text)
}

/// Converts a timestamp that was written as `text`.
pub fn since_1970(timestamp: Timestamp, text: &str) -> Result<u64, String> {
    let nanos = u64::try_from(timestamp.as_nanosecond());
    nanos.map_err(|_| format!("`{text}` is not between the years 1970 and 2554: write a later or an earlier instant"))
}

fn no_instant(text: &str) -> String {
    format!("`{text}` is no instant: write seconds such as 12.5, or a timestamp such as 2026-11-23T07:45:11.5Z")
}

/// The decimal number `text` times `unit`, rounded down; exact where a floating-point number is not.
fn decimal(text: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let parts = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let whole = u128::from(whole.parse::<u64>().ok()?);
    Some(whole * unit + u128::from(parts) * unit / 10_u128.pow(fraction.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_of_a_number_counts() {
        assert_eq!(parse("1700000000.123456789", Unit::S), Ok(1_700_000_000_123_456_789));
        assert_eq!(parse("1700000000123.5", Unit::Ms), Ok(1_700_000_000_123_500_000));
        assert_eq!(parse("7", Unit::Ns), Ok(7));
        assert_eq!(parse("0.0000000019", Unit::S), Ok(1));
    }

    #[test]
    fn timestamps_count_from_1970() {
        for text in ["1970-01-02T00:00:00.5Z", "1970-01-02T02:00:00.5+02:00", "1970-01-02 00:00:00.5"] {
            assert_eq!(parse(text, Unit::S), Ok(86_400_500_000_000), "{text}");
        }
    }

    #[test]
    fn what_is_no_instant_is_named() {
        for text in ["", "noon", "1.2.3", ".", "-1", "1e9", "2026-02-30T00:00:00Z"] {
            let error = parse(text, Unit::S).unwrap_err();
            assert!(error.starts_with(&format!("`{text}` is no instant: write")), "{error}");
        }
        assert!(parse("1700000000123", Unit::S).unwrap_err().contains("--unit ms"));
        assert!(parse("1969-12-31T23:59:59Z", Unit::S).unwrap_err().contains("1970"));
    }
}
