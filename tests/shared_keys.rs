//! Keyed limiters whose quotas many machines share: over lines in memory, and over Redis.
#![cfg(all(feature = "redis", feature = "keyed"))]

#[path = "shared_keys/histories.rs"]
mod histories;
#[path = "shared_keys/hostile.rs"]
mod hostile;
#[path = "redis/law.rs"]
mod law;
#[allow(dead_code, reason = "no replica takes over here")]
#[path = "redis/masters.rs"]
mod masters;
#[path = "shared_keys/memory.rs"]
mod memory;
#[path = "shared_keys/outages.rs"]
mod outages;
#[path = "shared_keys/places.rs"]
mod places;
#[path = "shared_keys/real.rs"]
mod real;
#[allow(dead_code, reason = "no server is restarted as a replica here")]
#[path = "redis/server.rs"]
mod server;
#[path = "shared_keys/stalls.rs"]
mod stalls;
#[path = "shared_keys/trips.rs"]
mod trips;

use std::time::Duration;
use tollgate::lease::MemoryLine;
use tollgate::{KeyedLimiter, Quota, SharedKeyedLimiter};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A node of all the lines in this memory.
fn node(lines: &MemoryLine, quota: Quota) -> SharedKeyedLimiter<u64> {
    KeyedLimiter::builder().quota(quota).shared(lines.clone()).build().unwrap()
}
