//! A clock that stands still until it is advanced.

use super::Clock;
use super::time::{nanos_of_wall, whole_nanos};
use crate::sync::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock that is moved by hand, for tests without a runtime. Clones share their time.
///
/// No timer follows it. After it was moved, [`Limiter::tick`](crate::Limiter::tick) wakes the waiters that are due. It
/// does not wake a claim whose [`within`](crate::Consume::within) has ended, which finds out when it is polled next.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, ManualClock, Quota};
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).clock(clock.clone()).build()?;
/// assert!(limiter.try_acquire(10).is_ok());
/// clock.advance(Duration::from_millis(250));
/// assert_eq!(limiter.available(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    time: Arc<ManualTime>,
}

#[derive(Debug)]
struct ManualTime {
    nanos: AtomicU64,
    /// How far the wall clock is ahead of `nanos`, in nanoseconds since 1970, modulo 2^64.
    wall_ahead: AtomicU64,
}

impl ManualClock {
    /// Creates a clock at one year past its origin, so that it can step back. Its wall clock shows the beginning of 1971.
    pub fn new() -> Self {
        let nanos = AtomicU64::new(365 * 86_400 * 1_000_000_000);
        Self { time: Arc::new(ManualTime { nanos, wall_ahead: AtomicU64::new(0) }) }
    }

    /// Sets the [wall clock](Clock::wall), which then moves with the time. The time itself stays where it is. The wall clock
    /// shows no time before 1970 and none after 2554.
    pub fn set_wall(&self, wall: SystemTime) {
        let now = self.time.nanos.load(Ordering::Acquire);
        self.time.wall_ahead.store(nanos_of_wall(wall).wrapping_sub(now), Ordering::Release);
    }

    /// Advances the time by `duration`. At its maximum (584 years) the time stays where it is.
    pub fn advance(&self, duration: Duration) {
        self.change(|nanos| nanos.saturating_add(whole_nanos(duration)));
    }

    /// Moves the time back by `duration`, at most to the origin.
    pub fn step_back(&self, duration: Duration) {
        self.change(|nanos| nanos.saturating_sub(whole_nanos(duration)));
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let nanos = &self.time.nanos;
        let mut now = nanos.load(Ordering::Acquire);
        while let Err(other) = nanos.compare_exchange(now, to(now), Ordering::AcqRel, Ordering::Acquire) {
            now = other;
        }
    }
}

impl ManualClock {
    /// The same for all clones of this clock.
    pub(super) fn identity(&self) -> usize {
        Arc::as_ptr(&self.time).addr()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.time.nanos.load(Ordering::Acquire))
    }

    fn wall(&self) -> SystemTime {
        let ahead = self.time.wall_ahead.load(Ordering::Acquire);
        UNIX_EPOCH + Duration::from_nanos(self.time.nanos.load(Ordering::Acquire).wrapping_add(ahead))
    }

    fn is_manual(&self) -> bool {
        true
    }
}
