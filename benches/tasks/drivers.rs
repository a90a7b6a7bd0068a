//! Grants while many threads, or many runtimes, wait for one limiter, compared with as many tasks of one runtime.

use crate::{cpu_seconds, print};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tollgate::{Limiter, Quota};

const RATE: u64 = 500;
const TIME: Duration = Duration::from_secs(2);

pub fn run() {
    let tasks = per_grant(|limiter, stop, grants| {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let tasks: Vec<_> = (0..500).map(|_| tokio::spawn(ask(limiter.clone(), stop, grants))).collect();
            for task in tasks {
                task.await.expect("no panic");
            }
        });
    });
    print("drivers", "500 tasks of one runtime", "us", tasks);
    let threads = per_grant(|limiter, stop, grants| {
        join_all(500, || {
            while !stop.load(Ordering::Relaxed) {
                drop(limiter.blocking_consume(1).expect("open"));
                grants.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    print("drivers", "500 threads in `blocking_consume`", "us", threads);
    let runtimes = per_grant(|limiter, stop, grants| {
        join_all(64, || {
            let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
            runtime.block_on(ask(limiter.clone(), stop, grants));
        });
    });
    print("drivers", "tasks of 64 runtimes", "us", runtimes);
}

async fn ask(limiter: Limiter, stop: &'static AtomicBool, grants: &'static AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        drop(limiter.consume(1).await.expect("open"));
        grants.fetch_add(1, Ordering::Relaxed);
    }
}

fn join_all(threads: usize, act: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&act);
        }
    });
}

/// Starts `run`, which ends when its flag is set, and returns the cost of a grant, measured while all tasks wait.
fn per_grant(run: impl FnOnce(&Limiter, &'static AtomicBool, &'static AtomicU64) + Send) -> f64 {
    let (stop, grants) = (&*Box::leak(Box::new(AtomicBool::new(false))), &*Box::leak(Box::new(AtomicU64::new(0))));
    let limiter = Limiter::new(Quota::per_second(RATE).burst(1)).expect("a quota");
    thread::scope(|scope| {
        scope.spawn(|| run(&limiter, stop, grants));
        thread::sleep(TIME / 2);
        let before = (cpu_seconds(), grants.load(Ordering::Relaxed));
        thread::sleep(TIME);
        let after = (cpu_seconds(), grants.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        limiter.set_quota(0, Quota::per_second(1_000_000)).expect("a quota");
        (after.0 - before.0) / (after.1 - before.1) as f64
    })
}
