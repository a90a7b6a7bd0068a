//! Keyed limiters: memory, calls, many keys with waiters, and the longest calls.

mod bare;
mod calls;
mod stalls;
mod waiters;

use crate::job::Plan;
use crate::rounds::Extent;

pub fn run(extent: Extent, plan: &Plan) {
    calls::memory();
    calls::report(extent);
    // Each key has a token per second.
    (0..plan.rounds).for_each(|_| waiters::report(plan.seconds * 3.0));
    (0..plan.rounds).for_each(|_| stalls::report());
}
