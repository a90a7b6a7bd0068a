//! The rules for quotas and caps, which a limiter checks when it is built.

use super::Quota;
use crate::error::ConfigError;

/// The largest burst. With it, all positions of a limiter stay comparable.
pub(crate) const MAX_BURST: u64 = 1 << 61;

impl Quota {
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
            // A period of a calendar has a number, of 63 bits, and so has the one after the end of time.
            let shortest = if self.calendar().is_some() { 3 } else { 1 };
            if !(shortest..=u128::from(u64::MAX)).contains(&self.period.as_nanos()) {
                return Err(ConfigError::BadPeriod { quota: index, quota_name, period: self.period });
            }
        }
        if burst == 0 || burst > MAX_BURST {
            return Err(ConfigError::BadBurst { quota: index, quota_name, burst, most: MAX_BURST });
        }
        if self.is_sliding() && self.burst.is_some() {
            return Err(ConfigError::SlidingBurst { quota: index, quota_name, burst, amount: self.amount });
        }
        if let Some(calendar) = self.calendar() {
            if self.amount != burst {
                let amount = self.amount;
                return Err(ConfigError::CalendarBurst { quota: index, quota_name, amount, burst });
            }
            let day = calendar.day();
            if !(1..=calendar.most_days().unwrap_or(1)).contains(&day) {
                return Err(ConfigError::BadCalendarDay { quota: index, quota_name, day });
            }
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

    /// Checks that the quota with this index is not sliding, for a `setting` or type that counts no windows.
    pub(crate) fn check_not_sliding(&self, index: usize, setting: &'static str) -> Result<(), ConfigError> {
        let error = ConfigError::SlidingUnsupported { quota: index, quota_name: None, setting };
        if self.is_sliding() { Err(error) } else { Ok(()) }
    }
}

impl Quota {
    /// Refuses a calendar, which `part` does not support.
    pub(crate) fn check_no_calendar(&self, index: usize, part: &'static str) -> Result<(), ConfigError> {
        match self.calendar() {
            Some(_) => Err(ConfigError::CalendarUnsupported { quota: index, quota_name: None, part }),
            None => Ok(()),
        }
    }
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
