//! How long a request may still wait.

use std::future::Future;
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

    /// Waits for `claim`, and subtracts the wait. A claim is large, so the caller pins it instead of moving it here.
    pub(crate) async fn spend<T>(&mut self, mut claim: impl Future<Output = T> + Unpin) -> T {
        if let Poll::Ready(granted) = poll!(&mut claim) {
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
