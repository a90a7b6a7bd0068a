//! Calendars: which period an instant of the wall clock is in, and when a period begins. No clock, no limiter.
//!
//! Instants are nanoseconds since 1970. The periods of a calendar are numbered in their order, so the k-th next one is
//! found without a step per period. The rules of time zones are those of `jiff`.

mod zone;

pub(crate) use zone::Zone;

use jiff::Timestamp;
use jiff::civil::Date;
use std::fmt;
use std::time::Duration;

const DAY: u64 = 86_400_000_000_000;
/// The day of the week of 1970-01-01, a Thursday; Monday is 1.
const WEEKDAY_OF_1970: i64 = 4;

/// The calendar of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Calendar {
    pub(crate) unit: Unit,
    /// The day of the week (Monday is 1) or of the month on which a period begins.
    pub(crate) day: u8,
    pub(crate) zone: Zone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    /// Periods of a fixed length, counted from 1970.
    Epoch,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    /// The nominal length of a period.
    pub(crate) const fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Epoch => 0,
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        })
    }
}

impl Calendar {
    pub(crate) const fn new(unit: Unit) -> Self {
        Self { unit, day: 1, zone: Zone::UTC }
    }

    /// The number of the period that `wall` is in. `length` is that of the quota's period.
    pub(crate) fn number(self, length: u64, wall: u64) -> i64 {
        if let Some(shift) = self.shift(wall) {
            return (i128::from(wall) + i128::from(shift)).div_euclid(length.into()) as i64;
        }
        let date = timestamp(wall).map(|at| at.to_zoned(self.zone.rules()).date());
        let mut number = date.map_or(i64::MAX, |date| self.number_of_date(date));
        // Where a date is skipped or comes twice, the start of its period can be on the other side of `wall`.
        while self.start(length, number, wall).is_some_and(|start| start > wall) {
            number -= 1;
        }
        while self.start(length, number + 1, wall).is_some_and(|start| start <= wall) {
            number += 1;
        }
        number
    }

    /// The instant at which the period with this number begins, 0 if that is before 1970. `None` if it is after the
    /// end of time. The length of hours and shorter periods is fixed, by the rules of the zone at the instant `near`.
    pub(crate) fn start(self, length: u64, number: i64, near: u64) -> Option<u64> {
        if let Some(shift) = self.shift(near) {
            let start = i128::from(number).checked_mul(length.into())? - i128::from(shift);
            return u64::try_from(start.max(0)).ok();
        }
        let midnight = self.first_date(number)?.to_zoned(self.zone.rules()).ok()?.start_of_day().ok()?;
        u64::try_from(midnight.timestamp().as_nanosecond().max(0)).ok()
    }

    /// The length that no period exceeds.
    pub(crate) fn longest(self, length: u64) -> u64 {
        match self.unit {
            Unit::Epoch | Unit::Second | Unit::Minute => length,
            Unit::Hour => 2 * length,
            Unit::Day | Unit::Week | Unit::Month | Unit::Year => length + 3 * DAY,
        }
    }

    /// The last day on which a period can begin; `None` if its kind has no such days.
    pub(crate) fn most_days(self) -> Option<u8> {
        match self.unit {
            Unit::Week => Some(7),
            Unit::Month => Some(31),
            _ => None,
        }
    }

    pub(crate) fn day(self) -> u8 {
        self.day
    }

    pub(crate) fn is_counted_from_1970(self) -> bool {
        self.unit == Unit::Epoch
    }

    /// For periods of a fixed length: how much earlier than 1970 one of them begins, in nanoseconds.
    fn shift(self, near: u64) -> Option<i64> {
        match self.unit {
            Unit::Epoch => Some(0),
            Unit::Second | Unit::Minute | Unit::Hour if self.zone == Zone::UTC => Some(0),
            Unit::Second | Unit::Minute | Unit::Hour => {
                let seconds = timestamp(near).map_or(0, |at| self.zone.rules().to_offset(at).seconds());
                Some(i64::from(seconds) * 1_000_000_000)
            }
            Unit::Day if self.zone == Zone::UTC => Some(0),
            Unit::Week if self.zone == Zone::UTC => Some(self.days_before_1970() * DAY as i64),
            Unit::Day | Unit::Week | Unit::Month | Unit::Year => None,
        }
    }

    /// How many days before 1970-01-01 a week begins.
    fn days_before_1970(self) -> i64 {
        (WEEKDAY_OF_1970 - i64::from(self.day)).rem_euclid(7)
    }

    fn number_of_date(self, date: Date) -> i64 {
        let days = || date.duration_since(epoch()).as_hours() / 24;
        match self.unit {
            Unit::Week => (days() + self.days_before_1970()).div_euclid(7),
            Unit::Month => {
                let month = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
                let has_begun = self.first_date(month).is_none_or(|first| first <= date);
                if has_begun { month } else { month - 1 }
            }
            Unit::Year => date.year().into(),
            _ => days(),
        }
    }

    /// The date on which the period with this number begins.
    fn first_date(self, number: i64) -> Option<Date> {
        let days = |days: i64| {
            let seconds = days.checked_mul(86_400)?;
            epoch().checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
        };
        match self.unit {
            Unit::Week => days(number.checked_mul(7)? - self.days_before_1970()),
            Unit::Month => {
                let year = number.div_euclid(12).try_into().ok()?;
                let first = Date::new(year, number.rem_euclid(12) as i8 + 1, 1).ok()?;
                // A month that has no such day begins on its last one.
                first.with().day((self.day as i8).min(first.days_in_month())).build().ok()
            }
            Unit::Year => Date::new(number.try_into().ok()?, 1, 1).ok(),
            _ => days(number),
        }
    }
}

fn epoch() -> Date {
    Date::constant(1970, 1, 1)
}

fn timestamp(wall: u64) -> Option<Timestamp> {
    Timestamp::from_nanosecond(wall.into()).ok()
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Epoch => return f.write_str("period@epoch"),
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
            Unit::Year => "year",
        };
        write!(f, "{unit}@{}", self.zone.name())?;
        if self.day == 1 { Ok(()) } else { write!(f, ", day {}", self.day) }
    }
}

#[cfg(test)]
mod tests;
