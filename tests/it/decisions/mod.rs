//! The answers to callers: the wait, the remaining tokens, the bound that refused, the estimate, and the timeout.

mod errors;
mod estimates;
mod refusals;
mod repeated;
mod within;

use crate::fixture::*;
use std::time::Duration;

use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Bound, Builder, Denied, Limiter, Quota, TryAcquireError};

impl Fixture {
    /// The bound that refused, the remaining tokens, and the wait in milliseconds.
    #[track_caller]
    fn refusal(&self, cost: u64) -> (Bound, u64, Option<u64>) {
        let Denied { by, remaining, retry_after, .. } = self.denied(cost);
        (by, remaining, retry_after.map(|wait| wait.as_millis() as u64))
    }

    /// Waits as long as the refusal says. A nanosecond less must not be enough.
    #[track_caller]
    fn heed(&self, cost: u64) -> Duration {
        let wait = self.denied(cost).retry_after.expect("the denial has a retry_after");
        self.clock.advance(wait - NANO);
        assert_eq!(self.denied(cost).retry_after, Some(NANO), "{wait:?} was too long");
        self.clock.advance(NANO);
        drop(self.limiter.try_acquire(cost).expect("the hint was too short"));
        wait
    }
}
