//! Over a real Redis, and over a cluster of three, in real time.

use super::millis;
use crate::masters::{masters, open_cluster_store};
use crate::server::{FOR_EVER, Server, open_store};
use redis::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tollgate::{ConsumeError, DistributedKeyedLimiter, Limiter, Quota};
use tollgate_redis::RedisStore;

fn node(store: &RedisStore, quota: Quota) -> DistributedKeyedLimiter<String> {
    DistributedKeyedLimiter::builder(store.clone()).quota(quota).max_keys(10_000).build().unwrap()
}

/// How often the server has executed this command.
pub fn calls(connection: &mut Connection, verb: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(connection).unwrap();
    let name = format!("cmdstat_{verb}:calls=");
    let found = stats.lines().find_map(|line| line.strip_prefix(&name));
    found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Three tasks for each key of each node take one token at a time, until each key has this many and the condition is
/// true. Returns the tokens of each key.
async fn saturate(
    nodes: &[DistributedKeyedLimiter<String>],
    keys: usize,
    tokens: u64,
    so: impl Fn() -> bool,
) -> Vec<u64> {
    let granted: Arc<[AtomicU64]> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    let mut all = Vec::new();
    for node in nodes {
        for number in (0..keys).flat_map(|number| [number; 3]) {
            let (node, granted) = (node.clone(), Arc::clone(&granted));
            all.push(tokio::spawn(async move {
                let key = format!("user {number}");
                while node.consume(&key, 1).await.is_ok() {
                    granted[number].fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    let began = Instant::now();
    let so_far = || -> Vec<u64> { granted.iter().map(|granted| granted.load(Ordering::Relaxed)).collect() };
    while so_far().iter().any(|granted| *granted < tokens) || !so() {
        assert!(began.elapsed() < FOR_EVER, "{:?} of {tokens}", so_far());
        sleep(millis(1)).await;
    }
    nodes.iter().for_each(DistributedKeyedLimiter::close);
    for task in all {
        timeout(FOR_EVER, task).await.expect("the task hangs").unwrap();
    }
    so_far()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_each_keys_burst_and_rate_to_the_token() {
    let Some(server) = Server::start() else { return };
    let quota = Quota::per_second(200).burst(40);
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(node(&open_store(&server.url(), "users").await, quota));
    }
    let began = Instant::now();
    let granted = saturate(&nodes, 6, 400, || true).await;
    let most = 40 + (began.elapsed().as_nanos() * 200 / 1_000_000_000) as u64;
    println!("{granted:?} of {most}");
    assert!(granted.iter().all(|tokens| *tokens <= most), "{granted:?} of {most}");
    // The round trips counted here are those that Redis has seen. Each node has one connection, however many keys there
    // are.
    let mut connection = server.client();
    let counted: u64 = nodes.iter().map(|node| node.snapshot().store.round_trips).sum();
    let seen = calls(&mut connection, "evalsha") + calls(&mut connection, "eval");
    assert!(counted <= seen && seen <= counted + 100, "{counted} counted, {seen} seen");
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
    assert_eq!(clients.lines().count(), 3 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_seen_once_is_one_call_and_a_refused_one_none() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "users").await;
    // Connecting runs scripts too.
    server.say(&["CONFIG", "RESETSTAT"]);
    let users = node(&store, Quota::per_hour(5));
    for number in 0..1_000 {
        drop(users.consume(&format!("{number}}}{{\r\n"), 5).await.unwrap());
    }
    let mut connection = server.client();
    assert_eq!(calls(&mut connection, "evalsha"), 1_000, "one call per key, except for loading the script");
    assert_eq!(calls(&mut connection, "eval"), 1);
    let began = Instant::now();
    let mut refused = 0;
    while began.elapsed() < millis(500) {
        for number in 900..1_000 {
            let key = format!("{number}}}{{\r\n");
            let answer = users.consume(&key, 5).within(Duration::ZERO).await;
            assert!(matches!(answer, Err(ConsumeError::TooLate { .. })), "{answer:?}");
            refused += 1;
        }
    }
    assert_eq!((calls(&mut connection, "evalsha"), users.snapshot().spared), (1_000, refused));
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap(), 1_000);
    // Redis deletes the keys of full buckets.
    let soon_full = node(&store.beside("soon full").unwrap(), Quota::per_second(10).burst(5));
    for number in 0..100 {
        drop(soon_full.consume(&number.to_string(), 5).await.unwrap());
    }
    let began = Instant::now();
    while redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap() > 1_000 {
        assert!(began.elapsed() < FOR_EVER, "the keys are not deleted");
        sleep(millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_cluster_live_on_all_its_masters() {
    let Some(masters) = masters() else { return };
    let quota = Quota::per_second(100).burst(20);
    let nodes = [
        node(&open_cluster_store(&masters, "users").await, quota),
        node(&open_cluster_store(&masters, "users").await, quota),
    ];
    let began = Instant::now();
    // One key of Redis for each, on all masters. Keys of full buckets are deleted, so this checks during the load.
    let are_spread = || {
        let size = |master: &Server| redis::cmd("DBSIZE").query::<u64>(&mut master.client()).unwrap();
        let sizes: Vec<u64> = masters.iter().map(size).collect();
        sizes.iter().sum::<u64>() == 20 && sizes.iter().all(|size| *size > 0)
    };
    let granted = saturate(&nodes, 20, 60, are_spread).await;
    let most = 20 + (began.elapsed().as_nanos() * 100 / 1_000_000_000) as u64;
    assert!(granted.iter().all(|tokens| *tokens <= most), "{granted:?} of {most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_is_found_again_by_all_keys() {
    let Some(mut server) = Server::start() else { return };
    let store = open_store(&server.url(), "users").await.answer_timeout(millis(200));
    let users = node(&store, Quota::per_second(1_000).burst(100));
    let keys: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    for key in &keys {
        drop(users.consume(key, 1).await.unwrap());
    }
    server.kill();
    let waiting: Vec<_> = keys
        .iter()
        .map(|key| {
            let claim = users.consume(key, 1);
            tokio::spawn(timeout(FOR_EVER, claim))
        })
        .collect();
    let comes_to = async |is_out: bool| {
        let began = Instant::now();
        while users.snapshot().store.is_out != is_out {
            assert!(began.elapsed() < FOR_EVER, "{:?}", users.snapshot().store);
            sleep(millis(1)).await;
        }
    };
    comes_to(true).await;
    server.restart();
    for task in waiting {
        drop(task.await.unwrap().expect("the claim hangs").unwrap());
    }
    for key in &keys {
        drop(timeout(FOR_EVER, users.consume(key, 1)).await.expect("the claim hangs").unwrap());
    }
    comes_to(false).await;
}

/// However stores and keys are named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_keys_of_different_stores_share_a_key_of_redis() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "a").await;
    let spelled = [("a", "b:c"), ("a:b", "c"), ("a", ":b:c"), ("a:", "b:c")];
    for (name, key) in spelled {
        let users = node(&store.beside(name).unwrap(), Quota::per_hour(10));
        drop(timeout(FOR_EVER, users.consume(&key.to_owned(), 1)).await.expect("the claim hangs").unwrap());
    }
    let plain = store.beside("a:b:c").unwrap();
    let limiter = Limiter::builder().quota(Quota::per_hour(10)).distributed(plain).build().unwrap();
    drop(timeout(FOR_EVER, limiter.consume(1)).await.expect("the claim hangs").unwrap());
    let keys: usize = redis::cmd("DBSIZE").query(&mut server.client()).unwrap();
    assert_eq!(keys, spelled.len() + 1);
}
