//! The end of a wait that a caller limits.

use crate::clock::{Time, whole_nanos};
use crate::core::alarm::Alarm;
use pin_project_lite::pin_project;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The longest wait that a caller allows. One word, because every future has it: the nanoseconds, or `u64::MAX` for no
/// limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed(u64);

impl Allowed {
    /// Waits for as long as it takes.
    pub(crate) const ANY: Self = Self(u64::MAX);

    pub(crate) fn at_most(wait: Duration) -> Self {
        Self(whole_nanos(wait))
    }

    /// The limit in nanoseconds; `None` if there is none.
    #[inline]
    pub(crate) fn nanos(self) -> Option<u64> {
        (self.0 != u64::MAX).then_some(self.0)
    }

    /// What is left of it for a caller that has waited already.
    #[cfg(all(feature = "keyed", feature = "distributed"))]
    pub(crate) fn after(self, waited: Duration) -> Self {
        self.nanos().map_or(Self::ANY, |nanos| Self(nanos.saturating_sub(whole_nanos(waited))))
    }
}

/// When a wait began and when it ends, in the limiter's nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Wait {
    began: u64,
    ends: u64,
}

pin_project! {
    /// The deadline of a claim that waits.
    #[derive(Debug)]
    pub(crate) struct Deadline {
        // The allowed wait, in nanoseconds.
        allowed: u64,
        // Set when the clock is first read.
        wait: Option<Wait>,
        #[pin]
        alarm: Alarm,
    }
}

impl Deadline {
    /// A deadline `allowed` nanoseconds after it is first checked.
    pub(crate) fn new(allowed: u64) -> Self {
        Self { allowed, wait: None, alarm: Alarm::unset() }
    }

    /// Breaks with the time waited once the deadline has come; otherwise returns its instant.
    pub(crate) fn check(self: Pin<&mut Self>, time: &Time) -> ControlFlow<Duration, u64> {
        let this = self.project();
        let now = time.now();
        let new = || Wait { began: now, ends: now.saturating_add(*this.allowed) };
        let Wait { began, ends } = *this.wait.get_or_insert_with(new);
        if now >= ends {
            ControlFlow::Break(Duration::from_nanos(now.saturating_sub(began)))
        } else {
            ControlFlow::Continue(ends)
        }
    }

    /// Ready with the time waited once the deadline has come.
    pub(crate) fn poll(mut self: Pin<&mut Self>, time: &Time, cx: &mut Context<'_>) -> Poll<Duration> {
        loop {
            let end = match self.as_mut().check(time) {
                ControlFlow::Break(waited) => return Poll::Ready(waited),
                ControlFlow::Continue(end) => end,
            };
            if time.is_manual() {
                // No timer runs on a manual clock: the code that moves the clock polls this future.
                return Poll::Pending;
            }
            // The alarm can be ready early if the end is far away: the loop then reads the clock and sleeps again.
            ready!(self.as_mut().project().alarm.poll_until(time.instant(end), cx));
        }
    }
}
