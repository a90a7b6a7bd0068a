//! The background task, in the user's own hands.

use super::driver_pool::KeyedDriver;
use pin_project::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that serves the lines of all keys; from
/// [`KeyedLimiter::replenisher`](super::KeyedLimiter::replenisher). It ends when the last clone of the
/// limiter is dropped.
///
/// # Cancel safety
///
/// It can be dropped at any time: waiters are woken and look for another one where they are.
///
/// # Panics
///
/// When polled outside of a tokio runtime, or on one without timers, as `tokio::time::sleep` does.
#[must_use = "a replenisher does nothing unless it is spawned or polled"]
#[pin_project]
#[derive(Debug)]
pub struct KeyedReplenisher {
    #[pin]
    driver: KeyedDriver,
}

impl KeyedReplenisher {
    pub(super) fn new(driver: KeyedDriver) -> Self {
        Self { driver }
    }
}

impl Future for KeyedReplenisher {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().driver.poll(cx)
    }
}
