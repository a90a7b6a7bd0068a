//! Real threads, real runtimes, and callers that break the rules: every token is accounted for, and every claim ends.
//!
//! The order of events depends on the scheduler; the results do not: each test counts tokens, or awaits a result that
//! must come.

mod clocks;
mod panics;
mod storm;
mod wakers;

use crate::fixture::*;

/// This many; a two-hundredth of it under Miri.
const fn many(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(200) } else { count }
}

/// True if `act` panics.
fn panics<R>(act: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(act()))).is_err()
}
