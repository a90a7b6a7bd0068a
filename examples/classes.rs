//! Interactive requests, a batch job of two tenants and a crawler behind one limiter: weights, a floor and a ceiling.
//!
//! ```text
//! cargo run --example classes
//! ```
//!
//! Time is simulated. docs/classes.md has the rules.

use std::error::Error;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate::{Class, Limiter, Quota, Share};

const PHASE: Duration = Duration::from_secs(5);

/// Starts callers that claim `cost` tokens again and again.
fn start(class: &Class, callers: usize, cost: u64, pause: Duration, until: Instant) {
    for _ in 0..callers {
        let class = class.clone();
        tokio::spawn(async move {
            while Instant::now() < until && class.consume(cost).await.is_ok() {
                sleep(pause).await;
            }
        });
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(20)).classes().build()?;
    // 200 tokens per second are for interactive requests alone, whenever they want them.
    let interactive = limiter.class("interactive", Share::weight(3).floor(Quota::per_second(200)))?;
    // The batch job never gets more than 600 per second. Its tenants share what it gets.
    let batch = limiter.class("batch", Share::weight(1).ceiling(Quota::per_second(600).burst(20)))?;
    let tenants = [batch.class("tenant-a", Share::weight(2))?, batch.class("tenant-b", Share::weight(1))?];
    let crawler = limiter.class("crawler", Share::weight(50))?;

    let begin = Instant::now();
    let end_of = |phase: u32| begin + phase * PHASE;
    println!(
        "{:<30} {:>11} {:>9} {:>9} {:>9}",
        "tokens per second of", "interactive", "tenant a", "tenant b", "crawler"
    );
    let titles =
        ["the batch job alone", "and many interactive requests", "and a heavy crawler", "few interactive requests"];
    for (phase, title) in (1..).zip(titles) {
        match phase {
            1 => tenants.iter().for_each(|tenant| start(tenant, 5, 50, Duration::ZERO, end_of(4))),
            2 => start(&interactive, 50, 1, Duration::ZERO, end_of(3)),
            3 => start(&crawler, 5, 20, Duration::ZERO, end_of(4)),
            _ => start(&interactive, 1, 1, Duration::from_millis(70), end_of(4)),
        }
        let classes = [&interactive, &tenants[0], &tenants[1], &crawler];
        let before = classes.map(|class| class.snapshot().served);
        sleep_until(end_of(phase)).await;
        let after = classes.map(|class| class.snapshot().served);
        let [a, b, c, d]: [u64; 4] = std::array::from_fn(|class| (after[class] - before[class]) / PHASE.as_secs());
        println!("{title:<30} {a:>11} {b:>9} {c:>9} {d:>9}");
    }
    Ok(())
}
