//! One quota for many machines: the line in memory and the line in Redis.

mod away;
mod cluster;
mod failover;
mod keeper;
mod large;
mod late;
pub(crate) mod law;
pub(crate) mod masters;
mod memory;
mod nodes;
mod outages;
mod processes;
mod proxy;
mod real;
mod script;
pub(crate) mod server;
mod way;
