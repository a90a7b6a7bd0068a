//! Measures how many requests a single Redis can answer: the nodes only send requests, as fast as they are answered.

use crate::Failure;
use crate::guard::Guard;
use crate::server::info;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, QuotaTerms, Store};
use tollgate_redis::RedisStore;

/// Connections for the requests of all nodes.
const CONNECTIONS: u64 = 8;

/// The cost of the requests of this many nodes.
pub(crate) struct Load {
    pub(crate) nodes: u64,
    /// Requests answered per second, with Redis and the nodes on this machine.
    pub(crate) asks_per_second: f64,
    /// CPU time of Redis per request, in microseconds: of the script alone, and in total.
    pub(crate) script_micros: f64,
    pub(crate) redis_micros: f64,
}

pub(crate) async fn measure(nodes: u64, rate: u64, time: Duration) -> Result<Load, Failure> {
    let guard = Guard::start()?;
    let url = guard.url().to_owned();
    let quota = Quota::per_second(rate);
    let terms = QuotaTerms::of(&quota, 0)?;
    let mut stores = Vec::new();
    for _ in 0..CONNECTIONS {
        stores.push(RedisStore::connect(url.as_str(), "carry").await?);
    }
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for node in 0..nodes {
        let store = stores[(node % CONNECTIONS) as usize].clone();
        asking.spawn(async move {
            let mut ask = LeaseRequest::new(u128::from(node) + 1, 0, terms);
            ask.want = (rate / 10 / nodes).max(1);
            while began.elapsed() < time {
                ask.number += 1;
                ask.allowance = 10;
                store.ask(ask).await?;
            }
            Ok::<u64, tollgate::distributed::StoreError>(ask.number)
        });
    }
    let before = used_cpu(&url)?;
    let mut asks = 0;
    while let Some(ended) = asking.join_next().await {
        asks += ended??;
    }
    let elapsed = began.elapsed();
    let script = info(&url, "commandstats")?;
    let figure = script.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let usec = figure.and_then(|line| field(line, "usec=")).ok_or("Redis does not report the cost of scripts")?;
    Ok(Load {
        nodes,
        asks_per_second: asks as f64 / elapsed.as_secs_f64(),
        script_micros: usec / asks as f64,
        redis_micros: (used_cpu(&url)? - before) * 1e6 / asks as f64,
    })
}

/// In seconds.
fn used_cpu(url: &str) -> Result<f64, Failure> {
    let text = info(url, "cpu")?;
    let of = |name| text.lines().find_map(|line| field(line, name));
    let both = of("used_cpu_user:").zip(of("used_cpu_sys:"));
    both.map(|(user, system)| user + system).ok_or_else(|| "Redis does not report its CPU time".into())
}

fn field(line: &str, name: &str) -> Option<f64> {
    let rest = &line[line.find(name)? + name.len()..];
    rest[..rest.find([',', '\r']).unwrap_or(rest.len())].trim().parse().ok()
}
