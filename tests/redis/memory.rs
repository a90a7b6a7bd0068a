//! Limiters over a line in memory, in paused time.

use std::time::Duration;
use tokio::time::Instant;
use tollgate::lease::MemoryLine;
use tollgate::{Limiter, Quota};

fn limiter(line: &MemoryLine, quota: Quota) -> Limiter {
    Limiter::builder().quota(quota).shared(line.clone()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_nodes_share_one_burst_and_one_rate() {
    let line = MemoryLine::new();
    let quota = Quota::per_second(10);
    let (one, two) = (limiter(&line, quota), limiter(&line, quota));
    let began = Instant::now();
    drop(one.consume(7).await.unwrap());
    drop(two.consume(3).await.unwrap());
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(two.consume(1).await.unwrap());
    assert_eq!(began.elapsed(), Duration::from_millis(100));
    drop(one.consume(2).await.unwrap());
    assert_eq!(began.elapsed(), Duration::from_millis(300));
}
