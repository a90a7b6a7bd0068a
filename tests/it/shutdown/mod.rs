//! Runtimes, replenishers and limiters that end while claims wait: no claim hangs, and nothing remains.

mod leftovers;
mod outside;
mod replenishers;
mod runtimes;

use crate::fixture::*;

use tokio::runtime::{Builder, Runtime};

/// This many; a fiftieth of it under Miri.
const fn many(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(50) } else { count }
}

/// A token each millisecond into an empty bucket of one.
fn empty() -> Limiter {
    Limiter::new(Quota::per_second(1_000).burst(1).initial(0)).unwrap()
}
