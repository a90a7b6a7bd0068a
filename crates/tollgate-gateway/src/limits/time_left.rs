//! How long a request may still wait.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::poll;
use tokio::time::Instant;

/// The time that is left of `max_wait` for the rest of the limits.
#[derive(Debug)]
pub(crate) struct TimeLeft {
    left: Duration,
    spent: Duration,
}

impl TimeLeft {
    pub(crate) fn new(max_wait: Duration) -> Self {
        Self { left: max_wait, spent: Duration::ZERO }
    }

    pub(crate) fn get(&self) -> Duration {
        self.left
    }

    /// The time in all queues.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// Waits for `claim`, and subtracts the wait.
    pub(crate) async fn spend<T>(&mut self, claim: impl Future<Output = T>) -> T {
        let mut claim = pin!(claim);
        if let Poll::Ready(granted) = poll!(claim.as_mut()) {
            return granted;
        }
        // Only a request that has to wait reads the clock.
        let came = Instant::now();
        let granted = claim.await;
        let waited = came.elapsed();
        self.left = self.left.saturating_sub(waited);
        self.spent += waited;
        granted
    }
}
