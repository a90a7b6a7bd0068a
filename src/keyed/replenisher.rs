//! A background task that the user spawns.

use super::driver_pool::KeyedDriver;
use pin_project::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that serves the queues of all keys, returned by
/// [`KeyedLimiter::replenisher`](super::KeyedLimiter::replenisher). It completes when the last clone of the limiter is
/// dropped.
///
/// # Cancel safety
///
/// The future can be dropped at any time: waiters are woken and look for another driver on their own runtimes.
///
/// # Panics
///
/// Panics when polled outside of a tokio runtime, or on a runtime without timers, as `tokio::time::sleep` does.
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
