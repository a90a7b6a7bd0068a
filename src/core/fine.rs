//! A timer finer than tokio's, which has steps of a millisecond (feature `fine-timer`).
//!
//! This timer only wakes the replenisher, which then reads the limiter's clock as always: nothing but lateness depends
//! on the timer. Tokio's timer (the coarse timer) stays armed for a later instant. It takes over on systems without the
//! fine timer, when no file can be opened for it, and while time is paused.

#[cfg_attr(all(feature = "fine-timer", target_os = "linux"), path = "fine/file.rs")]
#[cfg_attr(not(all(feature = "fine-timer", target_os = "linux")), path = "fine/none.rs")]
mod timer;

use std::task::Context;
use std::time::Duration;
use timer::Timer;
use tokio::time::Instant;

/// How far behind this timer the coarse one is set. Each turn moves the coarse timer on before it fires, but tokio
/// wakes up at its old instant all the same: once in this time. At a millisecond, every turn would cost two wake-ups.
pub(crate) const BEHIND: Duration = Duration::from_millis(20);

/// The least time from one turn to the next while several claims wait. Claims that fall due in between are served
/// together, late by half of this on average. A turn costs as much as many grants, mostly because the operating system
/// must wake a thread; see docs/BENCHMARKS.md.
pub(crate) const GAP: Duration = Duration::from_micros(400);

/// A driver's timer.
#[derive(Debug)]
pub(crate) enum Fine {
    /// Not needed yet.
    Unset,
    Open(Timer),
    /// This system or runtime has no fine timer.
    Missing,
}

impl Fine {
    /// Wakes the task at `at`, but not before `gap` is over. Returns false if the coarse timer must do it.
    pub(crate) fn wake_at(&mut self, at: Instant, gap: Duration, cx: &mut Context<'_>) -> bool {
        if !is_time_moving() {
            return false;
        }
        if matches!(self, Self::Unset) {
            *self = Timer::open().map_or(Self::Missing, Self::Open);
        }
        let Self::Open(timer) = self else { return false };
        timer.wake_after(at.saturating_duration_since(Instant::now()).max(gap), cx)
    }
}

/// Whether tokio's time passes by itself: a paused one stands still however often it is read.
fn is_time_moving() -> bool {
    let before = Instant::now();
    let real = std::time::Instant::now();
    while std::time::Instant::now() == real {
        std::hint::spin_loop();
    }
    Instant::now() > before
}
