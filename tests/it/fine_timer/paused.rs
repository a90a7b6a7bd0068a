//! Paused time with the fine timer: the tests of `paused_time`.

#[path = "../paused_time/instants.rs"]
mod instants;
#[path = "../paused_time/replenisher.rs"]
mod replenisher;

use super::*;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};
use tollgate::OwnedGrant;

const MILLI: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

fn thousand_a_second(builder: Builder) -> (tollgate::Limiter, Instant) {
    (builder.quota(Quota::per_second(1_000).burst(1_000).initial(0)).build().unwrap(), Instant::now())
}

async fn enter(limiter: &tollgate::Limiter, cost: u64) -> JoinHandle<(Instant, OwnedGrant)> {
    let claim = limiter.clone().consume_owned(cost);
    let task = tokio::spawn(async move {
        let grant = claim.await.unwrap();
        (Instant::now(), grant)
    });
    yield_now().await;
    task
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

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
