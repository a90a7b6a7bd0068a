//! Limiters whose callers claim without end. The tests of `tollgate-postgres` use it too.

use super::server::FOR_EVER;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::Limiter;

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
