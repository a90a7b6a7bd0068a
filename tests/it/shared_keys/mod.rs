//! Keyed limiters with quotas that many machines share, over stores in memory. The tests with Redis are in
//! `tollgate-redis`.

mod bounded;
mod histories;
mod hostile;
mod memory;
mod names;
mod outages;
mod trips;

use std::time::Duration;
use tollgate::distributed::MemoryStore;
use tollgate::{KeyedLimiter, Quota};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A node of all the stores in this memory.
fn node(store: &MemoryStore, quota: Quota) -> KeyedLimiter<u64> {
    KeyedLimiter::builder().quota(quota).distributed(store.clone()).build().unwrap()
}
