//! A limiter's own time, and how long a driver sleeps by it.

use super::{Clock, ManualClock};
use crate::core::quietly;
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A limiter's own time: nanoseconds since it was built.
#[derive(Clone, Debug)]
pub(crate) enum Time {
    /// Read by `tokio::time::Instant::now`, which respects paused time, and kept as the standard library's instant.
    Tokio {
        base: std::time::Instant,
    },
    Other {
        chosen: Chosen,
        base: Duration,
    },
}

/// A clock that was passed to the builder. Its methods are user code, so the answers that do not change are stored
/// here.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    clock: Arc<dyn Clock>,
    is_manual: bool,
    /// The clock is quanta's, so reading it runs no user code.
    #[cfg_attr(not(feature = "keyed"), expect(dead_code, reason = "only keyed limiters read the time under a lock"))]
    is_quanta: bool,
    /// Two clocks are the same if this number is equal, as it is for clones of a manual clock and for clones of a
    /// builder.
    identity: usize,
}

impl Chosen {
    pub(crate) fn new<C: Clock>(clock: C) -> Self {
        let manual = (&clock as &dyn Any).downcast_ref().map(ManualClock::identity);
        let is_manual = clock.is_manual();
        #[cfg(feature = "quanta")]
        let is_quanta = (&clock as &dyn Any).is::<super::QuantaClock>();
        #[cfg(not(feature = "quanta"))]
        let is_quanta = false;
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let identity = manual.unwrap_or_else(|| Arc::as_ptr(&clock).addr());
        Self { clock, is_manual, is_quanta, identity }
    }

    // Not inlined into every call, most of which read tokio's clock.
    #[inline(never)]
    fn nanos_since(&self, base: Duration) -> u64 {
        self.clock.nanos_since(base)
    }
}

impl Time {
    pub(crate) fn tokio() -> Self {
        Self::Tokio { base: Instant::now().into_std() }
    }

    pub(crate) fn other(chosen: Chosen) -> Self {
        Self::Other { base: chosen.clock.now(), chosen }
    }

    /// True if both read the same clock, so that their differences can be compared.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tokio { .. }, Self::Tokio { .. }) => true,
            (Self::Other { chosen: one, .. }, Self::Other { chosen: two, .. }) => one.identity == two.identity,
            _ => false,
        }
    }

    /// Translates `at` from the time of `other`, which reads the same clock. The result is negative if that is before
    /// this limiter was built, because the clock has stepped back.
    pub(crate) fn translate(&self, other: &Self, at: u64) -> i128 {
        let (later, earlier) = match (self, other) {
            (Self::Tokio { base }, Self::Tokio { base: other }) => {
                (base.saturating_duration_since(*other), other.saturating_duration_since(*base))
            }
            (Self::Other { base, .. }, Self::Other { base: other, .. }) => {
                (base.saturating_sub(*other), other.saturating_sub(*base))
            }
            _ => (Duration::ZERO, Duration::ZERO),
        };
        at as i128 + whole_nanos(earlier) as i128 - whole_nanos(later) as i128
    }

    /// This clock with its origin `nanos` earlier, so that [`now`](Self::now) is that much later; `None` if the clock
    /// has no such instant.
    #[cfg(all(feature = "keyed", feature = "state"))]
    pub(crate) fn begun_earlier(&self, nanos: u64) -> Option<Self> {
        let nanos = Duration::from_nanos(nanos);
        Some(match self {
            Self::Tokio { base } => Self::Tokio { base: base.checked_sub(nanos)? },
            Self::Other { chosen, base } => Self::Other { chosen: chosen.clone(), base: base.checked_sub(nanos)? },
        })
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::Tokio { base } => nanos_between(*base, Instant::now()),
            Self::Other { chosen, base } => chosen.nanos_since(*base),
        }
    }

    /// How far the wall clock is ahead of this time, in nanoseconds since 1970; `None` if the clock panics.
    pub(crate) fn wall_offset(&self) -> Option<i128> {
        let read = || {
            let wall = match self {
                Self::Tokio { .. } => tokios_wall(),
                Self::Other { chosen, .. } => chosen.clock.wall(),
            };
            // The time last: if the thread is interrupted in between, periods begin late rather than early.
            i128::from(nanos_of_wall(wall)) - i128::from(self.now())
        };
        quietly(read)
    }

    pub(crate) fn is_tokios(&self) -> bool {
        matches!(self, Self::Tokio { .. })
    }

    /// Whether it may be read under a lock: reading it runs no user code.
    #[cfg(feature = "keyed")]
    pub(crate) fn runs_no_user_code(&self) -> bool {
        match self {
            Self::Tokio { .. } => true,
            Self::Other { chosen, .. } => chosen.is_quanta,
        }
    }

    pub(crate) fn is_manual(&self) -> bool {
        matches!(self, Self::Other { chosen: Chosen { is_manual: true, .. }, .. })
    }

    /// Like [`instant`](Self::instant), for a driver that sleeps on behalf of waiters: a clock that panics must not end
    /// the driver.
    pub(crate) fn instant_or_retry(&self, at: u64) -> Instant {
        quietly(|| self.instant(at)).unwrap_or_else(|| Instant::now() + RETRY)
    }

    /// Returns the instant of `at` on tokio's clock. An instant far away is moved closer: the caller wakes early,
    /// reads the clock and sleeps again.
    pub(crate) fn instant(&self, at: u64) -> Instant {
        let now = Instant::now();
        match self {
            // Computed from the absolute schedule, not from the last wake-up: a chain of short sleeps would drift.
            Self::Tokio { base } => now + self.sleep_between(nanos_between(*base, now), at),
            Self::Other { .. } => now + self.sleep_until(at),
        }
    }

    /// How long to sleep before the clock is read again, if nothing is to be done before `at`.
    pub(crate) fn sleep_until(&self, at: u64) -> Duration {
        self.sleep_between(self.now(), at)
    }

    fn sleep_between(&self, now: u64, at: u64) -> Duration {
        let longest = if self.is_tokios() { DAY } else { MINUTE };
        Duration::from_nanos(at.saturating_sub(now)).min(longest)
    }
}

/// The longest sleep under tokio's clock.
const DAY: Duration = Duration::from_secs(86_400);
/// The longest sleep under any other clock: it may leap, as after a suspension, while the timer of tokio does not.
const MINUTE: Duration = Duration::from_secs(60);

/// After how long a clock that panics is read again: one tick of tokio's timer.
pub(crate) const RETRY: Duration = Duration::from_millis(1);

/// The time of day by tokio's clock: that of the system, unless tokio's clock is paused or was advanced.
fn tokios_wall() -> SystemTime {
    let (now, wall, real) = (Instant::now().into_std(), SystemTime::now(), std::time::Instant::now());
    (wall - real.saturating_duration_since(now)) + now.saturating_duration_since(real)
}

/// The microseconds since 1970, by tokio's clock.
#[cfg(feature = "distributed")]
pub(crate) fn wall_micros() -> u64 {
    nanos_of_wall(tokios_wall()) / 1_000
}

/// The nanoseconds since 1970, from 0 to 2^64 - 1.
pub(crate) fn nanos_of_wall(wall: SystemTime) -> u64 {
    wall.duration_since(UNIX_EPOCH).map_or(0, whole_nanos)
}

/// Converts to nanoseconds in 64 bits, which last for 584 years.
#[inline]
pub(crate) fn whole_nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

/// 0 if `now` is before `base`.
#[inline]
fn nanos_between(base: std::time::Instant, now: Instant) -> u64 {
    now.into_std().checked_duration_since(base).map_or(0, whole_nanos)
}
