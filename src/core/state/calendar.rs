//! Calendar quotas: the wall clock is read under the lock, at most once a minute and when a period is about to begin.

use super::{Role, State};
use crate::clock::Time;
use crate::core::calendar::{CalendarTime, Stamp};
use crate::core::outcome::Outcome;
use crate::observe::Verdict;

/// What a limiter with a calendar quota keeps.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// The clock of the limiter.
    time: Option<Time>,
    /// What the quotas that were replaced add to the number of periods.
    periods_before: u64,
    /// The number of periods at the last grant.
    periods: u64,
    /// The stamp of the last grant, and of all before the instant `until`.
    stamp: Stamp,
    until: u64,
}

impl State {
    /// The quotas have changed. If one has a calendar, the wall clock of `time` is read from now on.
    pub(crate) fn note_calendars(&mut self, time: &Time) {
        if let Some(rare) = &mut self.rare {
            rare.wall_clock.until = 0;
        }
        let in_dry_run = self.dry_run().is_some_and(|dry_run| dry_run.supply().has_calendar());
        if !in_dry_run && !self.supply.has_calendar() {
            return self.role.remove(Role::CALENDAR);
        }
        self.role.add(Role::CALENDAR);
        // No grant that was made before counts as one of a period of the new quotas.
        let begun = self.periods_begun();
        let wall_clock = &mut self.rare().wall_clock;
        wall_clock.periods_before += (wall_clock.periods + 1).saturating_sub(wall_clock.periods_before + begun);
        wall_clock.time = Some(time.clone());
        // Each grant gets a stamp, so each passes under the lock.
        self.stride.fix(0);
        self.look_at_wall(time.now());
    }

    /// Sets the periods of the quota with this index, of which the next begins at `next`: those of all keys of a map.
    pub(crate) fn set_periods(&mut self, index: usize, periods: &CalendarTime, next: u64) {
        self.supply.quota_mut(index).set_periods(periods.clone(), next);
        if let Some(dry_run) = self.rare.as_mut().and_then(|rare| rare.dry_run.as_mut()) {
            dry_run.set_periods(index, periods, next);
        }
    }

    /// Reads the wall clock, if what is known of it does not hold until `now`.
    pub(super) fn look_at_wall(&mut self, now: u64) {
        let now = now.max(self.supply.synced());
        if now < self.fresh_until() {
            return;
        }
        let Some(rare) = &mut self.rare else { return };
        rare.wall_clock.until = 0;
        let offset = rare.wall_clock.time.as_ref().and_then(Time::wall_offset);
        self.supply.look(now, offset);
        if let Some(classes) = &mut rare.classes {
            classes.scheduler.look(now, offset);
        }
        if let Some(dry_run) = &mut rare.dry_run {
            dry_run.look(now, offset);
        }
    }

    /// The instant at which the wall clock has to be read again.
    fn fresh_until(&self) -> u64 {
        let in_dry_run = self.dry_run().map_or(u64::MAX, |dry_run| dry_run.supply().fresh_until());
        self.supply.fresh_until().min(in_dry_run)
    }

    /// When the queue must be served, if that is at `due` unless the wall clock is set.
    pub(super) fn due_by_wall(&self, due: u64) -> u64 {
        let waits = self.queue.has_joint() || !self.queue.is_empty() || due < u64::MAX;
        if self.role.has_calendar() && waits { due.min(self.fresh_until()) } else { due }
    }

    /// The stamp of a grant at `now`, if that is the stamp of the last grant.
    #[inline]
    pub(super) fn stamp_until(&self, now: u64) -> Option<Stamp> {
        let wall_clock = &self.rare.as_ref()?.wall_clock;
        (now < wall_clock.until).then_some(wall_clock.stamp)
    }

    /// The periods begun of all quotas, those in dry run included.
    fn periods_begun(&self) -> u64 {
        self.dry_run().map_or(&self.supply, |dry_run| dry_run.supply()).periods_begun()
    }

    /// The word of a grant that is made now. With a calendar quota it tells the period, and with a sliding one alone, without
    /// a dry run, the instant.
    #[inline]
    pub(crate) fn stamped(&mut self, word: u64) -> u64 {
        if self.role.has_special_words() { self.stamped_specially(word) } else { word }
    }

    #[inline(never)]
    fn stamped_specially(&mut self, word: u64) -> u64 {
        if !self.role.has_calendar() {
            let is_counted = self.role.has_sliding() && !self.role.has_dry_run();
            let stamp = Stamp::of_instant(self.supply.synced());
            return if is_counted { Verdict::stamped(word, stamp) } else { word };
        }
        // None begins before that without another look at the wall clock, unless one is due already.
        let (begun, until) = (self.periods_begun(), self.fresh_until().min(self.supply.next_period()));
        let synced = self.supply.synced();
        let rare = self.rare();
        rare.wall_clock.until = if until > synced { until } else { 0 };
        rare.wall_clock.periods = rare.wall_clock.periods_before + begun;
        let stamp = Stamp::of(rare.wall_clock.periods);
        rare.wall_clock.stamp = stamp;
        if let Some(dry_run) = &mut rare.dry_run {
            dry_run.note_stamp(stamp);
        }
        self.supply.note_stamp(stamp);
        Verdict::stamped(word, stamp)
    }

    /// The outcome of the front claim, with what a dry run, a calendar or a window adds.
    pub(super) fn special_outcome(&mut self, outcome: Outcome) -> Outcome {
        let outcome = if self.role.has_dry_run() { self.outcome_in_dry_run(outcome) } else { outcome };
        let Outcome::Granted { remaining } = outcome else { return outcome };
        Outcome::Granted { remaining: self.stamped(remaining) }
    }
}
