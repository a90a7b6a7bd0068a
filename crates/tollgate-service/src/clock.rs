//! Unix time that does not step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tollgate::Clock;

/// The time since 1970: that of the system when the process starts, and tokio's clock from then on. So a clock that is
/// set later moves no window.
#[derive(Clone, Copy, Debug)]
pub struct UnixClock {
    at_start: Duration,
    start: Instant,
}

impl UnixClock {
    /// Creates a clock that shows the time of the system now.
    pub fn new() -> Self {
        Self::starting_at(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    /// Creates a clock that shows `unix` now, for tests.
    pub fn starting_at(unix: Duration) -> Self {
        Self { at_start: unix, start: Instant::now() }
    }

    /// Returns the time since 1970.
    pub fn now(&self) -> Duration {
        self.at_start + self.start.elapsed()
    }
}

impl Default for UnixClock {
    fn default() -> Self {
        Self::new()
    }
}

/// A limiter that continues from saved levels puts its origin before the present by the time that the levels have: some
/// 56 years, and more if the clock was ahead when they were saved.
const SPARE: Duration = Duration::from_secs(366 * 86_400);

/// The clock of one limiter: it reads 1970 while the limiter is built, since the windows of a limiter count from the
/// instant at which it is built, and the present afterwards.
#[derive(Clone, Debug)]
pub struct WindowClock {
    unix: UnixClock,
    is_built: Arc<AtomicBool>,
}

impl WindowClock {
    /// Creates a clock that reads 1970.
    pub fn new(unix: UnixClock) -> Self {
        Self { unix, is_built: Arc::default() }
    }

    /// The limiter is built: the clock reads the present from now on.
    pub fn start(&self) {
        self.is_built.store(true, Ordering::Release);
    }
}

impl Clock for WindowClock {
    fn now(&self) -> Duration {
        SPARE + if self.is_built.load(Ordering::Acquire) { self.unix.now() } else { Duration::ZERO }
    }
}
