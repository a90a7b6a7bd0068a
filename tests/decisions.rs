//! What a caller is told: when to come again, what is left, who refused, how long it would take, and that it took too
//! long.

#[path = "decisions/errors.rs"]
mod errors;
#[path = "decisions/estimates.rs"]
mod estimates;
#[path = "decisions/refusals.rs"]
mod refusals;
#[path = "decisions/repeated.rs"]
mod repeated;
#[path = "decisions/within.rs"]
mod within;

use std::time::Duration;

use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Bound, Builder, Consume, Denied, Grant, Limiter, ManualClock, Quota, TryAcquireError};

const MILLI: Duration = Duration::from_millis(1);
const NANO: Duration = Duration::from_nanos(1);

/// A token each millisecond into an empty bucket.
fn one_per_milli(burst: u64) -> Quota {
    Quota::new(1, MILLI).burst(burst).initial(0)
}

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

    #[track_caller]
    fn enter(&self, cost: u64) -> Spawn<Consume<'_>> {
        let mut waiting = spawn(self.limiter.consume(cost));
        assert_pending!(waiting.poll());
        waiting
    }

    #[track_caller]
    fn take(&self, cost: u64) -> Grant<'_> {
        assert_ready_ok!(spawn(self.limiter.consume(cost)).poll())
    }

    #[track_caller]
    fn denied(&self, cost: u64) -> Denied {
        match self.limiter.try_acquire(cost) {
            Err(TryAcquireError::Denied(denied)) => denied,
            other => panic!("{other:?}"),
        }
    }

    /// Who refused, what is left, and when to come again, in milliseconds.
    #[track_caller]
    fn refusal(&self, cost: u64) -> (Bound, u64, Option<u64>) {
        let Denied { by, remaining, retry_after, .. } = self.denied(cost);
        (by, remaining, retry_after.map(|wait| wait.as_millis() as u64))
    }

    /// Waits as long as the refusal says: a nanosecond less must not help, and that long must.
    #[track_caller]
    fn heed(&self, cost: u64) -> Duration {
        let wait = self.denied(cost).retry_after.expect("a clock can tell");
        self.clock.advance(wait - NANO);
        assert_eq!(self.denied(cost).retry_after, Some(NANO), "{wait:?} was too long");
        self.clock.advance(NANO);
        drop(self.limiter.try_acquire(cost).expect("the hint was too short"));
        wait
    }
}
