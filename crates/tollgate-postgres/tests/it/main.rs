//! Quotas in PostgreSQL. Each test starts a server of its own.

mod conformance;
#[path = "../../../../tests/it/distributed/law.rs"]
#[allow(dead_code, reason = "the tests with the store in memory use the rest")]
mod law;
#[path = "../../../../tests/it/distributed/nodes.rs"]
#[allow(dead_code, reason = "the tests with the store in memory use the rest")]
mod nodes;
mod outages;
mod server;
mod setup;
mod stores;
