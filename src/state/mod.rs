//! Levels that survive a restart. Feature `state`.
//!
//! A limiter that is built anew has full buckets: a service that is restarted once a minute has a higher limit. With
//! [`Limiter::state`](crate::Limiter::state) and [`KeyedLimiter::save`](crate::KeyedLimiter::save) the process saves the
//! levels of all buckets, and with [`Builder::restore`](crate::Builder::restore) and
//! [`KeyedBuilder::restore`](crate::KeyedBuilder::restore) the next process continues from them.
//!
//! * **What is saved**: for each quota its level, to the fraction of a token, or its debt; pauses; and the quotas. The
//!   waiters and the grants in flight end with the process, and so do counters and the state of classes.
//! * **The time between** refills the buckets by the wall clock, up to the burst. If the clock has stepped back, or
//!   forward by more than 366 days, nothing is refilled.
//! * **The rate law holds** over saving, the time between and restoring: the restored limiter never grants more than
//!   the saved one would have. Grants made after the state was saved are not in it, so save when no more are made.
//! * **All or nothing**: a state that is truncated, damaged, or that belongs to other quotas is a [`StateError`], and
//!   nothing is restored. [`LimiterState::convert`] and `KeyedState::convert` allow other quotas explicitly.
//!
//! To replace a file without ever leaving a partial one, write to a temporary file beside it, call
//! [`sync_all`](std::fs::File::sync_all), and rename it.
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
//! let bytes = limiter.state()?.to_bytes(); // to a file
//!
//! // In the next process, two minutes later:
//! let state = LimiterState::from_bytes(&bytes)?;
//! let now = SystemTime::now() + Duration::from_secs(120);
//! let limiter = Limiter::builder().quota(Quota::per_hour(60)).restore(state, now).build()?;
//! assert_eq!(limiter.available(), 2);
//! # Ok(()) }
//! ```

pub(crate) mod bytes;
#[cfg(feature = "keyed")]
mod key;
mod limiter;

pub use crate::error::StateError;
#[cfg(feature = "keyed")]
pub use crate::keyed::{KeyedSave, KeyedState};
#[cfg(feature = "keyed")]
pub use key::StateKey;
pub use limiter::LimiterState;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest time between saving and restoring that refills buckets. A longer time is more likely a wrong clock.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// An instant of the wall clock: nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WallTime(pub(crate) u64);

impl WallTime {
    pub(crate) fn of(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, crate::clock::whole_nanos))
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
