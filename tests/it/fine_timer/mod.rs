//! The fine timer changes nothing but lateness: the tests of paused time and of runtimes that end, with it on, and what is
//! its own. Nothing here is timed, but for bounds that a slow machine cannot break.

mod ending;
mod own;
mod paused;

use crate::fixture::to_its_end;
use std::thread;
use std::time::Duration;

use tollgate::{Builder, ConfigError, Quota};

/// In the place of tollgate's, so that limiters get the fine timer.
struct Limiter;

impl Limiter {
    fn builder() -> Builder {
        tollgate::Limiter::builder().fine_timer()
    }

    #[allow(clippy::new_ret_no_self)]
    fn new(quota: Quota) -> Result<tollgate::Limiter, ConfigError> {
        Self::builder().quota(quota).build()
    }
}
