//! Hot loops that await and never have to wait.

use crate::table::Figures;
use std::future::{Future, ready};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tollgate::{Limiter, Quota};

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;
type MakeJob = Box<dyn Fn(u64) -> Job>;

fn contenders() -> Vec<(&'static str, MakeJob)> {
    let counter = Arc::new(AtomicU64::new(0));
    let limiter = Limiter::new(Quota::per_second(1_000_000_000).burst(1_000_000)).expect("valid");
    let semaphore = Arc::new(tokio::sync::Semaphore::new(tokio::sync::Semaphore::MAX_PERMITS));
    let plenty = NonZeroU32::new(1_000_000_000).expect("not zero");
    let burst = NonZeroU32::new(1_000_000).expect("not zero");
    let governor = Arc::new(governor::RateLimiter::direct(governor::Quota::per_second(plenty).allow_burst(burst)));
    let leaky = leaky_bucket::RateLimiter::builder().max(usize::MAX / 4).initial(usize::MAX / 4).build();
    let leaky = Arc::new(leaky);
    vec![
        (
            "floor: fetch_add as a future",
            job(counter, |counter, n| async move {
                for _ in 0..n {
                    black_box(ready(counter.fetch_add(1, Relaxed)).await);
                }
            }),
        ),
        (
            "tollgate",
            job(limiter, |limiter, n| async move {
                for _ in 0..n {
                    let _grant = limiter.consume(1).await.expect("open");
                }
            }),
        ),
        (
            "tokio Semaphore (no refill)",
            job(semaphore, |semaphore, n| async move {
                for _ in 0..n {
                    semaphore.acquire().await.expect("open").forget();
                }
            }),
        ),
        (
            "governor",
            job(governor, |governor, n| async move {
                for _ in 0..n {
                    governor.until_ready().await;
                }
            }),
        ),
        (
            "leaky-bucket",
            job(leaky, |leaky, n| async move {
                for _ in 0..n {
                    leaky.acquire(1).await;
                }
            }),
        ),
    ]
}

fn job<T: Clone + 'static, F: Future<Output = ()> + Send + 'static>(
    shared: T,
    run: impl Fn(T, u64) -> F + 'static,
) -> MakeJob {
    Box::new(move |n| Box::pin(run(shared.clone(), n)))
}

pub fn measure(tasks: usize, rounds: usize, operations: u64) -> Vec<Figures> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let contenders = contenders();
    let mut figures: Vec<Figures> = contenders.iter().map(|(name, _)| Figures { name, rounds: Vec::new() }).collect();
    for _ in 0..rounds {
        for ((_, make), figures) in contenders.iter().zip(&mut figures) {
            let jobs = (0..tasks).map(|_| make(operations)).collect();
            figures.rounds.push(round(&runtime, jobs) / operations as f64);
        }
    }
    figures
}

/// Nanoseconds until all jobs are done.
fn round(runtime: &Runtime, jobs: Vec<Job>) -> f64 {
    let start = Instant::now();
    let running: Vec<_> = jobs.into_iter().map(|job| runtime.spawn(job)).collect();
    for job in running {
        runtime.block_on(job).expect("a contender panicked");
    }
    start.elapsed().as_nanos() as f64
}
