//! Sources of time. The default is tokio's clock, so tests with paused time work; [`Builder::clock`](crate::Builder::clock)
//! takes another one.

// Below `Limiter` and `Replenisher`, `now` is a number of nanoseconds.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

mod manual;
pub(crate) mod time;

pub use manual::ManualClock;
pub(crate) use time::{Chosen, Time, whole_nanos};

/// A source of time.
///
/// By default limiters read tokio's clock, so that tests under `tokio::time::pause` work. Pass a different clock to
/// [`Builder::clock`](crate::Builder::clock).
///
/// If a reading is below an earlier one, the limiter assumes that no time has passed, until the clock is past the earlier
/// reading again.
///
/// # Paused time
///
/// Each runtime with paused time has a clock of its own, which runs ahead of real time. A limiter that was used there, and
/// is used again on another runtime, waits until the clock of that runtime has caught up: in real time if it is not paused.
/// This concerns limiters in a `static` that several tests of one process use. The limiter cannot go on from the reading
/// of the other runtime: it does not know whether the first one, whose clock is ahead, still uses it, and would mint the
/// difference again at each change between the two.
///
/// So give each test a limiter of its own, as an argument or in a `thread_local!`, since each test has its own thread:
///
/// ```
/// use tollgate::{Limiter, Quota};
/// thread_local! {
///     static API: Limiter = Limiter::new(Quota::per_second(10)).expect("a valid quota");
/// }
/// let api = API.with(Limiter::clone);
/// assert!(api.try_acquire(1).is_ok());
/// ```
///
/// Under cargo-nextest each test has a process of its own, and a `static` serves as well.
///
/// # Suspended machines and clocks that are set
///
/// tokio's clock is [`std::time::Instant`]. Setting the system's date or its time of day does not change it. On Linux it
/// stands still while the machine is suspended: quotas gain no tokens meanwhile, and callers wait for as long as they had
/// to wait before. So a limiter grants less than its quotas allow by the time of day, and never more.
///
/// Under a clock that counts the time of a suspension, such as `BootClock`, quotas gain the tokens of that time. Callers
/// of `try_acquire` are granted them at once. Callers that wait are served within a minute after the machine resumes,
/// because a driver reads any clock but tokio's once a minute at least. The same holds for deadlines, and for a clock that
/// is set forward. A clock that follows the time of day can be set back: then callers wait for the difference, too.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the time since an origin that the clock chooses. It is called outside of all locks, except beside
    /// [`wall`](Self::wall). If it panics, so does the call that reads it, which has then changed nothing; but a
    /// dropped grant is released all the same.
    fn now(&self) -> Duration;

    /// Returns the time of day, which decides when the periods of calendar quotas begin: by default that of the system. It
    /// may be set, back and forth.
    ///
    /// A limiter calls it under its lock, and [`now`](Self::now) after it, at most once a minute and when a period is about to
    /// begin. So they must not use a limiter. If one of them panics, the limiter goes on with what it knows.
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Returns true if the time advances only by hand. Then the limiter sets no timers and spawns no background task,
    /// and [`Limiter::tick`](crate::Limiter::tick) serves the queue.
    fn is_manual(&self) -> bool {
        false
    }

    /// Returns the nanoseconds since `base`, an earlier reading of [`now`](Self::now); 0 if the clock has stepped back
    /// before `base`.
    ///
    /// The limiter calls this method. Override it only for a clock that counts nanoseconds anyway and can avoid the
    /// conversion to a [`Duration`].
    #[inline]
    fn nanos_since(&self, base: Duration) -> u64 {
        whole_nanos(self.now().saturating_sub(base))
    }
}

/// tokio's clock with a wall clock of its own, for tests of calendar quotas under paused time.
///
/// Without it, the wall clock under paused time shows the system's time when the test began, and moves with the paused clock.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::{Duration, UNIX_EPOCH};
/// use tollgate::clock::TokioClock;
/// use tollgate::{Limiter, Quota};
/// // A minute before midnight.
/// let clock = TokioClock::at(UNIX_EPOCH + Duration::from_secs(86_340));
/// let limiter = Limiter::builder().quota(Quota::per_second(5)).clock(clock).build()?;
/// limiter.wait(5).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TokioClock {
    base: Instant,
    wall: SystemTime,
}

impl TokioClock {
    /// Creates a clock whose wall clock shows `wall` now.
    pub fn at(wall: SystemTime) -> Self {
        Self { base: Instant::now(), wall }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.base.elapsed()
    }

    fn wall(&self) -> SystemTime {
        self.wall + self.base.elapsed()
    }
}

/// The processor's time stamp counter, through the `quanta` crate. Feature `quanta`.
///
/// It is cheaper than the default clock for calls that read the time each time (see docs/BENCHMARKS.md). It does not
/// follow tokio's paused time.
///
/// # Examples
///
/// ```
/// use tollgate::clock::QuantaClock;
/// use tollgate::{Limiter, Quota};
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).clock(QuantaClock::new()).build()?;
/// assert!(limiter.try_acquire(10).is_ok());
/// # Ok(()) }
/// ```
#[cfg(feature = "quanta")]
#[derive(Clone, Debug)]
pub struct QuantaClock {
    clock: quanta::Clock,
    base: u64,
}

#[cfg(feature = "quanta")]
impl QuantaClock {
    /// Creates a clock on the process-wide quanta clock. The first one calibrates it, which takes some milliseconds.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        Self { base: clock.raw(), clock }
    }

    #[inline]
    fn nanos(&self) -> u64 {
        self.clock.delta_as_nanos(self.base, self.clock.raw())
    }
}

#[cfg(feature = "quanta")]
impl Default for QuantaClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "quanta")]
impl Clock for QuantaClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    #[inline]
    fn nanos_since(&self, base: Duration) -> u64 {
        self.nanos().saturating_sub(whole_nanos(base))
    }
}

/// The time since the machine started, with the time for which it was suspended (`CLOCK_BOOTTIME`). Linux only, feature
/// `fine-timer`.
///
/// See [`Clock`] for what a suspension does to a limiter. This clock does not follow tokio's paused time.
///
/// # Examples
///
/// ```
/// use tollgate::clock::BootClock;
/// use tollgate::{Limiter, Quota};
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::builder().quota(Quota::per_day(10)).clock(BootClock::new()).build()?;
/// assert!(limiter.try_acquire(10).is_ok());
/// # Ok(()) }
/// ```
#[cfg(all(feature = "fine-timer", target_os = "linux"))]
#[derive(Clone, Debug, Default)]
pub struct BootClock(());

#[cfg(all(feature = "fine-timer", target_os = "linux"))]
impl BootClock {
    /// Creates a clock.
    pub fn new() -> Self {
        Self::default()
    }
}

#[cfg(all(feature = "fine-timer", target_os = "linux"))]
impl Clock for BootClock {
    fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }
}
