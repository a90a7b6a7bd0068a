//! Replays a trace on a real limiter, in simulated time.
//!
//! Each call arrives at its instant, however long the calls before it wait. So no future has to be kept waiting
//! (*parked*): `estimate` is the wait in FIFO order, and a grant of cost 0 that is settled for the real cost turns the
//! cost into a debt. Later calls wait for the debt as they would wait for a parked call. With one continuous quota of
//! at most one token per nanosecond, the wait depends on the tokens claimed before it alone, so both give the same
//! instants. `tests/parked.rs` compares them. With a stepped quota they differ: a step is cut to the burst for the
//! first parked call, and for a debt it is not.

use crate::Failure;
use crate::event::Event;
use std::cmp::Ordering;
use std::slice::Iter;
use std::time::Duration;
use tollgate::{ConfigError, KeyedLimiter, Limiter, ManualClock, Quota};

/// What all replays of a session have in common.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Each key has a quota of its own.
    pub per_key: bool,
    /// The longest wait that a caller accepts: the deadline of `within`.
    pub max_wait: Option<Duration>,
}

/// A quota that can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate(Quota);

impl Candidate {
    pub fn new(quota: Quota) -> Result<Self, Failure> {
        if quota.is_manual() || quota.is_stepped() {
            return Err(
                format!("`{quota}` is not continuous: write a rate and a burst, such as `100/s, burst 20`").into()
            );
        }
        if u128::from(quota.amount()) > quota.period().as_nanos() {
            return Err(format!("`{quota}` is more than 1000000000/s: write a smaller rate").into());
        }
        Limiter::new(quota)?;
        Ok(Self(quota))
    }

    pub fn quota(self) -> Quota {
        self.0
    }

    /// Orders by rate, then by burst.
    pub fn compare(self, other: Self) -> Ordering {
        let (one, other) = (self.0, other.0);
        let (own, others) = (one.period().as_nanos(), other.period().as_nanos());
        let rates = (u128::from(one.amount()) * others).cmp(&(u128::from(other.amount()) * own));
        rates.then(one.capacity().cmp(&other.capacity()))
    }
}

enum Subject {
    Whole(Limiter),
    PerKey(KeyedLimiter<u32>),
}

/// An iterator over the waits of the calls; `None` for a call that is refused.
pub struct Replay<'t> {
    events: Iter<'t, Event>,
    setting: Setting,
    subject: Subject,
    clock: ManualClock,
    now: u64,
}

impl<'t> Replay<'t> {
    /// Replays calls, in the order of their instants.
    ///
    /// # Errors
    ///
    /// A quota that starts with fewer tokens than its burst cannot be a quota per key.
    pub fn new(events: &'t [Event], candidate: Candidate, setting: Setting) -> Result<Self, ConfigError> {
        let (clock, quota) = (ManualClock::new(), candidate.0);
        let subject = if setting.per_key {
            // The debts of all keys are kept, however many they are.
            let keys = KeyedLimiter::builder().quota(quota).clock(clock.clone()).unbounded_keys();
            Subject::PerKey(keys.build()?)
        } else {
            Subject::Whole(Limiter::builder().quota(quota).clock(clock.clone()).build()?)
        };
        let now = events.first().map_or(0, |event| event.at);
        Ok(Self { events: events.iter(), setting, subject, clock, now })
    }
}

impl Iterator for Replay<'_> {
    type Item = Option<Duration>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.events.next()?;
        self.clock.advance(Duration::from_nanos(event.at - self.now));
        self.now = event.at;
        let wait = self.subject.estimate(event);
        let granted = wait.filter(|wait| self.setting.max_wait.is_none_or(|most| *wait <= most));
        if granted.is_some() {
            self.subject.charge(event);
        }
        Some(granted)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}

impl Subject {
    /// `None` if the wait is longer than 584 years: then the call counts as refused.
    fn estimate(&self, event: &Event) -> Option<Duration> {
        match self {
            Self::Whole(limiter) => limiter.estimate(event.cost),
            Self::PerKey(keys) => keys.estimate(&event.key, event.cost),
        }
    }

    fn charge(&self, event: &Event) {
        let free = "a cost of 0 is always granted";
        match self {
            Self::Whole(limiter) => limiter.try_acquire(0).expect(free).settle(event.cost),
            Self::PerKey(keys) => keys.try_acquire(&event.key, 0).expect(free).settle(&event.key, event.cost),
        }
    }
}
