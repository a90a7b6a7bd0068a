//! The periods of a calendar quota on the limiter's own time, which is monotonic, while the wall clock may be set.
//!
//! The wall clock is not read here. [`look`](CalendarTime::look) is told how far it is ahead of the limiter's time.
//! Between two looks, the wall clock is taken to run like the limiter's.
//!
//! **What this file guarantees:** a period never begins twice. So it remembers which periods have begun, as runs of
//! successive numbers. If the wall clock is set back over the beginning of a period, that period goes on; if it is set
//! back further, the periods that it shows then and that have not begun yet can begin.

use crate::quota::{Calendar, Quota};
use arrayvec::ArrayVec;

/// In nanoseconds: a smaller change of the distance between both clocks comes from reading one after the other, and moves
/// no boundary.
const TOLERANCE: u64 = 1_000_000;
/// For how many nanoseconds a reading of the wall clock is relied on.
pub(crate) const RELIANCE: u64 = 60_000_000_000;
/// The runs of periods that are remembered. A clock that is set forward begins a new run.
const RUNS: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct CalendarTime {
    calendar: Calendar,
    /// The length of the quota's period, in nanoseconds.
    length: u64,
    /// How far the wall clock is ahead of the limiter's time, in nanoseconds since 1970.
    offset: i128,
    /// The limiter's time at the last look; `None` before the first one.
    looked_at: Option<u64>,
    /// The number of the period that begins next.
    next: i64,
    /// The numbers of the first and the last period of each run that has begun, in ascending order.
    begun: ArrayVec<(i64, i64), RUNS>,
    /// How many periods have begun, from some number on.
    periods: u64,
    /// The period that began last.
    current: i64,
    /// The instant at which it began, or 0 if that was before the first look. Earlier grants were made in other periods.
    begun_at: u64,
}

impl CalendarTime {
    /// The periods of a quota with a calendar. None begins before the first look.
    pub(crate) fn new(calendar: Calendar, quota: &Quota) -> Self {
        Self {
            calendar,
            length: quota.period_nanos(),
            offset: 0,
            looked_at: None,
            next: i64::MIN,
            begun: ArrayVec::new(),
            // No earlier instant that is asked for is before the first one.
            periods: 1 << 32,
            current: 0,
            begun_at: 0,
        }
    }

    /// How many periods have begun, from some number on.
    pub(crate) fn periods(&self) -> u64 {
        self.periods
    }

    /// How many periods have begun since `at`.
    pub(crate) fn periods_since(&self, at: u64) -> u64 {
        self.current.saturating_sub(self.number(at)).max(0) as u64
    }

    /// The instant at which this period began.
    pub(crate) fn begun_at(&self) -> u64 {
        self.begun_at
    }

    /// These periods, of which the current one began at `at` if it began earlier.
    pub(crate) fn begun_from(self, at: u64) -> Self {
        Self { begun_at: self.begun_at.max(at), ..self }
    }

    /// Continues in another process, where the period that begins at `next` on the wall clock was the next one.
    pub(crate) fn restore(&mut self, next: u64) {
        self.next = self.calendar.number(self.length, next);
        self.begun = [(self.next - 2, self.next - 1)].into_iter().collect();
    }

    /// The instant on the wall clock at which the next period begins; `None` before the first look, or if it is after the
    /// end of time.
    pub(crate) fn next_on_wall(&self) -> Option<u64> {
        let near = self.wall(self.looked_at?);
        self.calendar.start(self.length, self.next, near)
    }

    /// The instant on the wall clock at which the first period begins that had not begun by `at`; `None` as in
    /// [`next_on_wall`](Self::next_on_wall).
    #[cfg(all(feature = "keyed", feature = "state"))]
    pub(crate) fn next_on_wall_after(&self, at: u64) -> Option<u64> {
        if self.begun_at > at { Some(self.wall(self.begun_at)) } else { self.next_on_wall() }
    }

