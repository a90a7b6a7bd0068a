//! Calendar quotas: the wall clock is read under the lock, at most once a minute and when a period is about to begin.

use super::{Role, State};
use crate::clock::Time;
use crate::core::calendar::CalendarTime;
use crate::core::outcome::Outcome;
use crate::observe::GrantWord;

/// What a limiter with a calendar quota keeps.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// The clock of the limiter.
    time: Option<Time>,
    /// Until then the wall clock has not to be read again.
    until: u64,
}

impl State {
    /// The quotas have changed at `now`. If one has a calendar, the wall clock of `time` is read from now on.
    pub(crate) fn note_calendars(&mut self, time: &Time, now: u64) {
        let in_dry_run = self.dry_run().is_some_and(|dry_run| dry_run.supply.has_calendar());
        if !in_dry_run && !self.supply.has_calendar() {
            return self.role.remove(Role::CALENDAR);
        }
        self.role.add(Role::CALENDAR);
        self.rare().wall_clock = WallClock { time: Some(time.clone()), until: 0 };
        // Each grant gets its instant, so each passes under the lock; also later, when no quota has a calendar any more.
        self.stride.fix(0);
        self.look_at_wall(now);
    }

    /// Sets the periods of the quota with this index, of which the next begins at `next`: those of all keys of a map.
    pub(crate) fn set_periods(&mut self, index: usize, periods: &CalendarTime, next: u64) {
        self.rare().wall_clock.until = 0;
        self.supply.quota_mut(index).set_periods(periods.clone(), next);
        if let Some(dry_run) = self.rare.as_mut().and_then(|rare| rare.dry_run.as_mut()) {
            dry_run.supply.quota_mut(index).set_periods(periods.clone(), next);
        }
    }

    /// Reads the wall clock, if what is known of it does not hold until `now`.
    pub(super) fn look_at_wall(&mut self, now: u64) {
        let synced = self.supply.synced();
        let now = now.max(synced);
        if self.rare.as_ref().is_none_or(|rare| now < rare.wall_clock.until) {
            return;
        }
        if now >= self.fresh_until() {
            let Some(rare) = &mut self.rare else { return };
            let offset = rare.wall_clock.time.as_ref().and_then(Time::wall_offset);
            self.supply.look(now, offset);
            if let Some(classes) = &mut rare.classes {
                classes.scheduler.with_shadow(synced, |shadow| shadow.look(now, offset));
            }
            if let Some(dry_run) = &mut rare.dry_run {
                dry_run.supply.look(now, offset);
            }
        }
        self.rare().wall_clock.until = self.fresh_until();
    }

    /// The instant at which the wall clock has to be read again.
    pub(super) fn fresh_until(&self) -> u64 {
        let in_dry_run = self.dry_run().map_or(u64::MAX, |dry_run| dry_run.supply.fresh_until());
        self.supply.fresh_until().min(in_dry_run)
    }

    /// The word of a grant that is made now: with a calendar or a sliding quota it tells the instant.
    #[inline]
    pub(crate) fn with_instant(&self, word: GrantWord) -> GrantWord {
        if self.role.has(Role::INSTANTS) { word.with_instant(self.supply.synced()) } else { word }
    }

    /// The outcome of the front claim, with what a dry run, a calendar or a window adds.
    pub(super) fn special_outcome(&mut self, outcome: Outcome) -> Outcome {
        let outcome = self.outcome_in_dry_run(outcome);
        let Outcome::Granted(word) = outcome else { return outcome };
        Outcome::Granted(self.with_instant(word))
    }
}
