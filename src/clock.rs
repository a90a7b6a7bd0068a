//! Sources of time. The default is tokio's clock, so tests with paused time work; [`Builder::clock`](crate::Builder::clock)
//! takes another one.

// Below `Limiter` and `Replenisher`, `now` is a number of nanoseconds.

use crate::sync::{AtomicU64, Ordering};
use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

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
    /// Returns the time since an origin that the clock chooses. It is called outside of all locks.
    fn now(&self) -> Duration;

    /// Returns the time of day, which decides when the periods of calendar quotas begin: by default that of the system. It
    /// may be set, back and forth.
    ///
    /// A limiter calls it under its lock, at most once a minute and when a period is about to begin. So it must not use a
    /// limiter. If it panics, the limiter goes on with what it knows.
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

/// A clock that is moved by hand, for tests without a runtime. Clones share their time.
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
    /// Two clocks are the same if this number is equal, as it is for clones of a manual clock and for clones of a
    /// builder.
    identity: usize,
}

impl Chosen {
    pub(crate) fn new<C: Clock>(clock: C) -> Self {
        let manual = (&clock as &dyn Any).downcast_ref::<ManualClock>();
        let core = manual.map(|manual| Arc::as_ptr(&manual.time).addr());
        let is_manual = clock.is_manual();
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let identity = core.unwrap_or_else(|| Arc::as_ptr(&clock).addr());
        Self { clock, is_manual, identity }
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
            Self::Other { chosen, base } => chosen.clock.nanos_since(*base),
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
        catch_unwind(AssertUnwindSafe(read)).ok()
    }

    pub(crate) fn is_tokios(&self) -> bool {
        matches!(self, Self::Tokio { .. })
    }

    pub(crate) fn is_manual(&self) -> bool {
        matches!(self, Self::Other { chosen: Chosen { is_manual: true, .. }, .. })
    }

    /// Like [`instant`](Self::instant), for a driver that sleeps on behalf of waiters: a clock that panics must not end
    /// the driver.
    pub(crate) fn instant_or_retry(&self, at: u64) -> Instant {
        catch_unwind(AssertUnwindSafe(|| self.instant(at))).unwrap_or_else(|_| Instant::now() + RETRY)
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

/// The nanoseconds since 1970, from 0 to 2^64 - 1.
pub(crate) fn nanos_of_wall(wall: SystemTime) -> u64 {
    wall.duration_since(UNIX_EPOCH).map_or(0, whole_nanos)
}

/// Converts to nanoseconds in 64 bits, which last for 584 years.
#[inline]
pub(crate) fn whole_nanos(duration: Duration) -> u64 {
    let (secs, nanos) = (duration.as_secs(), u64::from(duration.subsec_nanos()));
    secs.checked_mul(1_000_000_000).and_then(|whole| whole.checked_add(nanos)).unwrap_or(u64::MAX)
}

/// 0 if `now` is before `base`.
#[inline]
fn nanos_between(base: std::time::Instant, now: Instant) -> u64 {
    now.into_std().checked_duration_since(base).map_or(0, whole_nanos)
}
