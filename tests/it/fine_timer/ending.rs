//! Runtimes that end, with the fine timer: the tests of `shutdown/runtimes.rs`.

#[path = "../shutdown/runtimes.rs"]
mod runtimes;

use super::{Limiter, Quota, to_its_end};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

fn workers(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
}

fn alone() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn empty() -> tollgate::Limiter {
    Limiter::new(Quota::per_second(1_000).burst(1).initial(0)).unwrap()
}

fn await_waiters(limiter: &tollgate::Limiter, count: usize) {
    while limiter.snapshot().waiting_tasks != count {
        thread::yield_now();
    }
}
