//! Runtimes, replenishers and limiters that go away while others wait: nobody hangs, and nothing stays behind.

mod leftovers;
mod outside;
mod replenishers;
mod runtimes;

use crate::fixture::to_its_end;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate::{Limiter, Quota};

/// As many as that; a fiftieth under Miri.
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

/// Returns when `count` callers stand in line. They come by themselves: this does not decide anything.
fn await_line(limiter: &Limiter, count: usize) {
    while limiter.snapshot().waiting_tasks != count {
        thread::yield_now();
    }
}
