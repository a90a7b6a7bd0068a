//! Quotas in Redis: one server, sentinels, a cluster; outages and failovers. Each test starts servers of its own.

#![cfg(all(feature = "cluster", feature = "sentinel"))]

mod claims;
mod cluster;
mod conformance;
mod failover;
#[path = "../../../../tests/it/distributed/law.rs"]
#[allow(dead_code, reason = "the tests with the store in memory use the rest")]
mod law;
mod lazy;
mod masters;
#[path = "../../../../tests/it/distributed/nodes.rs"]
#[allow(dead_code, reason = "the tests with the store in memory use the rest")]
mod nodes;
mod outages;
mod processes;
mod proxy;
mod real;
mod replies;
mod script;
mod server;
mod setup;
mod shared_keys;
mod versions;
