//! How much a single Redis can carry: nodes that do nothing but ask, as fast as they are answered.

use crate::Failure;
use crate::guard::Guard;
use crate::server::info;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, QuotaTerms, Store};
use tollgate_redis::RedisStore;

/// Connections that carry the asks of all nodes.
const CONNECTIONS: u64 = 8;

/// What the asks of so many nodes cost.
pub(crate) struct Load {
    pub(crate) nodes: u64,
    /// Answered, per second, by Redis and who asks on this machine together.
    pub(crate) asks_per_second: f64,
    /// CPU of Redis per ask, in microseconds: the script alone, and all of it.
    pub(crate) script_micros: f64,
    pub(crate) redis_micros: f64,
}

pub(crate) async fn measure(nodes: u64, rate: u64, time: Duration) -> Result<Load, Failure> {
    let guard = Guard::start()?;
    let url = guard.url().to_owned();
    let quota = Quota::per_second(rate);
    let terms = QuotaTerms::of(&quota, 0)?;
    let mut lines = Vec::new();
    for _ in 0..CONNECTIONS {
        lines.push(RedisStore::connect(url.as_str(), "carry").await?);
    }
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for node in 0..nodes {
        let line = lines[(node % CONNECTIONS) as usize].clone();
        asking.spawn(async move {
            let mut ask = LeaseRequest::new(u128::from(node) + 1, 0, terms);
            ask.want = (rate / 10 / nodes).max(1);
            while began.elapsed() < time {
                ask.number += 1;
                ask.allowance = 10;
                line.ask(ask).await?;
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
    let usec = figure.and_then(|line| field(line, "usec=")).ok_or("Redis does not say what scripts cost")?;
    Ok(Load {
        nodes,
        asks_per_second: asks as f64 / elapsed.as_secs_f64(),
        script_micros: usec / asks as f64,
        redis_micros: (used_cpu(&url)? - before) * 1e6 / asks as f64,
    })
}

/// Seconds.
fn used_cpu(url: &str) -> Result<f64, Failure> {
    let text = info(url, "cpu")?;
    let of = |name| text.lines().find_map(|line| field(line, name));
    let both = of("used_cpu_user:").zip(of("used_cpu_sys:"));
    both.map(|(user, system)| user + system).ok_or_else(|| "Redis does not say what CPU it used".into())
}

fn field(line: &str, name: &str) -> Option<f64> {
    let rest = &line[line.find(name)? + name.len()..];
    rest[..rest.find([',', '\r']).unwrap_or(rest.len())].trim().parse().ok()
}
