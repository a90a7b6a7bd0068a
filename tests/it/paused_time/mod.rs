//! Paused tokio time and the automatic replenisher: everything happens at its exact instant, to the timer's
//! millisecond, and no task and no timer remains.

mod instants;
mod leaping;
pub(crate) mod replenisher;
mod two_runtimes;

use crate::fixture::*;

use tokio::task::{JoinHandle, yield_now};
use tollgate::OwnedGrant;

/// A thousand tokens a second into an empty bucket, and the instant at which it was built.
pub(crate) fn thousand_a_second(builder: Builder) -> (Limiter, Instant) {
    (builder.quota(Quota::per_second(1_000).burst(1_000).initial(0)).build().unwrap(), Instant::now())
}

/// A task that enters the queue now, and returns when it was granted.
pub(crate) async fn enter(limiter: &Limiter, cost: u64) -> JoinHandle<(Instant, OwnedGrant)> {
    let claim = limiter.clone().consume_owned(cost);
    let task = tokio::spawn(async move {
        let grant = claim.await.unwrap();
        (Instant::now(), grant)
    });
    yield_now().await;
    task
}