    /// Whether both have the same periods.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.calendar, self.length) == (other.calendar, other.length)
    }

    /// The instant until which the last look can be relied on, if the next period begins at `next`.
    pub(crate) fn fresh_until(&self, next: u64) -> u64 {
        let Some(looked_at) = self.looked_at else { return 0 };
        let minute = looked_at.saturating_add(RELIANCE);
        if next <= looked_at { minute } else { minute.min(next) }
    }

    /// At `now`, the wall clock is `offset` ahead of the limiter's time; `None` if it could not be read. The grants up to
    /// `synced` were made in the period that goes on. Returns when the next period begins, if that may have changed.
    pub(crate) fn look(&mut self, now: u64, offset: Option<i128>, synced: u64) -> Option<u64> {
        let is_first = self.looked_at.is_none();
        let Some(offset) = offset else {
            // A clock that panics is asked again in a minute.
            self.looked_at = self.looked_at.map(|_| now);
            return None;
        };
        self.looked_at = Some(now);
        if !is_first && offset.abs_diff(self.offset) < TOLERANCE.into() {
            return None;
        }
        let expected = self.number(now);
        self.offset = offset;
        let current = self.number(now);
        // Also the period that the clock shows when a state is restored goes on, if it was set back further than to what the
        // state knows of: each restart would begin it anew.
        if self.begun.is_empty() || is_first && current < self.next && self.has_begun(current).is_none() {
            self.begun.push((current.saturating_sub(1), current));
            self.begun.sort_unstable();
            self.current = current;
            self.begun_at = self.at(current).unwrap_or(0);
        }
        let is_skipping = !is_first && current.saturating_sub(1) > expected;
        if self.has_begun(current).is_some() {
            self.next = self.unbegun_from(current.saturating_add(1));
        } else if self.next > current || is_skipping {
            self.next = current;
        }
        // What is restored has made none before its first look.
        let earliest = if is_first { 0 } else { synced.saturating_add(1) };
        Some(self.next_at().max(earliest))
    }

    /// By `now`, the next period has begun, at `next`. Returns how many periods that are, and when the next one begins.
    pub(crate) fn cross(&mut self, now: u64, next: u64) -> (u64, u64) {
        let current = self.number(now).max(self.next);
        let count = (current - self.next) as u64 + 1;
        if let Some((_, last)) = self.begun.iter_mut().find(|(_, last)| *last == self.next - 1) {
            *last = current;
        } else {
            if self.begun.is_full() {
                self.begun.remove(0);
            }
            // The clock can be set back over the beginning of the first one: it goes on then.
            self.begun.push((self.next - 1, current));
            self.begun.sort_unstable();
        }
        self.periods = self.periods.wrapping_add(count);
        self.current = current;
        self.begun_at = self.at(current).map_or(next, |at| at.clamp(next, now));
        self.next = self.unbegun_from(current.saturating_add(1));
        (count, self.next_at())
    }

    /// The instant at which the `count`-th next period begins, if the wall clock is not set.
    pub(crate) fn nth(&self, count: u64) -> Option<u64> {
        self.looked_at?;
        let mut number = self.next.checked_add(i64::try_from(count - 1).ok()?)?;
        for (first, last) in self.begun.iter().filter(|(first, _)| *first > self.next) {
            if *first <= number {
                number = number.checked_add(last - first + 1)?;
            }
        }
        self.at(number)
    }

    /// The instant at which the first of the last `count` periods begins that begin by `at`; `None` if they have not all
    /// yet to begin.
    pub(crate) fn last_begun_by(&self, at: u64, count: u64) -> Option<u64> {
        self.looked_at?;
        let first = self.number(at).checked_sub(i64::try_from(count).ok()?)?.checked_add(1)?;
        if first < self.next { None } else { self.at(first) }
    }

    /// The length of time in which `count` periods begin, at least.
    pub(crate) fn longest(&self, count: u64) -> Option<u64> {
        self.calendar.longest(self.length).checked_mul(count)
    }

    /// Whether a grant that was made at this instant was made in the period that goes on.
    pub(crate) fn is_of_this_period(&self, granted_at: Option<u64>) -> bool {
        granted_at.is_some_and(|at| at >= self.begun_at)
    }

    fn wall(&self, at: u64) -> u64 {
        (i128::from(at) + self.offset).clamp(0, u64::MAX.into()) as u64
    }

    fn number(&self, at: u64) -> i64 {
        self.calendar.number(self.length, self.wall(at))
    }

    fn next_at(&self) -> u64 {
        self.at(self.next).unwrap_or(u64::MAX)
    }

    /// The instant at which the period with this number begins.
    fn at(&self, number: i64) -> Option<u64> {
        let near = self.wall(self.looked_at.unwrap_or(0));
        let start = i128::from(self.calendar.start(self.length, number, near)?);
        u64::try_from((start - self.offset).max(0)).ok()
    }

    /// The last number of the run that has begun and contains `number`.
    fn has_begun(&self, number: i64) -> Option<i64> {
        self.begun.iter().filter(|(first, last)| (first..=last).contains(&&number)).map(|(_, last)| *last).max()
    }

    fn unbegun_from(&self, mut number: i64) -> i64 {
        while let Some(last) = self.has_begun(number) {
            number = last.saturating_add(1);
        }
        number
    }
}
