//! What a caller is told: when to come again, what is left, who refused, how long it would take, and that it took too
//! long.

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

impl Stand {
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
