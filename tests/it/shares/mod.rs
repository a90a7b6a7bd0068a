//! Weighted, nested classes: an exact model, the examples and pitfalls of its specification,
//! and the limiter against the model.

mod api;
mod callers;
mod clocks_and_wakers;
mod counts;
mod examples;
mod fixture;
pub(crate) mod fraction;
mod histories;
mod keys;
mod late_parents;
mod laws;
pub(crate) mod model;
mod pitfalls;
mod regressions;
pub(crate) mod seeds;

use crate::fixture::*;

/// A limiter with classes.
fn divided(quota: Quota) -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(quota).classes())
}

/// 100 tokens per second, 10 at once.
fn hundred() -> Quota {
    Quota::per_second(100).burst(10)
}
