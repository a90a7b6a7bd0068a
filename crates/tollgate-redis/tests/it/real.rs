//! Limiters over a real Redis, in real time.

use super::nodes::limiter;
use super::server::{FOR_EVER, Server, line};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::{Limiter, Quota};

/// Has `tasks` tasks of each limiter consume one token at a time until `tokens` are granted in total. Returns the
/// tokens of each limiter.
pub async fn saturate(limiters: &[Limiter], tasks: usize, tokens: u64) -> Vec<u64> {
    let granted = || limiters.iter().map(|limiter| limiter.snapshot().granted);
    let mut all = Vec::new();
    for limiter in limiters {
        for _ in 0..tasks {
            let limiter = limiter.clone();
            all.push(tokio::spawn(async move { while limiter.consume(1).await.is_ok() {} }));
        }
    }
    let began = Instant::now();
    while granted().sum::<u64>() < tokens {
        assert!(began.elapsed() < FOR_EVER, "{:?} of {tokens}", granted().collect::<Vec<_>>());
        sleep(Duration::from_millis(1)).await;
    }
    limiters.iter().for_each(Limiter::close);
    for task in all {
        task.await.unwrap();
    }
    granted().collect()
}

/// The number of round trips and the speed are tested in paused time: `tests/it/fleet.rs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_one_burst_and_one_rate_to_the_token() {
    let Some(server) = Server::start() else { return };
    let quota = Quota::per_second(2_000).burst(100);
    let mut limiters = Vec::new();
    let mut lines = Vec::new();
    for _ in 0..4 {
        let line = line(&server.url(), "tenant:42").await;
        limiters.push(limiter(&line, quota));
        lines.push(line);
    }
    let began = Instant::now();
    let granted = saturate(&limiters, 50, 4_000).await;
    let most = 100 + (began.elapsed().as_nanos() * 2_000 / 1_000_000_000) as u64;
    let total: u64 = granted.iter().sum();
    println!("{granted:?} of {most}");
    assert!(total <= most, "{granted:?}: {total} of {most}");
    assert!(granted.iter().all(|tokens| *tokens > 0), "{granted:?}");
    // Each limiter was granted the tokens that its store has counted.
    for (tokens, line) in granted.iter().zip(&lines) {
        let snapshot = line.snapshot();
        assert!(
            snapshot.round_trips > 0 && *tokens <= snapshot.granted && snapshot.nodes <= 4,
            "{tokens}, {snapshot:?}"
        );
    }
}
