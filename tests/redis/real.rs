//! Limiters over a real Redis, in real time.

use crate::server::Server;
use std::time::{Duration, Instant};
use tollgate::{Limiter, Quota, RedisLine};

fn limiter(line: &RedisLine, quota: Quota) -> Limiter {
    Limiter::builder().quota(quota).shared(line.clone()).build().unwrap()
}

/// Has `tasks` tasks of each limiter consume one token at a time for `time`; says what each limiter got.
pub async fn saturate(limiters: &[Limiter], tasks: usize, time: Duration) -> Vec<u64> {
    let end = tokio::time::Instant::now() + time;
    let mut all = Vec::new();
    for limiter in limiters {
        for _ in 0..tasks {
            let limiter = limiter.clone();
            let consume = async move { while limiter.consume(1).await.is_ok() {} };
            all.push(tokio::spawn(tokio::time::timeout_at(end, consume)));
        }
    }
    for task in all {
        _ = task.await.unwrap();
    }
    limiters.iter().map(|limiter| limiter.snapshot().granted).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_one_burst_and_one_rate_to_the_token() {
    let Some(server) = Server::start() else { return };
    let quota = Quota::per_second(2_000).burst(100);
    let mut limiters = Vec::new();
    let mut lines = Vec::new();
    for _ in 0..4 {
        let line = RedisLine::connect(server.url(), "tenant:42").await.unwrap();
        limiters.push(limiter(&line, quota));
        lines.push(line);
    }
    let began = Instant::now();
    let granted = saturate(&limiters, 50, Duration::from_secs(2)).await;
    let most = 100 + (began.elapsed().as_nanos() * 2_000 / 1_000_000_000) as u64;
    let total: u64 = granted.iter().sum();
    println!("{granted:?} of {most}");
    assert!(total <= most, "{granted:?}: {total} of {most}");
    assert!(total >= most * 3 / 4, "{granted:?} of {most}");
    let trips: u64 = lines.iter().map(|line| line.snapshot().round_trips).sum();
    assert!(trips * 1_000 <= total * 50, "{trips} round trips for {total} tokens");
    assert!(lines.iter().all(|line| line.snapshot().nodes == 4));
}
