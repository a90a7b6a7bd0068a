//! Over a real Redis, and over a cluster of three, in real time.

use super::millis;
use crate::masters::{masters, open_cluster_store};
use crate::server::{FOR_EVER, Server, open_store, wait_until};
use redis::Connection;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate::{ConsumeError, DistributedKeyedLimiter, Quota};
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
    let size = || redis::cmd("DBSIZE").query::<u64>(&mut server.client()).unwrap();
    wait_until("the keys are not deleted", || size() <= 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_cluster_live_on_all_its_masters() {
    let Some(masters) = masters() else { return };
    let quota = Quota::per_second(100).burst(20);
    let open = async || node(&open_cluster_store(&masters, "users").await, quota);
    let nodes = [open().await, open().await];
    let (began, mut tasks) = (Instant::now(), JoinSet::new());
    for number in (0..20).flat_map(|number| [number; 3]) {
        for node in nodes.clone() {
            tasks.spawn(async move {
                let (key, mut granted) = (format!("user {number}"), 0);
                while node.consume(&key, 1).await.is_ok() {
                    granted += 1;
                }
                (number, granted)
            });
        }
    }
    // One key of Redis for each, on all masters. Keys of full buckets are deleted, so this checks during the load.
    let are_spread = || {
        let size = |master: &Server| redis::cmd("DBSIZE").query::<u64>(&mut master.client()).unwrap();
        let sizes: Vec<u64> = masters.iter().map(size).collect();
        sizes.iter().sum::<u64>() == 20 && sizes.iter().all(|size| *size > 0)
    };
    let granted = || nodes.iter().map(|node| node.snapshot().granted).sum::<u64>();
    wait_until("the keys are not on all masters, or are not served", || are_spread() && granted() >= 20 * 60);
    nodes.iter().for_each(DistributedKeyedLimiter::close);
    let mut granted = [0; 20];
    for (number, tokens) in timeout(FOR_EVER, tasks.join_all()).await.expect("a task hangs") {
        granted[number] += tokens;
    }
    let most = 20 + (began.elapsed().as_nanos() * 100 / 1_000_000_000) as u64;
    assert!(granted.iter().all(|tokens| (1..=most).contains(tokens)), "{granted:?} of {most}");
}
