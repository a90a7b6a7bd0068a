//! Paced streams and sinks: exact instants, items in order, and nothing lost, wherever an adaptor is dropped.

mod classes;
mod histories;
mod scripted;
mod sinks;
mod streams;

use crate::fixture::*;

/// A token each millisecond, `burst` of them at once.
fn per_milli(burst: u64) -> Limiter {
    Limiter::new(Quota::new(1, MILLI).burst(burst)).unwrap()
}

/// A token each millisecond on a manual clock, from an empty bucket.
fn by_hand(burst: u64) -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::new(1, MILLI).burst(burst).initial(0)))
}
