//! The faults, by name.

use crate::Failure;
use crate::trial::{Ran, Trial};
use crate::{failover, network, nodes, postgres, redis_server, rollout};

pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// What happens, for the table.
    pub(crate) what: &'static str,
    /// Starts servers and nodes, and ends the nodes after the fault.
    pub(crate) run: fn(&mut Trial) -> Result<Ran, Failure>,
}

impl Fault {
    pub(crate) fn named(name: &str) -> Result<&'static Fault, String> {
        let found = FAULTS.iter().find(|fault| fault.name == name);
        found.ok_or_else(|| format!("no fault has this name; --list prints the names of all {}", FAULTS.len()))
    }
}

macro_rules! faults {
    ($($name:literal $what:literal $run:expr;)*) => { &[$(Fault { name: $name, what: $what, run: $run }),*] };
}

pub(crate) const FAULTS: &[Fault] = faults! {
    "none" "nothing, for comparison" nodes::none;
    "node-killed" "`kill -9` of one node of four" nodes::killed;
    "node-stopped" "a node stands still for 3 s (SIGSTOP)" nodes::stopped;
    "node-far" "one node has a round trip of 200 ms, for 3 s" nodes::far;
    "node-clocks" "the wall clocks of the nodes are an hour apart, all the time" nodes::clocks;
    "redis-killed" "`kill -9` of Redis, back after 1 s, empty" redis_server::killed;
    "redis-aof" "the same with an append-only file" redis_server::killed_with_aof;
    "redis-stopped" "Redis stands still for 2.5 s (SIGSTOP)" redis_server::stopped;
    "redis-stalled" "Redis answers nothing for 0.5 s (CLIENT PAUSE)" redis_server::stalled;
    "flushall" "FLUSHALL" redis_server::flushed;
    "evicted" "the key is evicted" redis_server::evicted;
    "script-flush" "SCRIPT FLUSH, five times" redis_server::script_flushed;
    "out-of-memory" "no memory for 1.5 s (OOM)" redis_server::out_of_memory;
    "wrong-type" "the key has another type for 1.5 s, and is deleted" redis_server::wrong_type;
    "acl-revoked" "the right to HSET is taken away for 1.5 s" redis_server::right_revoked;
    "password-rotated" "the password is another one for 1.5 s, and connections are ended" redis_server::password_rotated;
    "busy" "another script runs for 1.5 s (BUSY)" redis_server::busy;
    "connections-dropped" "all connections are ended, 60 times in 3 s" network::dropped;
    "replies-lost" "20 answers are lost with their connections, in 3 s" network::replies_lost;
    "delay-50" "a round trip of 50 ms, for 3 s" network::delayed_50;
    "delay-200" "a round trip of 200 ms, for 3 s" network::delayed_200;
    "delay-600" "a round trip of 600 ms, for 3 s" network::delayed_600;
    "quota-changed" "node by node gets a new version with twice the rate and burst" rollout::quota_changed;
    "upgrade" "node by node is replaced by one of this version of the crate" rollout::upgraded;
    "sentinel-failover" "the master is killed, and sentinels promote its replica" failover::sentinels;
    "cluster-failover" "a master of a cluster is killed, and its replica takes over" failover::cluster;
    "postgres-killed" "PostgreSQL ends without a checkpoint, back after 1 s" postgres::killed;
    "postgres-stopped" "its processes stand still for 2.5 s (SIGSTOP)" postgres::stopped;
    "postgres-truncated" "the table is truncated" postgres::truncated;
    "postgres-locked" "another session holds the row for 1.5 s" postgres::locked;
    "postgres-connections" "all connections are ended, 60 times in 3 s" postgres::dropped;
    "postgres-replies-lost" "20 answers are lost with their connections, in 3 s" postgres::replies_lost;
    "postgres-delay-200" "a round trip of 200 ms, for 3 s" postgres::delayed_200;
};
