//! Redis Cluster: three masters on loopback.

use crate::server::{Server, free_port};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tollgate::{Limiter, Quota, RedisLine};

/// Three masters that know of each other and share all slots; `None` where Redis is not installed.
fn masters() -> Option<Vec<Server>> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        // Cluster nodes keep a file and a second port each.
        let file = format!("tollgate-cluster-{}-{}.conf", std::process::id(), free_port());
        let bus = free_port().to_string();
        let options = ["--cluster-enabled", "yes", "--cluster-config-file", &file, "--cluster-port", &bus];
        servers.push((Server::start_with(&options)?, bus));
    }
    let cluster = |server: &Server, args: &[&str]| -> String {
        let mut command = redis::cmd("CLUSTER");
        command.arg(args);
        command.query(&mut server.client()).unwrap()
    };
    let ports: Vec<String> = servers.iter().map(|(server, _)| server.port().to_string()).collect();
    for (index, (server, _)) in servers.iter().enumerate() {
        let (from, to) = (index * 5_462, ((index + 1) * 5_462 - 1).min(16_383));
        cluster(server, &["ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
        cluster(server, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]);
    }
    for (port, (_, bus)) in ports.iter().zip(&servers).skip(1) {
        cluster(&servers[0].0, &["MEET", "127.0.0.1", port, bus]);
    }
    let began = Instant::now();
    let is_ready = |server: &Server| {
        let info = cluster(server, &["INFO"]);
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
    };
    while !servers.iter().all(|(server, _)| is_ready(server)) {
        assert!(began.elapsed() < Duration::from_secs(60), "the cluster does not come up");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(servers.into_iter().map(|(server, _)| server).collect())
}

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
