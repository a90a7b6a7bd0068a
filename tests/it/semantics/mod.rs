//! Semantics, where other limiters surprise their users: question after question, each answered by tests whose names
//! begin with it. The files below are in the order of the questions.

// Costs, the line, leaving it, being refused.
mod asking;

// What comes back, what is charged afterwards, the ceiling.
mod paying;

// A cap and no quota; waiting with nothing to hold.
mod cap_alone;

// Another quota, a pause, no burst given, the end.
mod changing;

// Fractions, idle time, clocks that step back.
mod time;

// Runtimes that end, and runtimes that nobody drives.
mod runtimes;

// Tasks that are answered at once, again and again.
mod yielding;

use crate::fixture::*;
use std::time::Duration;

use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Bound, Limiter, Quota, TryAcquireError};

const DAY: Duration = Duration::from_secs(86_400);
const SECOND: Duration = Duration::from_secs(1);

impl Stand {
    /// Tokens in the first bucket, debts deducted.
    fn level(&self) -> i64 {
        self.limiter.snapshot().quotas[0].level
    }
}

/// How many of `line` were granted since they last looked; those leave the line.
fn count_served(line: &mut Vec<Waiting<'_>>) -> usize {
    let before = line.len();
    line.retain_mut(|waiting| !waiting.is_woken() || waiting.poll().is_pending());
    before - line.len()
}
