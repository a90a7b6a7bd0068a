//! Levels that survive a restart. Feature `state`.
//!
//! A limiter that is built anew has full buckets: a service that is restarted once a minute has a higher limit. With
//! [`Limiter::state`](crate::Limiter::state) and `KeyedLimiter::state` the process saves the levels of all buckets, and
//! with [`Builder::restore`](crate::Builder::restore) and `KeyedBuilder::restore` the next process continues from them.
//! Between the two, serde writes and reads the state: as JSON, with postcard, or in any other format.
//!
//! * **What is saved**: for each quota its level, to the fraction of a token, or its debt; pauses; and the quotas. The
//!   waiters and the grants in flight end with the process, and so do counters and the state of classes.
//! * **The time between** refills the buckets by the wall clock, up to the burst. If the clock has stepped back, or
//!   forward by more than 366 days, nothing is refilled. For the periods of a calendar the limiter's clock counts.
//! * **The rate law holds** over saving, the time between and restoring: the restored limiter never grants more than
//!   the saved one would have. Grants made after the state was saved are not in it, so save when no more are made, and
//!   restore a state once.
//! * **All or nothing**: `build` checks the state. One that was saved by another version of its form, that has numbers
//!   that no limiter can have, or that belongs to other quotas is a [`StateError`], and nothing is restored.
//!   [`LimiterState::convert`] and `KeyedState::convert` allow other quotas explicitly.
//!
//! There is no checksum: use a format or a file that has one if a disk may change numbers. To replace a file without ever
//! leaving a partial one, write to a temporary file beside it, call [`sync_all`](std::fs::File::sync_all), and rename it.
//!
//! # Examples
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use tollgate::state::LimiterState;
//! use tollgate::{Limiter, Quota};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(Quota::per_hour(60))?;
//! let _grant = limiter.try_acquire(60)?;
//! let json = serde_json::to_string(&limiter.state()?)?; // to a file
//!
//! // In the next process, two minutes later:
//! let state: LimiterState = serde_json::from_str(&json)?;
//! let now = SystemTime::now() + Duration::from_secs(120);
//! let limiter = Limiter::builder().quota(Quota::per_hour(60)).restore(state, now).build()?;
//! assert_eq!(limiter.available(), 2);
//! # Ok(()) }
//! ```

mod limiter;
mod version;

pub use crate::error::StateError;
#[cfg(feature = "keyed")]
pub use crate::keyed::KeyedState;
pub use limiter::LimiterState;
#[cfg(feature = "keyed")]
pub(crate) use limiter::{check_level, check_quotas};
#[cfg(feature = "keyed")]
pub(crate) use version::Versioned;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest time between saving and restoring that refills buckets. A longer time is more likely a wrong clock.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// An instant of the wall clock: nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct WallTime(u64);

impl WallTime {
    pub(crate) fn of(time: SystemTime) -> Self {
        Self(crate::clock::time::nanos_of_wall(time))
    }

    pub(crate) fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.0)
    }

    /// The nanoseconds from here to `now` that refill buckets.
    pub(crate) fn offline(self, now: SystemTime) -> u64 {
        let passed = Self::of(now).0.saturating_sub(self.0);
        if passed > LONGEST.as_nanos() as u64 { 0 } else { passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stepped_back_or_far_ahead_gives_nothing() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let saved = WallTime::of(at(1_000));
        assert_eq!(saved.offline(at(1_003)), 3_000_000_000);
        assert_eq!([0, 999, 1_000].map(|seconds| saved.offline(at(seconds))), [0; 3]);
        assert_eq!(saved.offline(UNIX_EPOCH - Duration::from_secs(9)), 0);
        let most = 366 * 86_400;
        assert_eq!(saved.offline(at(1_000 + most)), most * 1_000_000_000);
        assert_eq!([at(1_001 + most), at(1 << 40)].map(|now| saved.offline(now)), [0; 2]);
    }
}
