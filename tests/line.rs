//! The waiting line, polled by hand under a clock moved by hand: who passes, at which instant, and who is woken for it.

#[path = "line/joining.rs"]
mod joining;
#[path = "line/leaving.rs"]
mod leaving;
#[path = "line/permutations.rs"]
mod permutations;
#[path = "line/unread.rs"]
mod unread;
#[path = "line/wakers.rs"]
mod wakers;

use std::time::Duration;

use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Builder, Consume, Grant, Limiter, ManualClock, Quota};

const MILLI: Duration = Duration::from_millis(1);
const NANO: Duration = Duration::from_nanos(1);

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
}

/// The caller was woken, and finds its grant.
#[track_caller]
fn served<'a>(waiting: &mut Waiting<'a>) -> Grant<'a> {
    assert!(waiting.is_woken(), "nobody woke it");
    assert_ready_ok!(waiting.poll())
}

/// The caller was not woken, and finds nothing if it looks all the same.
#[track_caller]
fn waits(waiting: &mut Waiting<'_>) {
    assert!(!waiting.is_woken(), "it was woken for nothing");
    assert_pending!(waiting.poll());
}
