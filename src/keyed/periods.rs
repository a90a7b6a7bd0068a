//! The periods of calendar quotas of keys. All keys of a map whose quotas have one calendar share its periods.
//!
//! The level of a key refers to the number of periods that had begun, so it does not change when a period begins. What a
//! period is on the time of the map is decided once for all keys, by the call that comes first after its beginning.

use crate::clock::Time;
use crate::core::calendar::{CalendarTime, Stamp};
use crate::quota::Quota;
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::sync::Arc;

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
    shown: Shown,
    state: Mutex<State>,
}

/// What calls read without the lock: [`State`], until that has to be brought up to date. A writer makes `until` 0 before it
/// changes the others, and no two values of `until` are the same.
#[derive(Debug)]
struct Shown {
    until: AtomicU64,
    begun: AtomicU64,
    /// How many periods have begun.
    periods: AtomicU64,
    /// What stamps count.
    count: AtomicU64,
}

#[derive(Debug)]
struct State {
    calendar: CalendarTime,
    /// When the next period begins.
    next: u64,
    /// When this period began.
    begun: u64,
}

impl Calendars {
    pub(super) fn new(time: Time) -> Self {
        Self { time, known: Mutex::new(Vec::new()) }
    }

    /// The periods of a quota, if it has a calendar.
    pub(super) fn periods(&self, quota: &Quota) -> Option<Arc<Periods>> {
        let calendar = CalendarTime::new(quota.calendar()?, quota).of_keys();
        let mut known = self.known.lock();
        if let Some(periods) = known.iter().find(|periods| periods.state.lock().calendar.is_like(&calendar)) {
            return Some(Arc::clone(periods));
        }
        let shown = Shown {
            until: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            periods: AtomicU64::new(0),
            count: AtomicU64::new(0),
        };
        let state = Mutex::new(State { calendar, next: u64::MAX, begun: 0 });
        let periods = Arc::new(Periods { time: self.time.clone(), shown, state });
        periods.count(self.time.now());
        known.push(Arc::clone(&periods));
        Some(periods)
    }
}

impl Periods {
    /// How many periods have begun by `at`, from some number on, and what stamps count.
    pub(super) fn counts(&self, at: u64) -> (u64, u64) {
        let Shown { until, begun, periods, count } = &self.shown;
        let shown_until = until.load(Ordering::Acquire);
        let counts = (periods.load(Ordering::Acquire), count.load(Ordering::Acquire));
        let is_shown = (begun.load(Ordering::Acquire)..shown_until).contains(&at);
        if is_shown && until.load(Ordering::Acquire) == shown_until {
            return counts;
        }
        self.at(at, |state| state.counts_at(at))
    }

    /// How many periods have begun by `at`, from some number on.
    pub(super) fn count(&self, at: u64) -> u64 {
        self.counts(at).0
    }

    /// The instant at which `periods` more have begun than at `at`.
    pub(super) fn reached(&self, at: u64, periods: u64) -> Option<u64> {
        self.at(at, |state| match periods.checked_sub(state.calendar.periods() - state.counts_at(at).0) {
            None | Some(0) => Some(state.begun.max(at)),
            Some(1) => Some(state.next).filter(|next| *next != u64::MAX),
            Some(more) => state.calendar.nth(more),
        })
    }

    /// When the period began that goes on at `at`.
    pub(super) fn begun(&self, at: u64) -> u64 {
        self.at(at, |state| state.begun)
    }

    /// The periods, for the live entry of a key, and when the next one begins.
    pub(super) fn of_live_entry(&self, at: u64) -> (CalendarTime, u64) {
        self.at(at, |state| (state.calendar.clone(), state.next))
    }

    /// A live entry may have been the first to find that a period has begun.
    pub(super) fn catch_up(&self, live: &CalendarTime, next: u64) {
        let mut state = self.state.lock();
        if live.periods() == state.calendar.periods() {
            // After a long rest the map can count less than the live entry, and no grant of a later period may have a
            // stamp below those that the entry has given.
            state.calendar.count_at_least(live.count());
            self.show(&state);
        }
        if live.periods() > state.calendar.periods() {
            *state = State { calendar: live.clone(), next, begun: live.begun_at() };
            self.show(&state);
        }
    }

    fn at<R>(&self, at: u64, read: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let until = state.calendar.fresh_until(state.next);
        if at >= until {
            let is_first = until == 0;
            if let Some(next) = state.calendar.look(at, self.time.wall_offset()) {
                // Calls before `until` have relied on the look before this one.
                state.next = next.max(until.min(at));
            }
            if is_first {
                state.begun = state.calendar.begun_at();
            }
            if at >= state.next {
                let next = state.next;
                (_, state.next) = state.calendar.cross(at);
                state.begun = state.calendar.begun_at().max(next);
            }
            self.show(&state);
        }
        read(&mut state)
    }

    fn show(&self, state: &State) {
        self.shown.until.store(0, Ordering::Release);
        self.shown.begun.store(state.begun, Ordering::Release);
        self.shown.periods.store(state.calendar.periods(), Ordering::Release);
        self.shown.count.store(state.calendar.count(), Ordering::Release);
        self.shown.until.store(state.calendar.fresh_until(state.next), Ordering::Release);
    }
}

impl State {
    /// [`Periods::counts`], also of an instant before this period.
    fn counts_at(&self, at: u64) -> (u64, u64) {
        let earlier = if at < self.begun { self.calendar.periods_since(at).max(1) } else { 0 };
        let count = self.calendar.count().saturating_sub(earlier);
        (self.calendar.periods().saturating_sub(earlier), count)
    }
}

/// The stamp of a grant at `at` under quotas with these periods.
pub(super) fn stamp<'a>(periods: impl Iterator<Item = &'a Periods>, at: u64) -> Stamp {
    Stamp::of(periods.map(|periods| periods.counts(at).1).fold(0, u64::wrapping_add))
}
