//! Seastar's test of its token bucket: what is kept of the rate, and how evenly, beside others that burn all CPU.
//!
//! Each worker takes 10 tokens, works for a millisecond, and comes back. A cap that burned what is minted while it holds
//! (seastar's) would lose rate here, since releases come late. Not so a cap that only gates.

use crate::child::{Job, Outcome, have_done};
use crate::results::Results;
use crate::waiting::two_workers;
use crate::{Failure, Plan};
use serde::{Deserialize, Serialize};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::{Bucket, Limiter, Quota};

const RATE: u64 = 10_000;
const WORKERS: usize = 32;
const COST: u64 = 10;
const BURST: u64 = 200;
const CAP: u64 = 200;
const WORK: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Contender {
    Bucket,
    CappedBucket,
    Limiter { capped: bool, hog_tasks: bool },
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Bucket => "Bucket, hog threads",
            Self::CappedBucket => "CappedBucket, hog threads",
            Self::Limiter { capped: false, hog_tasks: false } => "Limiter, hog threads",
            Self::Limiter { capped: true, hog_tasks: false } => "Limiter with max_in_flight, hog threads",
            Self::Limiter { capped: false, hog_tasks: true } => "Limiter, hog tasks",
            Self::Limiter { capped: true, hog_tasks: true } => "Limiter with max_in_flight, hog tasks",
        }
    }
}

pub fn run(results: &mut Results, plan: &Plan) -> Result<(), Failure> {
    let limiters = [false, true].map(|hog_tasks| [false, true].map(|capped| Contender::Limiter { capped, hog_tasks }));
    let contenders: Vec<_> =
        [Contender::Bucket, Contender::CappedBucket].into_iter().chain(limiters.concat()).collect();
    for _ in 0..plan.child_rounds {
        for hogs in [0, 2, 4] {
            let case = format!("hogs, {hogs} of them on {} cores", results.cores);
            for contender in contenders.iter().filter(|_| plan.wants(&case)) {
                let job = Job::Hogs { contender: *contender, hogs, seconds: plan.seconds };
                have_done(results, &case, contender.name(), &job, plan.limit())?;
            }
        }
    }
    Ok(())
}

pub fn measure(contender: Contender, hogs: usize, seconds: f64) -> Outcome {
    let counts: Vec<Arc<AtomicU64>> = (0..WORKERS).map(|_| Arc::default()).collect();
    let (quota, stop) = (Quota::per_second(RATE).burst(BURST).initial(0), AtomicBool::new(false));
    let read = || counts.iter().map(|count| count.load(Relaxed)).collect::<Vec<_>>();
    let watch = || {
        thread::sleep(Duration::from_millis(300));
        let (start, before) = (Instant::now(), read());
        thread::sleep(Duration::from_secs_f64(seconds));
        let each: Vec<f64> = read().iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
        stop.store(true, Relaxed);
        (each, start.elapsed().as_secs_f64())
    };
    let (each, took) = match contender {
        Contender::Bucket => {
            let bucket = Bucket::new(quota, Duration::ZERO).expect("valid");
            on_threads(&bucket, |_| (), hogs, &counts, &stop, watch)
        }
        Contender::CappedBucket => {
            let bucket = Bucket::capped(quota, CAP, Duration::ZERO).expect("valid");
            on_threads(&bucket, |n| bucket.release(n), hogs, &counts, &stop, watch)
        }
        Contender::Limiter { capped, hog_tasks } => {
            let builder = Limiter::builder().quota(quota);
            let limiter = if capped { builder.max_in_flight(CAP).build() } else { builder.build() };
            on_tasks(limiter.expect("valid"), hogs, hog_tasks, &counts, &stop, watch)
        }
    };
    let all: f64 = each.iter().sum();
    let mean = all / WORKERS as f64;
    Outcome::from([
        ("rate kept, %".into(), vec![100.0 * all / (RATE as f64 * took)]),
        ("least worker / mean".into(), vec![each.iter().copied().fold(f64::MAX, f64::min) / mean]),
        ("most / mean".into(), vec![each.iter().copied().fold(0.0, f64::max) / mean]),
    ])
}

/// As on seastar's shards: everybody grabs, looks now and then, and tells the bucket the time.
fn on_threads<C, R>(
    bucket: &Bucket<C>,
    release: impl Fn(u64) + Sync,
    hogs: usize,
    counts: &[Arc<AtomicU64>],
    stop: &AtomicBool,
    watch: impl FnOnce() -> R,
) -> R {
    let start = Instant::now();
    thread::scope(|scope| {
        for count in counts {
            let release = &release;
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let ticket = bucket.grab(COST);
                    while bucket.deficiency(ticket) > 0 && !stop.load(Relaxed) {
                        thread::sleep(Duration::from_micros(200));
                        bucket.replenish(start.elapsed());
                    }
                    count.fetch_add(COST, Relaxed);
                    thread::sleep(WORK);
                    release(COST);
                }
            });
        }
        for _ in 0..hogs {
            scope.spawn(|| burn_until(|| stop.load(Relaxed)));
        }
        watch()
    })
}

fn on_tasks<R>(
    limiter: Limiter,
    hogs: usize,
    hog_tasks: bool,
    counts: &[Arc<AtomicU64>],
    stop: &AtomicBool,
    watch: impl FnOnce() -> R,
) -> R {
    let runtime = two_workers();
    for count in counts {
        let (limiter, count) = (limiter.clone(), count.clone());
        runtime.spawn(async move {
            loop {
                let _grant = limiter.consume(COST).await.expect("open");
                count.fetch_add(COST, Relaxed);
                sleep(WORK).await;
            }
        });
    }
    if hog_tasks {
        for _ in 0..hogs {
            runtime.spawn(async {
                loop {
                    let end = Instant::now() + Duration::from_micros(100);
                    burn_until(|| Instant::now() >= end);
                    tokio::task::yield_now().await;
                }
            });
        }
        let seen = watch();
        runtime.shutdown_background();
        return seen;
    }
    thread::scope(|scope| {
        for _ in 0..hogs {
            scope.spawn(|| burn_until(|| stop.load(Relaxed)));
        }
        watch()
    })
}

fn burn_until(done: impl Fn() -> bool) {
    while !done() {
        spin_loop();
    }
}
