//! Keyed limiters with quotas that many machines share, over stores in memory. The tests with Redis are in
//! `tollgate-redis`.

mod bounded;
mod histories;
mod hostile;
mod memory;
mod names;
mod outages;
mod trips;

use crate::fixture::*;
use tollgate::DistributedKeyedLimiter;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A node of all the stores in this memory.
fn node(store: &MemoryStore, quota: Quota) -> DistributedKeyedLimiter<u64> {
    DistributedKeyedLimiter::builder(store.clone()).quota(quota).build().unwrap()
}

/// A store, and a node of it.
fn one_node(quota: Quota) -> (MemoryStore, DistributedKeyedLimiter<u64>) {
    let store = MemoryStore::new();
    let node = node(&store, quota);
    (store, node)
}

/// A store, and two nodes of it.
fn nodes(quota: Quota) -> (MemoryStore, [DistributedKeyedLimiter<u64>; 2]) {
    let store = MemoryStore::new();
    let nodes = [node(&store, quota), node(&store, quota)];
    (store, nodes)
}
