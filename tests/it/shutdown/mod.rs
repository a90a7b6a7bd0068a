//! Runtimes, replenishers and limiters that end while claims wait: no claim hangs, and nothing remains.

mod leftovers;
mod outside;
mod replenishers;
mod runtimes;

use crate::fixture::to_its_end;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate::{Limiter, Quota};

/// This many; a fiftieth of it under Miri.
const fn many(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(50) } else { count }
}

fn workers(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
}

fn alone() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A token each millisecond into an empty bucket of one.
fn empty() -> Limiter {
    Limiter::new(Quota::per_second(1_000).burst(1).initial(0)).unwrap()
}

/// Returns when `count` claims wait. They arrive by themselves; this only waits for them.
fn await_waiters(limiter: &Limiter, count: usize) {
    while limiter.snapshot().waiting_tasks != count {
        thread::yield_now();
    }
}
