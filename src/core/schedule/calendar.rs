//! Calendar quotas: their periods begin at instants of the wall clock.

use super::{Mint, Schedule};
use crate::core::calendar::CalendarTime;

impl Schedule {
    /// The periods of a calendar quota.
    pub(crate) fn calendar(&self) -> Option<&CalendarTime> {
        if let Mint::Calendar { time, .. } = &self.mint { Some(time) } else { None }
    }

    /// When the next period of a calendar quota begins.
    pub(crate) fn next_period(&self) -> u64 {
        if let Mint::Calendar { next, .. } = &self.mint { *next } else { u64::MAX }
    }

    /// Sets the periods of a calendar quota, the next of which begins at `at`.
    pub(crate) fn set_periods(&mut self, periods: CalendarTime, at: u64) {
        if let Mint::Calendar { next, time, .. } = &mut self.mint {
            (*next, **time) = (at, periods);
        }
    }

    /// The instant until which nothing of the wall clock has to be known anew; `u64::MAX` without a calendar.
    pub(crate) fn fresh_until(&self) -> u64 {
        if let Mint::Calendar { next, time, .. } = &self.mint { time.fresh_until(*next) } else { u64::MAX }
    }

    /// The wall clock was read at `now`; see [`CalendarTime::look`]. Returns whether the beginning of the next period has
    /// changed.
    pub(crate) fn look(&mut self, now: u64, offset: Option<i128>, synced: u64) -> bool {
        let Mint::Calendar { next, time, .. } = &mut self.mint else { return false };
        let changed = time.look(now, offset, synced).filter(|at| at != next);
        changed.into_iter().for_each(|at| *next = at);
        changed.is_some()
    }
}
