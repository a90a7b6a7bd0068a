//! Semantics, where other limiters surprise their users: question after question, each answered by tests whose names
//! begin with it. The files below are in the order of the questions.

// Costs, the line, leaving it, being refused.
#[path = "semantics/asking.rs"]
mod asking;

// What comes back, what is charged afterwards, the ceiling.
#[path = "semantics/paying.rs"]
mod paying;

// Another quota, a pause, no burst given, the end.
#[path = "semantics/changing.rs"]
mod changing;

// Fractions, idle time, clocks that step back.
#[path = "semantics/time.rs"]
mod time;

// Runtimes that end, and runtimes that nobody drives.
#[path = "semantics/runtimes.rs"]
mod runtimes;

use std::time::Duration;

use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Bound, Builder, Consume, Denied, Grant, Limiter, ManualClock, Quota, TryAcquireError};

const MILLI: Duration = Duration::from_millis(1);
const NANO: Duration = Duration::from_nanos(1);
const DAY: Duration = Duration::from_secs(86_400);

type Waiting<'a> = Spawn<Consume<'a>>;

/// A token each millisecond into an empty bucket.
fn one_per_milli(burst: u64) -> Quota {
    Quota::new(1, MILLI).burst(burst).initial(0)
}

/// A limiter and the clock it goes by.
struct Stand {
    limiter: Limiter,
    clock: ManualClock,
}

impl Stand {
    fn new(quota: Quota) -> Self {
        Self::built(Limiter::builder().quota(quota))
    }

    fn built(builder: Builder) -> Self {
        let clock = ManualClock::new();
        Self { limiter: builder.clock(clock.clone()).build().unwrap(), clock }
    }

    /// A caller at the end of the line.
    #[track_caller]
    fn enter(&self, cost: u64) -> Waiting<'_> {
        let mut waiting = spawn(self.limiter.consume(cost));
        assert_pending!(waiting.poll(), "a cost of {cost} should have to wait");
        waiting
    }

    /// A caller who does not have to wait.
    #[track_caller]
    fn take(&self, cost: u64) -> Grant<'_> {
        assert_ready_ok!(spawn(self.limiter.consume(cost)).poll())
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.limiter.tick();
    }

    #[track_caller]
    fn denied(&self, cost: u64) -> Denied {
        match self.limiter.try_acquire(cost) {
            Err(TryAcquireError::Denied(denied)) => denied,
            other => panic!("{other:?}"),
        }
    }

    /// Tokens in the first bucket, debts deducted.
    fn level(&self) -> i64 {
        self.limiter.snapshot().quotas[0].level
    }
}

#[track_caller]
fn served<'a>(waiting: &mut Waiting<'a>) -> Grant<'a> {
    assert!(waiting.is_woken(), "nobody woke it");
    assert_ready_ok!(waiting.poll())
}

#[track_caller]
fn waits(waiting: &mut Waiting<'_>) {
    assert!(!waiting.is_woken(), "it was woken for nothing");
    assert_pending!(waiting.poll());
}

/// How many of `line` were granted since they last looked; those leave the line.
fn count_served(line: &mut Vec<Waiting<'_>>) -> usize {
    let before = line.len();
    line.retain_mut(|waiting| !waiting.is_woken() || waiting.poll().is_pending());
    before - line.len()
}
