//! Quotas whose periods the wall clock begins.

use super::Supply;
use crate::core::schedule::Schedule;

impl Supply {
    pub(crate) fn has_calendar(&self) -> bool {
        self.quotas.iter().any(|quota| quota.quota.calendar().is_some())
    }

    /// The instant until which nothing of the wall clock has to be known anew; `u64::MAX` without a calendar quota.
    pub(crate) fn fresh_until(&self) -> u64 {
        self.quotas.iter().map(Schedule::fresh_until).min().unwrap_or(u64::MAX)
    }

    /// At `now`, the wall clock is `offset` nanoseconds ahead of the limiter's time; `None` if it cannot be read.
    pub(crate) fn look(&mut self, now: u64, offset: Option<i128>) {
        let changed =
            self.quotas.iter_mut().fold(false, |changed, quota| quota.look(now, offset, self.synced) | changed);
        if changed {
            self.note_change();
        }
    }
}
