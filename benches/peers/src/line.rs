//! A long line: tasks that ask again as soon as they were served.

use comfy_table::{Table, presets::ASCII_MARKDOWN};
use cpu_time::ProcessTime;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tollgate::{Limiter, Quota};

const TASKS: u64 = 10_000;
const RATE: u64 = 100_000;

/// What came of one contender.
struct Outcome {
    /// Tokens served, of those the rate allows.
    achieved: f64,
    cpu_per_grant: Duration,
}

pub fn report(seconds: u64) {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(["", "achieved / configured", "CPU per grant"]);
    let mut row = |name: &str, outcome: Outcome| {
        let cpu = format!("{:.2} us", outcome.cpu_per_grant.as_nanos() as f64 / 1e3);
        table.add_row([name.to_owned(), format!("{:.3}", outcome.achieved), cpu]);
    };
    row("tollgate", tollgate(seconds));
    row("tokio Semaphore + 1 ms interval, by hand", semaphore(seconds));
    row("governor until_ready", governor(seconds));
    row("leaky-bucket, fair", leaky(seconds));
    println!("\n{TASKS} tasks in line for {RATE} tokens/s, 2 workers, {seconds} s\n\n{table}");
}

fn tollgate(seconds: u64) -> Outcome {
    let limiter = Limiter::new(Quota::per_second(RATE).burst(RATE / 100).initial(0)).expect("valid");
    watch(seconds, limiter, |limiter| async move {
        let _grant = limiter.consume(1).await.expect("open");
    })
}

fn semaphore(seconds: u64) -> Outcome {
    let semaphore = Arc::new(Semaphore::new(0));
    let refilled = semaphore.clone();
    watch_beside(
        seconds,
        semaphore,
        |semaphore| async move { semaphore.acquire().await.expect("open").forget() },
        async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            let (start, mut added) = (Instant::now(), 0);
            loop {
                ticks.tick().await;
                let due = start.elapsed().as_micros() as u64 * RATE / 1_000_000;
                refilled.add_permits((due - added) as usize);
                added = due;
            }
        },
    )
}

fn governor(seconds: u64) -> Outcome {
    let rate = |n: u64| NonZeroU32::new(n as u32).expect("not zero");
    let quota = governor::Quota::per_second(rate(RATE)).allow_burst(rate(RATE / 100));
    watch(seconds, Arc::new(governor::RateLimiter::direct(quota)), |limiter| async move {
        limiter.until_ready().await;
    })
}

fn leaky(seconds: u64) -> Outcome {
    let limiter = leaky_bucket::RateLimiter::builder()
        .max(RATE as usize / 100)
        .initial(0)
        .refill(RATE as usize / 1_000)
        .interval(Duration::from_millis(1))
        .build();
    watch(seconds, Arc::new(limiter), |limiter| async move { limiter.acquire(1).await })
}

fn watch<T, F>(seconds: u64, shared: T, acquire: impl Fn(T) -> F + Clone + Send + Sync + 'static) -> Outcome
where
    T: Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    watch_beside(seconds, shared, acquire, std::future::pending())
}

/// Lets the line build up, then counts for `seconds`.
fn watch_beside<T, F>(
    seconds: u64,
    shared: T,
    acquire: impl Fn(T) -> F + Clone + Send + Sync + 'static,
    beside: impl Future<Output = ()> + Send + 'static,
) -> Outcome
where
    T: Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let granted: Arc<AtomicU64> = Arc::default();
    runtime.spawn(beside);
    for _ in 0..TASKS {
        let (shared, acquire, granted) = (shared.clone(), acquire.clone(), granted.clone());
        runtime.spawn(async move {
            loop {
                acquire(shared.clone()).await;
                granted.fetch_add(1, Relaxed);
            }
        });
    }
    std::thread::sleep(Duration::from_millis(500));
    let (start, cpu) = (Instant::now(), ProcessTime::now());
    let before = granted.load(Relaxed);
    std::thread::sleep(Duration::from_secs(seconds));
    let granted = granted.load(Relaxed) - before;
    let (took, cpu) = (start.elapsed(), cpu.elapsed());
    runtime.shutdown_background();
    Outcome {
        achieved: granted as f64 / (RATE as f64 * took.as_secs_f64()),
        cpu_per_grant: cpu.div_f64(granted.max(1) as f64),
    }
}
