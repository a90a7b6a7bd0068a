//! A limiter with a clock moved by hand, whose callers are polled by hand.

use std::time::Duration;

use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Builder, Consume, Denied, Grant, Limiter, ManualClock, Quota, TryAcquireError};

pub const MILLI: Duration = Duration::from_millis(1);
pub const NANO: Duration = Duration::from_nanos(1);

pub type Waiting<'a> = Spawn<Consume<'a>>;

/// A token each millisecond into an empty bucket.
pub fn one_per_milli(burst: u64) -> Quota {
    Quota::new(1, MILLI).burst(burst).initial(0)
}

/// A limiter and the clock it goes by.
pub struct Stand {
    pub limiter: Limiter,
    pub clock: ManualClock,
}

impl Stand {
    pub fn new(quota: Quota) -> Self {
        Self::built(Limiter::builder().quota(quota))
    }

    pub fn built(builder: Builder) -> Self {
        let clock = ManualClock::new();
        Self { limiter: builder.clock(clock.clone()).build().unwrap(), clock }
    }

    /// A caller at the end of the line.
    #[track_caller]
    pub fn enter(&self, cost: u64) -> Waiting<'_> {
        let mut waiting = spawn(self.limiter.consume(cost));
        assert_pending!(waiting.poll(), "a cost of {cost} should have to wait");
        waiting
    }

    /// A caller who does not have to wait.
    #[track_caller]
    pub fn take(&self, cost: u64) -> Grant<'_> {
        assert_ready_ok!(spawn(self.limiter.consume(cost)).poll())
    }

    pub fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.limiter.tick();
    }

    #[track_caller]
    pub fn denied(&self, cost: u64) -> Denied {
        match self.limiter.try_acquire(cost) {
            Err(TryAcquireError::Denied(denied)) => denied,
            other => panic!("{other:?}"),
        }
    }
}

/// The caller was woken, and finds its grant.
#[track_caller]
pub fn served<'a>(waiting: &mut Waiting<'a>) -> Grant<'a> {
    assert!(waiting.is_woken(), "nobody woke it");
    assert_ready_ok!(waiting.poll())
}

/// The caller was not woken, and finds nothing if it looks all the same.
#[track_caller]
pub fn waits(waiting: &mut Waiting<'_>) {
    assert!(!waiting.is_woken(), "it was woken for nothing");
    assert_pending!(waiting.poll());
}
