//! A timer that is made when it is first needed.

use pin_project::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep_until};

#[pin_project]
#[derive(Debug)]
pub(crate) struct Alarm {
    #[pin]
    sleep: Option<Sleep>,
}

impl Alarm {
    /// One that needs a runtime only when it is first set.
    pub(crate) const fn unset() -> Self {
        Self { sleep: None }
    }

    /// # Panics
    /// Outside of a tokio runtime, or on one without timers, as `tokio::time::sleep` does.
    pub(crate) fn new() -> Self {
        Self { sleep: Some(sleep_until(Instant::now())) }
    }

    /// Ready if `at` has come; else sets the timer to wake the task then.
    pub(crate) fn poll_until(self: Pin<&mut Self>, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.project().sleep;
        if slot.is_none() {
            slot.set(Some(sleep_until(at)));
        } else if let Some(sleep) = slot.as_mut().as_pin_mut() {
            sleep.reset(at);
        }
        slot.as_pin_mut().map_or(Poll::Pending, |sleep| sleep.poll(cx))
    }
}
