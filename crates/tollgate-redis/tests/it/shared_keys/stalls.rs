//! A Redis that stalls for a moment under many keys: the cost in connections and requests, and that all calls are
//! granted afterwards.

use super::millis;
use super::real::calls;
use crate::masters::{masters, open_cluster_store};
use crate::server::{FOR_EVER, Server, open_store, wait_until};
use redis::Connection;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::distributed::{Outage, ReplyKind, Store};
use tollgate::{ConsumeError, DistributedKeyedLimiter, Quota};
use tollgate_redis::{Circuit, RedisStore};

const NODES: usize = 2;
/// Calls of each node during the stall, each for a key of its own.
const CALLS: usize = 1_500;
/// Five times the default, so that a busy machine answers in time all that is asked after the stall.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the timeout.
const STALL: Duration = Duration::from_millis(5_500);

/// How many connections the server has accepted so far.
pub fn connections(observer: &mut Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("stats").query(observer).unwrap();
    let found = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    found.expect("every Redis counts them").trim().parse().unwrap()
}

async fn nodes(server: &Server) -> Vec<DistributedKeyedLimiter<String>> {
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let store = RedisStore::connect(server.url(), "users").await.unwrap().answer_timeout(TIMEOUT);
        let quota = Quota::per_second(100).burst(100);
        nodes.push(DistributedKeyedLimiter::builder(store).quota(quota).max_keys(100_000).build().unwrap());
    }
    nodes
}

fn call(calls: &mut JoinSet<()>, node: &DistributedKeyedLimiter<String>, key: String) {
    let claim = node.consume(&key, 1);
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
    let (before, asked) = (connections(&mut observer), calls(&mut observer, "evalsha"));
    server.signal("-STOP");
    let (stalled, mut claims) = (Instant::now(), JoinSet::new());
    for number in 0..CALLS {
        for (index, node) in nodes.iter().enumerate() {
            call(&mut claims, node, format!("{index} {number}"));
        }
        if number % 50 == 49 {
            sleep(millis(30)).await;
        }
    }
    sleep(STALL.saturating_sub(stalled.elapsed())).await;
    server.signal("-CONT");
    for number in CALLS..2 * CALLS {
        for (index, node) in nodes.iter().enumerate() {
            call(&mut claims, node, format!("{index} {number}"));
        }
    }
    while let Some(done) = claims.join_next().await {
        done.unwrap();
    }
    let (made, asked) = (connections(&mut observer) - before, calls(&mut observer, "evalsha") - asked);
    let all = (2 * CALLS * NODES) as u64;
    println!("{made} connections, {asked} requests for {all} calls");
    // Each node already has one connection.
    assert!(made <= 3 * NODES as u64, "{made} new connections of {NODES} nodes");
    assert!(asked <= all + all / 2, "{asked} requests for {all} calls");
}

/// Keys of the wrong type: many that are seldom used, and one that is used often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_key_fails_alone() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "users").await.outage(Outage::Fail);
    server.say(&["SET", "tollgate:{users:bad}:15", "text"]);
    let users = DistributedKeyedLimiter::builder(store.clone()).quota(Quota::per_hour(100)).build().unwrap();
    for number in 10..30 {
        server.say(&["SET", &format!("tollgate:{{users:rare{number}}}:15"), "text"]);
        let key = format!("rare{number}");
        let bad = timeout(FOR_EVER, users.consume(&key, 1)).await.expect("the claim hangs");
        assert!(matches!(bad, Err(ConsumeError::Unreachable)), "{bad:?}");
        drop(timeout(FOR_EVER, users.consume(&format!("well{number}"), 1)).await.expect("the claim hangs").unwrap());
    }
    let snapshot = users.snapshot().store;
    assert_eq!((snapshot.error_replies(ReplyKind::WrongType), snapshot.outages), (20, 0), "{snapshot:?}");
    for number in 0..100 {
        let key = "bad".to_owned();
        let bad = timeout(FOR_EVER, users.consume(&key, 1)).await.expect("the claim hangs");
        assert!(matches!(bad, Err(ConsumeError::Unreachable)), "{bad:?}");
        drop(timeout(FOR_EVER, users.consume(&format!("{number}"), 1)).await.expect("the claim hangs").unwrap());
    }
    // The limiter of this key is in an outage.
    let snapshot = users.snapshot().store;
    assert!(snapshot.error_replies(ReplyKind::WrongType) > 20 && snapshot.is_out, "{snapshot:?}");
    assert_eq!(store.servers()[0].connections, 1);
}

/// Callers of the shard's keys are refused, and all others are served normally.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_shard_fails_alone() {
    let Some(masters) = masters() else { return };
    let store = open_cluster_store(&masters, "users").await.outage(Outage::Fail).answer_timeout(millis(1_000));
    let users = DistributedKeyedLimiter::builder(store.clone()).quota(Quota::per_hour(100)).build().unwrap();
    let all_are_granted = async |name: &str| {
        for number in 0..30 {
            let key = format!("{name} {number}");
            let granted = timeout(FOR_EVER, users.consume(&key, 1)).await;
            drop(granted.expect("every call is answered").unwrap());
        }
    };
    // Each shard has the script.
    all_are_granted("first").await;
    masters[0].signal("-STOP");
    let slot = |key: &str| -> usize {
        let name = format!("tollgate:{{users:{key}}}:15");
        redis::cmd("CLUSTER").arg("KEYSLOT").arg(name).query(&mut masters[1].client()).unwrap()
    };
    let (mut refused, mut granted) = (0, 0);
    let keys: Vec<(String, bool)> =
        (0..150).map(|number| number.to_string()).map(|key| (key.clone(), slot(&key) < 5_462)).collect();
    for (key, is_dead) in keys {
        let answer = timeout(FOR_EVER, users.consume(&key, 1)).await.expect("every call is answered");
        match (is_dead, answer) {
            (true, Err(ConsumeError::Unreachable)) => refused += 1,
            (false, Ok(_)) => granted += 1,
            (_, answer) => panic!("{key}, on the shard that stands still: {is_dead}: {answer:?}"),
        }
    }
    assert!(refused > 10 && granted > 50, "{refused} refused, {granted} granted");
    let servers = store.servers();
    let open = store.circuits().into_iter().filter(|circuit| *circuit != Circuit::Closed).count();
    assert_eq!((open, servers.iter().map(|server| server.breaker.timeouts).sum::<u64>()), (1, 1), "{servers:?}");
    masters[0].signal("-CONT");
    let is_closed = || store.circuits().iter().all(|circuit| *circuit == Circuit::Closed);
    wait_until("the circuit does not close", is_closed);
    all_are_granted("last").await;
}
