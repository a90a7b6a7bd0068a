//! Over a real Redis, and a cluster of three, in real time.

use crate::masters::masters;
use crate::millis;
use crate::server::Server;
use redis::Connection;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tollgate::{ConsumeError, KeyedLimiter, Quota, RedisLine, SharedKeyedLimiter};

fn node(lines: &RedisLine, quota: Quota) -> SharedKeyedLimiter<String> {
    KeyedLimiter::builder().quota(quota).max_keys(10_000).shared(lines.clone()).build().unwrap()
}

/// How often the server was called by this verb.
fn calls(connection: &mut Connection, verb: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(connection).unwrap();
    let name = format!("cmdstat_{verb}:calls=");
    let found = stats.lines().find_map(|line| line.strip_prefix(&name));
    found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Three tasks for each key of each node take a token at a time; the tokens of each key.
async fn saturate(nodes: &[SharedKeyedLimiter<String>], keys: usize, time: Duration) -> Vec<u64> {
    let end = tokio::time::Instant::now() + time;
    let mut all = Vec::new();
    for node in nodes {
        for number in 0..keys {
            for _ in 0..3 {
                let node = node.clone();
                all.push(tokio::spawn(async move {
                    let (key, mut got) = (format!("user {number}"), 0);
                    let consume = async {
                        while node.consume(&key, 1).await.is_ok() {
                            got += 1;
                        }
                    };
                    _ = tokio::time::timeout_at(end, consume).await;
                    (number, got)
                }));
            }
        }
    }
    let mut granted = vec![0; keys];
    for task in all {
        let (number, got) = task.await.unwrap();
        granted[number] += got;
    }
    granted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_each_keys_burst_and_rate_to_the_token() {
    let Some(server) = Server::start() else { return };
    let quota = Quota::per_second(200).burst(40);
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(node(&RedisLine::connect(server.url(), "users").await.unwrap(), quota));
    }
    let began = Instant::now();
    let granted = saturate(&nodes, 6, millis(2_000)).await;
    let most = 40 + (began.elapsed().as_nanos() * 200 / 1_000_000_000) as u64;
    println!("{granted:?} of {most}");
    assert!(granted.iter().all(|tokens| *tokens <= most), "{granted:?} of {most}");
    assert!(granted.iter().all(|tokens| *tokens >= most * 3 / 4), "{granted:?} of {most}");
    // What was counted here is what Redis has seen; and each node has one connection, whatever keys there are.
    let mut connection = server.client();
    let counted: u64 = nodes.iter().map(|node| node.snapshot().line.round_trips).sum();
    let seen = calls(&mut connection, "evalsha") + calls(&mut connection, "eval");
    assert!(counted <= seen && seen <= counted + 100, "{counted} counted, {seen} seen");
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
    assert_eq!(clients.lines().count(), 3 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_seen_once_is_one_call_and_a_refused_one_none() {
    let Some(server) = Server::start() else { return };
    let lines = RedisLine::connect(server.url(), "users").await.unwrap();
    let users = node(&lines, Quota::per_minute(60).burst(5));
    for number in 0..1_000 {
        drop(users.consume(&format!("{number}}}{{\r\n"), 5).await.unwrap());
    }
    let mut connection = server.client();
    assert_eq!(calls(&mut connection, "evalsha"), 1_000, "but for the script itself, the first time");
    assert_eq!(calls(&mut connection, "eval"), 1);
    let began = Instant::now();
    let mut refused = 0;
    while began.elapsed() < millis(500) {
        for number in 900..1_000 {
            let answer = users.consume(&format!("{number}}}{{\r\n"), 5).within(Duration::ZERO).await;
            assert!(matches!(answer, Err(ConsumeError::TooLate { .. })), "{answer:?}");
            refused += 1;
        }
    }
    assert_eq!((calls(&mut connection, "evalsha"), users.snapshot().spared), (1_000, refused));
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap(), 1_000);
    // Redis forgets who is full.
    let began = Instant::now();
    while redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "keys are not forgotten");
        sleep(millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_cluster_live_on_all_its_masters() {
    let Some(mut masters) = masters() else { return };
    let urls: Vec<String> = masters.iter().map(Server::url).collect();
    let quota = Quota::per_second(100).burst(20);
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(node(&RedisLine::connect_cluster(urls.clone(), "users").await.unwrap(), quota));
    }
    let began = Instant::now();
    let saturating = saturate(&nodes, 20, millis(1_000));
    let granted = timeout(Duration::from_secs(60), saturating).await.expect("nobody hangs");
    let most = 20 + (began.elapsed().as_nanos() * 100 / 1_000_000_000) as u64;
    assert!(granted.iter().all(|tokens| (20..=most).contains(tokens)), "{granted:?} of {most}");
    let keys: Vec<u64> =
        masters.iter().map(|master| redis::cmd("DBSIZE").query(&mut master.client()).unwrap()).collect();
    assert_eq!(keys.iter().sum::<u64>(), 20, "a key of Redis for each");
    assert!(keys.iter().all(|count| *count > 0), "on all masters: {keys:?}");
    masters.iter_mut().for_each(Server::kill);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_was_killed_is_found_again_by_all_keys() {
    let Some(mut server) = Server::start() else { return };
    let lines = RedisLine::connect(server.url(), "users").await.unwrap().patience(millis(200));
    let users = node(&lines, Quota::per_second(1_000).burst(100));
    let keys: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    for key in &keys {
        drop(users.consume(key, 1).await.unwrap());
    }
    server.kill();
    let waiting: Vec<_> = keys
        .iter()
        .map(|key| {
            let claim = users.clone().consume_owned(key.clone(), 1);
            tokio::spawn(timeout(Duration::from_secs(60), claim))
        })
        .collect();
    sleep(millis(300)).await;
    assert!(users.snapshot().line.is_out);
    server.restart();
    for task in waiting {
        drop(task.await.unwrap().expect("nobody hangs").unwrap());
    }
    for key in &keys {
        drop(timeout(Duration::from_secs(60), users.consume(key, 1)).await.expect("nobody hangs").unwrap());
    }
    assert!(!users.snapshot().line.is_out);
}
