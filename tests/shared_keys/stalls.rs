//! A Redis that stands still for a moment under many keys: what that costs in connections and asks, and that all calls are
//! granted afterwards.

use crate::millis;
use crate::server::{FOR_EVER, Server};
use redis::Connection;
use std::time::Instant;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::{KeyedLimiter, Quota, RedisLine, SharedKeyedLimiter};

const NODES: usize = 2;
/// Calls of each node while Redis stands still, each for a key of its own.
const CALLS: usize = 1_500;

/// A number that `INFO stats` says.
fn stat(connection: &mut Connection, name: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("stats").query(connection).unwrap();
    let found = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("{name} is missing")).trim().parse().unwrap()
}

async fn nodes(server: &Server) -> Vec<SharedKeyedLimiter<String>> {
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        // With its default patience, of a second: the stall is longer.
        let lines = RedisLine::connect(server.url(), "users").await.unwrap();
        let quota = Quota::per_second(100).burst(100);
        nodes.push(KeyedLimiter::builder().quota(quota).max_keys(100_000).shared(lines).build().unwrap());
    }
    nodes
}

fn call(calls: &mut JoinSet<()>, node: &SharedKeyedLimiter<String>, key: String) {
    let claim = node.clone().consume_owned(key, 1);
    calls.spawn(async move { drop(timeout(FOR_EVER, claim).await.expect("every call is answered").unwrap()) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_of_redis_costs_few_connections_and_every_call_is_granted() {
    let Some(server) = Server::start() else { return };
    let nodes = nodes(&server).await;
    for node in &nodes {
        drop(node.consume(&"first".to_owned(), 1).await.unwrap());
    }
    let mut observer = server.client();
    let (connections, scripts) =
        (stat(&mut observer, "total_connections_received"), stat(&mut observer, "total_commands_processed"));
    server.signal("-STOP");
    let (stalled, mut calls) = (Instant::now(), JoinSet::new());
    for number in 0..CALLS {
        for (index, node) in nodes.iter().enumerate() {
            call(&mut calls, node, format!("{index} {number}"));
        }
        if number % 50 == 49 {
            sleep(millis(30)).await;
        }
    }
    sleep(millis(1_500).saturating_sub(stalled.elapsed())).await;
    server.signal("-CONT");
    for number in CALLS..2 * CALLS {
        for (index, node) in nodes.iter().enumerate() {
            call(&mut calls, node, format!("{index} {number}"));
        }
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    let made = stat(&mut observer, "total_connections_received") - connections;
    let asked = stat(&mut observer, "total_commands_processed") - scripts;
    println!("{made} connections, {asked} commands for {} calls", 2 * CALLS * NODES);
    // Each node has one already.
    assert!(made <= 3 * NODES as u64, "{made} new connections of {NODES} nodes");
    assert!(asked <= 3 * (2 * CALLS * NODES) as u64, "{asked} commands for {} calls", 2 * CALLS * NODES);
}
