//! One quota for many machines: the line in memory and the line in Redis.
#![cfg(feature = "redis")]

#[path = "redis/memory.rs"]
mod memory;
#[path = "redis/real.rs"]
mod real;
#[path = "redis/script.rs"]
mod script;
#[path = "redis/server.rs"]
mod server;
