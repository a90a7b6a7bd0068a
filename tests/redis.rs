//! One quota for many machines: the line in memory and the line in Redis.
#![cfg(feature = "redis")]

#[path = "redis/away.rs"]
mod away;
#[path = "redis/cluster.rs"]
mod cluster;
#[path = "redis/failover.rs"]
mod failover;
#[path = "redis/keeper.rs"]
mod keeper;
#[path = "redis/large.rs"]
mod large;
#[path = "redis/late.rs"]
mod late;
#[path = "redis/law.rs"]
mod law;
#[path = "redis/liveness.rs"]
mod liveness;
#[path = "redis/masters.rs"]
mod masters;
#[path = "redis/memory.rs"]
mod memory;
#[path = "redis/nodes.rs"]
mod nodes;
#[path = "redis/outages.rs"]
mod outages;
#[path = "redis/processes.rs"]
mod processes;
#[path = "redis/proxy.rs"]
mod proxy;
#[path = "redis/real.rs"]
mod real;
#[path = "redis/replies.rs"]
mod replies;
#[path = "redis/script.rs"]
mod script;
#[path = "redis/server.rs"]
mod server;
#[path = "redis/way.rs"]
mod way;
