//! Semantics where limiters surprise their users: one question after the other, each answered by tests with a common
//! prefix. The files below are in the order of the questions.

// Costs, the queue, cancellation, refusals.
mod claims;

// Refunds, later charges, the ceiling.
mod settlement;

// A cap without a quota; waiting without holding a grant.
mod cap_alone;

// Another quota, pauses, quotas without a burst, closing.
mod changes;

// Windows that slide.
mod sliding;

// Fractions, idle time, clocks that step back.
mod time;

// Runtimes that are not driven, and tasks that panic.
mod runtimes;

// Tasks that get an answer at once, again and again.
mod yielding;

use crate::fixture::*;

impl Fixture {
    /// The tokens in the first bucket, less debts.
    fn level(&self) -> i64 {
        self.limiter.snapshot().quotas[0].level
    }
}
