//! States of limiters as bytes. The public names are in `state.rs`.

pub(crate) mod bytes;
#[cfg(feature = "keyed")]
mod key;
mod limiter;

use crate::error::StateError;
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
