//! Replays a trace on a real limiter, in simulated time.
//!
//! Each call arrives at its instant, however long the calls before it wait: `estimate` is the wait in FIFO order. With a
//! continuous quota of at most one token per nanosecond, no future has to be kept waiting (*parked*): a grant of cost 0
//! that is settled for the real cost turns the cost into a debt, for which later calls wait as for a parked call. With
//! other quotas the two differ: a step is cut to the burst for the first parked call, and not for a debt, which also
//! counts in another window or period. So their calls are parked. `tests/parked.rs` compares all waits with real ones.

use crate::Failure;
use crate::event::Event;
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::slice::Iter;
use std::task::{Context, Waker};
use std::time::{Duration, UNIX_EPOCH};
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
        if quota.is_manual() {
            return Err(format!("`{quota}` has no rate: write one, such as `100/s, burst 20`").into());
        }
        if !is_parked(quota) && u128::from(quota.amount()) > quota.period().as_nanos() {
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

/// Whether the calls that wait are parked, with this quota.
fn is_parked(quota: Quota) -> bool {
    quota.is_stepped() || quota.is_sliding()
}

type Claim = Pin<Box<dyn Future<Output = ()>>>;

enum Subject {
    Whole(Limiter),
    PerKey(KeyedLimiter<u32>),
}

/// An iterator over the waits of the calls; `None` for a call that is refused.
pub struct Replay<'t> {
    events: Iter<'t, Event>,
    setting: Setting,
    subject: Subject,
    /// The calls that are parked, by key; `None` if they become debts.
    parked: Option<HashMap<u32, VecDeque<Claim>>>,
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
        let now = events.first().map_or(0, |event| event.at);
        clock.set_wall(UNIX_EPOCH + Duration::from_nanos(now));
        let subject = if setting.per_key {
            // The debts of all keys are kept, however many they are.
            let keys = KeyedLimiter::builder().quota(quota).clock(clock.clone()).unbounded_keys();
            Subject::PerKey(keys.build()?)
        } else {
            Subject::Whole(Limiter::builder().quota(quota).clock(clock.clone()).build()?)
        };
        let parked = is_parked(quota).then(HashMap::new);
        Ok(Self { events: events.iter(), setting, subject, parked, clock, now })
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
            match &mut self.parked {
                Some(parked) => {
                    let key = if self.setting.per_key { event.key } else { 0 };
                    park(self.subject.claim(event), parked.entry(key).or_default());
                }
                None => self.subject.charge(event),
            }
        }
        Some(granted)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}

/// Makes the call, and parks it behind the calls of its key that wait still.
fn park(mut claim: Claim, parked: &mut VecDeque<Claim>) {
    let mut context = Context::from_waker(Waker::noop());
    while parked.front_mut().is_some_and(|first| first.as_mut().poll(&mut context).is_ready()) {
        parked.pop_front();
    }
    if claim.as_mut().poll(&mut context).is_pending() {
        parked.push_back(claim);
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

    fn claim(&self, event: &Event) -> Claim {
        let granted = "a call with an estimate is granted";
        match self {
            Self::Whole(limiter) => {
                let claim = limiter.clone().consume_owned(event.cost);
                Box::pin(async { drop(claim.await.expect(granted)) })
            }
            Self::PerKey(keys) => {
                let claim = keys.clone().consume_owned(event.key, event.cost);
                Box::pin(async { drop(claim.await.expect(granted)) })
            }
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
