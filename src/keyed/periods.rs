//! The periods of calendar quotas of keys. All keys of a map whose quotas have one calendar share its periods.
//!
//! The level of a key refers to the number of periods that had begun, so it does not change when a period begins. What a
//! period is on the time of the map is decided once for all keys, by the call that comes first after its beginning.

use crate::clock::Time;
use crate::core::calendar::CalendarTime;
use crate::quota::Quota;
use crate::sync::Mutex;
use arrayvec::ArrayVec;
use crossbeam_utils::atomic::AtomicCell;
use std::sync::Arc;

/// How many instants at which periods began are remembered.
const BEGUN: usize = 16;

/// The calendars of a map.
#[derive(Debug)]
pub(super) struct Calendars {
    time: Time,
    known: Mutex<Vec<Arc<Periods>>>,
}

/// The periods of one calendar.
#[derive(Debug)]
pub(super) struct Periods {
    time: Time,
    shown: AtomicCell<Shown>,
    state: Mutex<State>,
}

/// What calls read without the lock: [`State`], until that has to be brought up to date.
#[derive(Clone, Copy, Debug)]
struct Shown {
    begun: u64,
    until: u64,
    /// How many periods have begun.
    periods: u64,
}

#[derive(Debug)]
struct State {
    calendar: CalendarTime,
    /// When the next period begins.
    next: u64,
    /// The last instants at which periods were found begun, and how many had begun then: levels are of earlier instants, and
    /// the wall clock may have been set since.
    begun: ArrayVec<(u64, u64), BEGUN>,
}

impl Calendars {
    pub(super) fn new(time: Time) -> Self {
        Self { time, known: Mutex::new(Vec::new()) }
    }

    /// The periods of a quota, if it has a calendar. Periods that are new to the map continue from a saved state if there is
    /// one: there the next period was that which begins at `next` on the wall clock.
    pub(super) fn periods(&self, quota: &Quota, next: Option<u64>) -> Option<Arc<Periods>> {
        let mut calendar = CalendarTime::new(quota.calendar()?, quota);
        let mut known = self.known.lock();
        if let Some(periods) = known.iter().find(|periods| periods.state.lock().calendar.is_like(&calendar)) {
            return Some(Arc::clone(periods));
        }
        next.into_iter().for_each(|next| calendar.restore(next));
        let shown = AtomicCell::new(Shown { begun: 0, until: 0, periods: 0 });
        let state = Mutex::new(State { calendar, next: u64::MAX, begun: ArrayVec::new() });
        let periods = Arc::new(Periods { time: self.time.clone(), shown, state });
        periods.count(self.time.now());
        known.push(Arc::clone(&periods));
        Some(periods)
    }
}

impl Periods {
    /// How many periods have begun by `at`, from some number on.
    pub(super) fn count(&self, at: u64) -> u64 {
        let Shown { begun, until, periods } = self.shown.load();
        if (begun..until).contains(&at) {
            return periods;
        }
        self.at(at, |state| state.count_at(at))
    }

    /// The instant at which `periods` more have begun than at `at`.
    pub(super) fn reached(&self, at: u64, periods: u64) -> Option<u64> {
        self.at(at, |state| match periods.checked_sub(state.calendar.periods() - state.count_at(at)) {
            None | Some(0) => Some(state.calendar.begun_at().max(at)),
            Some(1) => Some(state.next).filter(|next| *next != u64::MAX),
            Some(more) => state.calendar.nth(more),
        })
    }

    /// When the period began that goes on at `at`.
    pub(super) fn begun(&self, at: u64) -> u64 {
        self.at(at, |state| state.calendar.begun_at())
    }

    /// The instant on the wall clock at which the first period begins that had not begun by `at`, if it is known.
    #[cfg(feature = "state")]
    pub(super) fn next_on_wall(&self, at: u64) -> Option<u64> {
        self.at(at, |state| state.calendar.next_on_wall_after(at))
    }

    /// The periods, for the live entry of a key, and when the next one begins.
    pub(super) fn of_live_entry(&self, at: u64) -> (CalendarTime, u64) {
        self.at(at, |state| (state.calendar.clone(), state.next))
    }

    /// A live entry that has been served up to `at` may have been the first to find that a period has begun.
    pub(super) fn catch_up(&self, live: &CalendarTime, next: u64, at: u64) {
        let mut state = self.state.lock();
        if live.periods() > state.calendar.periods() {
            // Calls for other keys have relied on the last look.
            let relied_on = state.calendar.fresh_until(state.next).min(at);
            (state.calendar, state.next) = (live.clone().begun_from(relied_on), next);
            self.show(&mut state);
        }
    }

    fn at<R>(&self, at: u64, read: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let until = state.calendar.fresh_until(state.next);
        if at >= until {
            // Calls before `until` have relied on the look before this one.
            if let Some(next) = state.calendar.look(at, self.time.wall_offset(), until.saturating_sub(1)) {
                state.next = next;
            }
            if at >= state.next {
                let next = state.next;
                (_, state.next) = state.calendar.cross(at, next);
            }
            self.show(&mut state);
        }
        read(&mut state)
    }

    fn show(&self, state: &mut State) {
        let (begun, periods) = (state.calendar.begun_at(), state.calendar.periods());
        if state.begun.last().is_none_or(|(_, known)| *known != periods) {
            if state.begun.is_full() {
                state.begun.remove(0);
            }
            state.begun.push((begun, periods));
        }
        self.shown.store(Shown { begun, until: state.calendar.fresh_until(state.next), periods });
    }
}

impl State {
    /// [`Periods::count`], also of an instant before this period.
    fn count_at(&self, at: u64) -> u64 {
        if let Some((_, periods)) = self.begun.iter().rev().find(|(begun, _)| *begun <= at) {
            return *periods;
        }
        // So long ago, as if the wall clock had not been set.
        let oldest = self.begun.first().map_or(self.calendar.periods(), |(_, periods)| *periods);
        let earlier = self.calendar.periods_since(at).saturating_sub(self.calendar.periods() - oldest).max(1);
        oldest.saturating_sub(earlier)
    }
}

#[cfg(all(test, feature = "calendar", not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::ManualClock;
    use crate::clock::time::Chosen;
    use std::time::Duration;

    #[test]
    fn how_many_periods_had_begun_is_known_of_each_instant_afterwards() {
        let clock = ManualClock::new();
        let calendars = Calendars::new(Time::other(Chosen::new(clock.clone())));
        let periods = calendars.periods(&Quota::per_calendar_hour(10), None).unwrap();
        let counts: Vec<_> = (0..2 * BEGUN as u64)
            .map(|_| {
                clock.advance(Duration::from_secs(3_600));
                let now = calendars.time.now();
                (now, periods.count(now))
            })
            .collect();
        for (nth, (at, count)) in (0..).zip(&counts) {
            assert_eq!((periods.count(*at), *count), (*count, counts[0].1 + nth));
        }
    }
}
