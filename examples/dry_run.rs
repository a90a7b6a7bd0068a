//! A quota is tried out before it is enforced.
//!
//! ```text
//! cargo run --example dry_run
//! ```
//!
//! A service allows 1,000 requests per second. Would 100 per second with a burst of 20 delay its callers? The new quota is added
//! in dry run: it holds back no request, and each grant says what it would have done. Then it is enforced, without a restart.
//! Time is simulated.

use std::error::Error;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tollgate::{Limiter, Quota};

/// The time to the next request: 80 requests per second on average, now and then many at once.
fn pause(random: &mut fastrand::Rng, burst: &mut u32) -> Duration {
    if *burst == 0 && random.u32(0..600) == 0 {
        *burst = 60;
    }
    *burst = burst.saturating_sub(1);
    let mean = if *burst > 0 { 0.001 } else { 0.014 };
    Duration::from_secs_f64(-mean * (1.0 - random.f64()).ln())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .quota_named("old", Quota::per_second(1_000))
        .quota_named("new", Quota::per_second(100).burst(20))
        .dry_run_quota("new")
        .build()?;
    let (mut random, mut burst, mut waits) = (fastrand::Rng::with_seed(20), 0, Vec::new());
    for _ in 0..20_000 {
        sleep(pause(&mut random, &mut burst)).await;
        let grant = limiter.consume(1).await?;
        waits.push(grant.would_have_waited().unwrap_or_default());
    }
    waits.sort();
    println!("With the new quota, requests would have waited for");
    for (name, percent) in [("half of them", 50), ("90 %", 90), ("99 %", 99), ("all", 100)] {
        println!("{name:>14}: {:.3?} at most", waits[(waits.len() - 1) * percent / 100]);
    }
    if let Some(dry_run) = limiter.snapshot().dry_run {
        println!("{} would have waited, {} would be waiting now", dry_run.would_wait, dry_run.waiting_tasks);
    }

    limiter.set_dry_run("new", false)?;
    let began = Instant::now();
    for _ in 0..30 {
        limiter.wait(1).await?;
    }
    println!("The quota is enforced: 30 more requests take {:?}", began.elapsed());
    Ok(())
}
