//! Runtimes that end, with the fine timer: the tests of `shutdown/runtimes.rs`.

#[path = "../shutdown/runtimes.rs"]
mod runtimes;

use super::{Limiter, Quota};
use crate::fixture::*;
use tokio::runtime::{Builder, Runtime};

fn empty() -> tollgate::Limiter {
    Limiter::new(Quota::per_second(1_000).burst(1).initial(0)).unwrap()
}
