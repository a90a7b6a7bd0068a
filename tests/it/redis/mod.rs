//! One quota for many machines: the line in memory and the line in Redis.

mod away;
mod cluster;
mod failover;
mod keeper;
mod large;
mod late;
pub(crate) mod law;
mod liveness;
pub(crate) mod masters;
mod memory;
mod nodes;
mod outages;
mod processes;
mod proxy;
mod real;
mod replies;
mod script;
pub(crate) mod server;
mod way;
