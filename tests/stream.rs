//! Paced streams and sinks: exact instants, every item in its order, and nothing lost wherever they are dropped.
#![cfg(feature = "stream")]

#[path = "stream/histories.rs"]
mod histories;
#[allow(dead_code, reason = "only the line and the levels are asked here")]
mod oracle;
#[path = "stream/scripted.rs"]
mod scripted;
#[path = "stream/sinks.rs"]
mod sinks;
#[path = "stream/streams.rs"]
mod streams;

use std::time::Duration;

use tollgate::{Limiter, ManualClock, Quota};

const MILLI: Duration = Duration::from_millis(1);

/// A token each millisecond, `burst` of them at once.
fn per_milli(burst: u64) -> Limiter {
    Limiter::new(Quota::new(1, MILLI).burst(burst)).unwrap()
}

/// The same by a clock moved by hand, with nothing there at the start.
fn by_hand(burst: u64) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let quota = Quota::new(1, MILLI).burst(burst).initial(0);
    (Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap(), clock)
}
