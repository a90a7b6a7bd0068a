//! Nodes of a fleet: limiters over one store.

use super::law::Ledger;
use std::time::Duration;
use tokio::time::timeout;
use tollgate::distributed::Store;
use tollgate::{Limiter, Quota};

pub(crate) fn limiter(store: &(impl Store + Clone), quota: Quota) -> Limiter {
    Limiter::builder().quota(quota).distributed(store.clone()).build().unwrap()
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Consumes one claim after the other for `time`, and records the grants.
pub(crate) async fn consume_for(limiter: Limiter, cost: u64, time: Duration, ledger: Ledger) -> u64 {
    let mut got = 0;
    let consume = async {
        while limiter.consume(cost).await.is_ok() {
            ledger.note(cost);
            got += cost;
        }
    };
    _ = timeout(time, consume).await;
    got
}
