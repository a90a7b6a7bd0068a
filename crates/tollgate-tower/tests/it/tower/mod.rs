//! The tower layer: tower's contract, and real clients before real servers.

mod answers;
mod bodies;
mod clients;
mod contract;
#[cfg(feature = "keyed")]
mod distributed;
mod histories;
mod metrics;
mod servers;
mod yielding;

use std::time::Duration;

use tollgate::{Builder, Limiter, ManualClock, Quota};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A token each millisecond by a clock moved by hand, `burst` of them there.
fn by_hand(burst: u64) -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::new(1, MILLI).burst(burst)))
}

fn built(builder: Builder) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

/// What was granted and not given back.
fn paid(limiter: &Limiter) -> u64 {
    let seen = limiter.snapshot();
    seen.granted - seen.refunded
}
