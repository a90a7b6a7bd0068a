//! Tests of the scheduler inside a limiter. `tests/it/shares` tests classes through the public API.

mod arrivals;
mod bounded_work;
mod lock_holds;

use tokio_test::task::{Spawn, spawn};

/// A future that has to wait when it is first polled.
fn pending<F: Future>(future: F) -> Spawn<F> {
    let mut waiting = spawn(future);
    assert!(waiting.poll().is_pending());
    waiting
}
