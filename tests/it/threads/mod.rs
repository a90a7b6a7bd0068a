//! Real threads, real runtimes, and callers that break the rules: every token is accounted for, nobody is left waiting.
//!
//! What happens when is up to the scheduler; the verdicts are not: each test counts tokens, or awaits what must come.

mod clocks;
mod crowds;
mod runtimes;
mod storm;
mod wakers;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

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

/// As many as that; a two-hundredth under Miri.
const fn many(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(200) } else { count }
}

/// True if `act` panics.
fn panics<R>(act: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(act()))).is_err()
}
