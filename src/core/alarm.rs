//! A timer that is created when it is first needed.

use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

/// Tokio rounds up twice: instants to its ticks of a millisecond, and waits to whole milliseconds. A timer that is set
/// to an instant is late by up to two; one that is set to the tick before is late by one at most, and wakes a first
/// time too early in about half of the cases. (A bucket of one token discards what accrues after the first
/// millisecond.)
const TICK: Duration = Duration::from_nanos(999_999);

pin_project! {
    #[derive(Debug)]
    pub(crate) struct Alarm {
        #[pin]
        sleep: Option<Sleep>,
        // The runtime that the timer belongs to.
        host: Option<Id>,
    }
}

impl Alarm {
    /// An alarm that needs a runtime only when it is first set.
    pub(crate) const fn unset() -> Self {
        Self { sleep: None, host: None }
    }

    /// # Panics
    /// Outside of a tokio runtime, or on one without timers, as `tokio::time::sleep` does.
    pub(crate) fn new() -> Self {
        Self { sleep: Some(sleep_until(Instant::now())), host: here() }
    }

    /// Ready if `at` has come; otherwise sets the timer to wake the task less than a tick before it, or soon after. The
    /// woken task must look at the clock, and poll again if it is early.
    ///
    /// A future that was moved to another runtime gets a timer there: the runtime that it came from may be stopped, or
    /// gone.
    pub(crate) fn poll_until(self: Pin<&mut Self>, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let (mut slot, here) = (this.sleep, here());
        let now = Instant::now();
        // Never set to the past before `at` has come: that would not be waiting.
        let at = if at > now { (at - TICK).max(now + Duration::from_nanos(1)) } else { at };
        if slot.is_none() || (here.is_some() && here != *this.host) {
            slot.set(Some(sleep_until(at)));
            *this.host = here;
        } else if let Some(sleep) = slot.as_mut().as_pin_mut() {
            sleep.reset(at);
        }
        slot.as_pin_mut().map_or(Poll::Pending, |sleep| sleep.poll(cx))
    }
}

fn here() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Waker;
    use tokio::runtime::Builder;

    fn is_ready(alarm: Pin<&mut Alarm>, at: Instant) -> bool {
        alarm.poll_until(at, &mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn an_instant_that_has_come_is_ready_at_once() {
        assert!(is_ready(pin!(Alarm::unset()), Instant::now()));
    }

    #[test]
    fn outside_of_all_runtimes_it_keeps_its_timer() {
        let mut alarm = pin!(Alarm::unset());
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let later = runtime.block_on(async { Instant::now() + Duration::from_secs(3_600) });
        assert!(!runtime.block_on(async { is_ready(alarm.as_mut(), later) }));
        assert!(!is_ready(alarm, later));
    }
}
