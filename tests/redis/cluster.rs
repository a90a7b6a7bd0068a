//! Redis Cluster: three masters on loopback.

use crate::masters::masters;
use crate::server::Server;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tollgate::{Limiter, Quota, RedisLine};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_a_cluster_live_on_all_its_masters_and_keep_their_law() {
    let Some(mut masters) = masters() else { return };
    let urls: Vec<String> = masters.iter().map(Server::url).collect();
    let quota = Quota::per_second(1_000).burst(50);
    let began = Instant::now();
    let mut tenants = Vec::new();
    for tenant in 0..12 {
        let name = format!("tenant:{tenant}");
        let one = RedisLine::connect_cluster(urls.clone(), &name).await.unwrap();
        let two = one.beside(&name).unwrap();
        let limiters = [one, two].map(|line| Limiter::builder().quota(quota).shared(line).build().unwrap());
        tenants.push(limiters);
    }
    for limiters in &tenants {
        let tasks = limiters.clone().map(|limiter| {
            tokio::spawn(async move {
                for _ in 0..60 {
                    drop(limiter.consume(1).await.unwrap());
                }
            })
        });
        for task in tasks {
            timeout(Duration::from_secs(60), task).await.expect("nobody hangs").unwrap();
        }
        let granted: u64 = limiters.iter().map(|limiter| limiter.snapshot().granted).sum();
        assert_eq!(granted, 120);
    }
    // 120 tokens from a burst of 50 take 70 ms at least; each tenant had its own.
    assert!(began.elapsed() >= Duration::from_millis(70));
    let keys: Vec<u64> =
        masters.iter().map(|master| redis::cmd("DBSIZE").query(&mut master.client()).unwrap()).collect();
    assert_eq!(keys.iter().sum::<u64>(), 12, "a key per line");
    assert!(keys.iter().all(|count| *count > 0), "on all masters: {keys:?}");
    masters.iter_mut().for_each(Server::kill);
}
