//! Runtimes, replenishers and limiters that go away while others wait: nobody hangs, and nothing stays behind.

mod leftovers;
mod outside;
mod replenishers;
mod runtimes;

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate::{Limiter, Quota};

/// Runs `test` on a thread of its own, so that one that hangs fails instead of holding everybody up.
fn to_its_end(test: impl FnOnce() + Send + 'static) {
    let (running, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _running = running;
        test();
    });
    // Miri is a thousand times slower, and its scheduler is not fair.
    let patience = Duration::from_secs(if cfg!(miri) { 3_600 } else { 180 });
    match ended.recv_timeout(patience) {
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

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
