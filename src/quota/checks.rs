//! The rules for quotas and caps, which a limiter checks when it is built.

use super::Quota;
use crate::error::{ConfigError, QuotaError};

/// The largest burst. With it, all positions of a limiter stay comparable.
pub(crate) const MAX_BURST: u64 = 1 << 61;

impl Quota {
    /// Checks whether a limiter can be built from this quota, such as one that was read from a file.
    ///
    /// `Quotas::check` (feature `keyed`) also checks what a keyed limiter needs.
    ///
    /// # Errors
    ///
    /// Returns the [`QuotaError`] for which [`Limiter::new`](crate::Limiter::new) would refuse it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, QuotaError};
    /// let quota: Quota = "100/s, burst 0".parse().expect("it is written correctly");
    /// assert!(matches!(quota.check(), Err(QuotaError::BadBurst { burst: 0, .. })));
    /// ```
    pub fn check(&self) -> Result<(), QuotaError> {
        let (amount, burst) = (self.amount, self.capacity());
        if !self.is_manual() {
            if amount == 0 {
                return Err(QuotaError::ZeroAmount);
            }
            // A period of a calendar has a number, of 63 bits, and so has the one after the end of time.
            let shortest = if self.calendar().is_some() { 3 } else { 1 };
            if !(shortest..=u128::from(u64::MAX)).contains(&self.period.as_nanos()) {
                return Err(QuotaError::BadPeriod { period: self.period });
            }
        }
        if burst == 0 || burst > MAX_BURST {
            return Err(QuotaError::BadBurst { burst, most: MAX_BURST });
        }
        if self.is_sliding() && self.burst.is_some() {
            return Err(QuotaError::SlidingBurst { burst, amount });
        }
        if let Some(calendar) = self.calendar() {
            if amount != burst {
                return Err(QuotaError::CalendarBurst { amount, burst });
            }
            let day = calendar.day();
            if !(1..=calendar.most_days().unwrap_or(1)).contains(&day) {
                return Err(QuotaError::BadCalendarDay { day });
            }
        }
        if self.is_stepped() && amount > burst {
            return Err(QuotaError::StepAboveBurst { amount, burst });
        }
        match self.initial {
            Some(initial) if initial > burst => Err(QuotaError::InitialAboveBurst { initial, burst }),
            _ => Ok(()),
        }
    }

    /// Refuses a sliding quota, for a `setting` or type that counts no windows.
    pub(crate) fn check_not_sliding(&self, setting: &'static str) -> Result<(), QuotaError> {
        if self.is_sliding() { Err(QuotaError::SlidingUnsupported { setting }) } else { Ok(()) }
    }

    /// Refuses a calendar, which `part` does not support.
    pub(crate) fn check_no_calendar(&self, part: &'static str) -> Result<(), QuotaError> {
        if self.calendar().is_some() { Err(QuotaError::CalendarUnsupported { part }) } else { Ok(()) }
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
