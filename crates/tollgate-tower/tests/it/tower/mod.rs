//! The tower layer: tower's contract, and real clients with real servers.

mod answers;
mod bodies;
mod classes;
mod clients;
mod contract;
#[cfg(feature = "keyed")]
mod distributed;
mod histories;
mod servers;
mod yielding;

use std::time::Duration;

use tollgate::{Builder, Limiter, ManualClock, Quota};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A token each millisecond on a manual clock, from a full bucket of `burst`.
fn by_hand(burst: u64) -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::new(1, MILLI).burst(burst)))
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
