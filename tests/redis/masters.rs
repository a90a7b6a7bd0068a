//! A Redis Cluster of a test's own: three masters on loopback.

use crate::server::{Server, free_port};
use std::time::{Duration, Instant};

/// Three masters that know of each other and share all slots; `None` where Redis is not installed.
pub fn masters() -> Option<Vec<Server>> {
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
