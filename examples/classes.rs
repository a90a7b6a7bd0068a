//! Interactive requests, a batch job of two tenants and a crawler behind one limiter: weights, a floor and a ceiling.
//!
//! ```text
//! cargo run --example classes
//! ```
//!
//! Time is simulated. The last line is machine-readable; the exit code is 1 if a law is broken.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate::{Class, Limiter, Quota, Share};

const RATE: u64 = 1_000;
const BURST: u64 = 20;
const FLOOR: u64 = 200;
const CEILING: u64 = 600;
const PHASE: Duration = Duration::from_secs(5);

/// The callers of one class.
struct Load {
    class: Class,
    asked: AtomicU64,
    last_granted: AtomicU64,
    out_of_order: AtomicU64,
    /// In milliseconds, of the claims made since the claim of this number.
    longest_wait: AtomicU64,
    since: AtomicU64,
}

impl Load {
    fn new(class: Class) -> Arc<Self> {
        let [asked, last_granted, out_of_order, longest_wait, since] = Default::default();
        Arc::new(Self { class, asked, last_granted, out_of_order, longest_wait, since })
    }

    /// Starts callers that ask for `cost` tokens again and again, with a pause in between.
    fn start(self: &Arc<Self>, callers: usize, cost: u64, pause: Duration, until: Instant) {
        for _ in 0..callers {
            let load = Arc::clone(self);
            tokio::spawn(async move {
                while Instant::now() < until {
                    let (number, asked_at) = (load.asked.fetch_add(1, Relaxed), Instant::now());
                    let _grant = load.class.consume(cost).await.expect("the limiter is open");
                    if number >= load.since.load(Relaxed) {
                        load.longest_wait.fetch_max(asked_at.elapsed().as_millis() as u64, Relaxed);
                    }
                    let is_late = load.last_granted.fetch_max(number, Relaxed) > number;
                    load.out_of_order.fetch_add(u64::from(is_late), Relaxed);
                    sleep(pause).await;
                }
            });
        }
    }

    fn served(&self) -> u64 {
        self.class.snapshot().served
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let limiter = Limiter::builder().quota(Quota::per_second(RATE).burst(BURST).initial(0)).classes().build()?;
    let interactive = limiter.class("interactive", Share::weight(3).floor(Quota::per_second(FLOOR)))?;
    let ceiling = Quota::per_second(CEILING).burst(BURST).initial(0);
    let batch = limiter.class("batch", Share::weight(1).ceiling(ceiling))?;
    let tenants = (batch.class("tenant-a", Share::weight(2))?, batch.class("tenant-b", Share::weight(1))?);
    let crawler = limiter.class("crawler", Share::weight(50))?;
    let loads = [interactive, tenants.0, tenants.1, crawler].map(Load::new);
    let [interactive, a, b, crawler] = &loads;

    let begin = Instant::now();
    let end_of = |phase: u32| begin + phase * PHASE;
    println!(
        "{:<34} {:>11} {:>8} {:>8} {:>8}  longest wait",
        "tokens per second of", "interactive", "tenant a", "tenant b", "crawler"
    );
    let (mut share_error, mut floor_missed, mut ceiling_excess, mut excess) = (0.0_f64, 0.0_f64, 0_u64, 0_u64);
    for (phase, title) in (1..).zip([
        "the batch job alone",
        "and many interactive requests",
        "and a heavy crawler",
        "few interactive requests",
    ]) {
        let (one, pause) = (1, Duration::ZERO);
        match phase {
            1 => [a, b].iter().for_each(|tenant| tenant.start(5, 50, pause, end_of(4))),
            2 => interactive.start(50, one, pause, end_of(3)),
            3 => crawler.start(5, BURST, pause, end_of(4)),
            _ => interactive.start(1, one, Duration::from_millis(70), end_of(4)),
        }
        let before = loads.each_ref().map(|load| load.served());
        // Waits are counted from here on, when the claims made in the phase before have been granted.
        sleep(PHASE / 5).await;
        interactive.since.store(interactive.asked.load(Relaxed), Relaxed);
        interactive.longest_wait.store(0, Relaxed);
        sleep_until(end_of(phase)).await;
        let served: [u64; 4] = std::array::from_fn(|at| loads[at].served() - before[at]);
        let seconds = PHASE.as_secs();
        let [of_interactive, of_a, of_b, of_crawler] = served.map(|tokens| tokens / seconds);
        let wait = interactive.longest_wait.load(Relaxed);
        println!("{title:<34} {of_interactive:>11} {of_a:>8} {of_b:>8} {of_crawler:>8}  {wait} ms");

        // The laws of docs/classes.md. Both tenants wait all the time: |Wa/2 - Wb/1| <= l/2 + l/1.
        let gap = (served[1] as f64 / 2.0 - served[2] as f64).abs();
        share_error = share_error.max(gap / (1.5 * BURST as f64));
        if phase == 2 || phase == 3 {
            let due = (FLOOR * seconds) as f64 - 2.0 - (FLOOR * BURST) as f64 / RATE as f64;
            floor_missed = floor_missed.max(due - served[0] as f64);
        }
        ceiling_excess = ceiling_excess.max((served[1] + served[2]).saturating_sub(BURST + CEILING * seconds));
        excess = excess.max(served.iter().sum::<u64>().saturating_sub(BURST + RATE * seconds));
    }
    let out_of_order: u64 = loads.iter().map(|load| load.out_of_order.load(Relaxed)).sum();
    let is_kept = share_error <= 1.0 && floor_missed <= 0.0 && ceiling_excess + excess + out_of_order == 0;
    println!("share_error is the part of the bound of law 2 that was used; the others are tokens and claims");
    println!(
        "classes: share_error={share_error:.2} floor_missed={} ceiling_excess={ceiling_excess} excess={excess} \
         order_violations={out_of_order}",
        floor_missed.max(0.0).ceil()
    );
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
