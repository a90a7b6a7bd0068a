//! Paced bytes: exact instants, fair shares, and no byte or token lost, wherever a future is dropped.

mod classes;
mod edges;
mod histories;
mod instants;
mod scripted;

use crate::fixture::*;

/// A thousand bytes each millisecond, `burst` of them at once.
fn thousand_per_milli(burst: u64) -> Limiter {
    Limiter::new(Quota::new(1_000, MILLI).burst(burst)).unwrap()
}

/// A byte each millisecond on a manual clock, with `there` bytes at the start.
fn by_hand(burst: u64, there: u64) -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::new(1, MILLI).burst(burst).initial(there)))
}

fn built(builder: Builder) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

/// Tokens granted and not refunded.
fn paid(limiter: &Limiter) -> u64 {
    let seen = limiter.snapshot();
    seen.granted - seen.refunded
}
