//! The fine timer changes only the lateness: the tests of paused time and of runtimes that end run again with it,
//! beside its own. Nothing here depends on real time, except for bounds that a slow machine still keeps.

mod ending;
mod paused;
mod real_time;

use crate::fixture::*;

/// Replaces tollgate's `Limiter`, so that the limiters of these tests get the fine timer.
struct Limiter;

impl Limiter {
    fn builder() -> Builder {
        tollgate::Limiter::builder().fine_timer()
    }

    #[allow(clippy::new_ret_no_self, reason = "it stands in for `Limiter::new` in shared tests")]
    fn new(quota: Quota) -> Result<tollgate::Limiter, ConfigError> {
        Self::builder().quota(quota).build()
    }
}
