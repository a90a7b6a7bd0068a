//! Quotas whose periods the wall clock begins.

use super::Supply;
use crate::core::calendar::{CalendarTime, Stamp};
use crate::core::schedule::Schedule;

impl Supply {
    pub(crate) fn has_calendar(&self) -> bool {
        self.quotas.iter().any(|quota| quota.calendar().is_some())
    }

    /// The instant until which nothing of the wall clock has to be known anew; `u64::MAX` without a calendar quota.
    pub(crate) fn fresh_until(&self) -> u64 {
        self.quotas.iter().map(Schedule::fresh_until).min().unwrap_or(u64::MAX)
    }

    /// When the next period of a calendar quota begins.
    pub(crate) fn next_period(&self) -> u64 {
        self.quotas.iter().map(Schedule::next_period).min().unwrap_or(u64::MAX)
    }

    /// At `now`, the wall clock is `offset` nanoseconds ahead of the limiter's time; `None` if it cannot be read.
    pub(crate) fn look(&mut self, now: u64, offset: Option<i128>) {
        let changed = self.quotas.iter_mut().fold(false, |changed, quota| quota.look(now, offset) | changed);
        if changed {
            self.note_change();
        }
    }

    /// How many periods of all calendar quotas have begun, and 1 more for each.
    pub(crate) fn periods_begun(&self) -> u64 {
        let counts = self.quotas.iter().filter_map(Schedule::calendar).map(CalendarTime::count);
        counts.fold(0, u64::wrapping_add)
    }

    /// A grant is made with this stamp.
    pub(crate) fn note_stamp(&mut self, stamp: Stamp) {
        self.quotas.iter_mut().filter_map(Schedule::calendar_mut).for_each(|time| time.note_stamp(stamp));
    }
}
