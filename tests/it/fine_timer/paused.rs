//! Paused time with the fine timer: the tests of `paused_time`.

#[path = "../paused_time/instants.rs"]
mod instants;
#[path = "../paused_time/replenisher.rs"]
mod replenisher;

use super::*;
use crate::paused_time::{enter, thousand_a_second};
use tokio::task::yield_now;

/// As documented, the coarse timer behind the fine one then serves the waiters, with its lateness.
#[tokio::test]
async fn time_that_is_paused_while_claims_wait_serves_them() {
    let (limiter, start) = thousand_a_second(Limiter::builder());
    let (first, second) = (enter(&limiter, 100_000).await, enter(&limiter, 10).await);
    tokio::time::pause();
    let granted = first.await.unwrap().0;
    assert!(granted >= start + 100_000 * MILLI && granted <= start + 100_022 * MILLI, "{:?}", granted - start);
    let granted = second.await.unwrap().0;
    assert!(granted >= start + 100_010 * MILLI && granted <= start + 100_022 * MILLI, "{:?}", granted - start);
}
