//! Claims of an adaptive rate, and how their outcomes are reported.

use super::control::Stamp;
use super::{Shared, Target};
use crate::adaptive::target::Settle;
use crate::as_limiter::AsLimiter;
use crate::core::quietly;
use crate::error::ConsumeError;
use crate::grant::OwnedGrant;
use crate::handle::Limiter;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::coop::has_budget_remaining;

pin_project! {
    /// The future returned by [`Adaptive::consume`](super::Adaptive::consume).
    ///
    /// # Cancel safety
    ///
    /// It can be dropped at any time, like a [`Consume`](crate::Consume). Its claim leaves the queue, and no token is lost.
    /// A dropped claim reports no outcome.
    ///
    /// # Panics
    ///
    /// The same as [`Consume`](crate::Consume).
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct AdaptiveConsume<T: Target = Limiter> {
        // `None` only while `within` replaces it.
        #[pin]
        claim: Option<T::Claim>,
        // `None` once the future has returned its result.
        shared: Option<Arc<Shared<T::Driven>>>,
        has_waited: bool,
    }

    impl<T: Target> PinnedDrop for AdaptiveConsume<T> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(shared) = this.shared.take().filter(|_| *this.has_waited) {
                shared.note_unmet_demand();
            }
        }
    }
}

impl<T: Target> AdaptiveConsume<T> {
    pub(super) fn new(target: &T, shared: Arc<Shared<T::Driven>>, cost: u64) -> Self {
        Self { claim: Some(target.claim(cost)), shared: Some(shared), has_waited: false }
    }

    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within). Call it before the first poll.
    ///
    /// A claim that is refused because the wait would be too long shows that the limiter is the bottleneck, as a claim that
    /// waits does.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Adaptive, ConsumeError};
    /// let api = Adaptive::between("1/s", "5000/s").build()?;
    /// api.consume(1).await?.succeeded();
    /// let refusal = api.consume(1).within(Duration::from_millis(200)).await.unwrap_err();
    /// assert!(matches!(refusal, ConsumeError::TooLate { .. }));
    /// # Ok(()) }
    /// ```
    pub fn within(mut self, allowed: Duration) -> Self {
        let claim = self.claim.take().map(|claim| T::within(claim, allowed));
        Self { claim, shared: self.shared.take(), has_waited: false }
    }
}

impl<T: Target> Future for AdaptiveConsume<T> {
    type Output = Result<AdaptiveGrant<T>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // A poll without budget enters no queue.
        let is_polled = has_budget_remaining();
        let answer = this.claim.as_pin_mut().expect("only `within` takes it").poll(cx);
        *this.has_waited |= is_polled && answer.is_pending();
        let answer = ready!(answer);
        let shared = this.shared.take().expect("polled after it was ready");
        if matches!(
            answer,
            Err(ConsumeError::TooLate { .. } | ConsumeError::TimedOut { .. } | ConsumeError::QueueFull { .. })
        ) {
            shared.note_unmet_demand();
        }
        Poll::Ready(answer.map(|grant| {
            let attempt = Attempt::new(shared, grant.cost(), *this.has_waited);
            AdaptiveGrant { grant, attempt: Some(attempt) }
        }))
    }
}

impl<T: Target> fmt::Debug for AdaptiveConsume<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveConsume").field("has_waited", &self.has_waited).finish_non_exhaustive()
    }
}

/// Proof that tokens were granted, for one request that reports its outcome: an [`OwnedGrant`] with an [`Attempt`].
///
/// Report the outcome with [`throttled`](Self::throttled), [`succeeded`](Self::succeeded) or
/// [`ignored`](Self::ignored). Dropping the grant counts as success.
#[must_use = "dropping the grant reports success: keep it until the outcome is known"]
pub struct AdaptiveGrant<T: Target = Limiter> {
    grant: T::Grant,
    /// `None` once the outcome has been reported.
    attempt: Option<Attempt<T>>,
}

impl<T: Target> AdaptiveGrant<T> {
    /// Returns the cost of this grant in tokens: the latest value passed to [`settle`](Self::settle), if any.
    pub fn cost(&self) -> u64 {
        self.grant.cost()
    }

    /// Returns how many tokens remained after this grant.
    pub fn remaining(&self) -> u64 {
        self.grant.remaining()
    }

    /// Sets the real cost, known afterwards; see [`Grant::settle`](crate::Grant::settle).
    pub fn settle(&mut self, actual: u64) {
        self.grant.settle(actual);
    }

    /// Charges `tokens` more, without waiting; see [`Grant::grow`](crate::Grant::grow).
    pub fn grow(&mut self, tokens: u64) {
        let cost = self.grant.cost();
        self.grant.settle(cost.saturating_add(tokens));
    }

    /// Reports that the server accepted the request. Dropping the grant does the same.
    ///
    /// The rate grows only if the request had to wait: a client that does not use its rate learns nothing about a
    /// higher one.
    pub fn succeeded(self) {}

    /// Reports that the server refused the request because there were too many. `retry_after` is the time after which
    /// the server wants to be asked again, if it said so: the limiter pauses for as long.
    ///
    /// The rate falls at once, and all waiters are rescheduled. Refusals of requests that were sent before the latest
    /// decrease are the same event, and lower the rate no further.
    ///
    /// The tokens of the request stay taken, unless it was [settled](Self::settle) for less.
    pub fn throttled(mut self, retry_after: impl Into<Option<Duration>>) {
        if let Some(mut attempt) = self.attempt.take() {
            // A refused request may be settled for 0, so its cost is the larger of the original and the settled cost.
            attempt.cost = attempt.cost.max(self.grant.cost());
            attempt.throttled(retry_after);
        }
    }

    /// Reports nothing: the request was not sent, or its outcome says nothing about the rate.
    pub fn ignored(mut self) {
        if let Some(attempt) = self.take_attempt() {
            attempt.ignored();
        }
    }

    fn take_attempt(&mut self) -> Option<Attempt<T>> {
        let mut attempt = self.attempt.take()?;
        attempt.cost = self.grant.cost();
        Some(attempt)
    }
}

impl<L: AsLimiter + Target<Grant = OwnedGrant<L>>> AdaptiveGrant<L> {
    /// Waits for `tokens` more; see [`Grant::grow_within`](crate::Grant::grow_within).
    pub fn grow_within(&mut self, tokens: u64) -> impl Future<Output = Result<(), ConsumeError>> {
        self.grant.grow_within(tokens)
    }

    /// Returns the grant of the limiter.
    pub fn grant(&self) -> &OwnedGrant<L> {
        &self.grant
    }
}

impl<T: Target> Drop for AdaptiveGrant<T> {
    fn drop(&mut self) {
        drop(self.take_attempt());
    }
}

impl<T: Target> fmt::Debug for AdaptiveGrant<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveGrant").field("cost", &self.cost()).finish_non_exhaustive()
    }
}

/// One request under an adaptive rate. Its outcome is reported once. Dropping it counts as success.
///
/// [`Adaptive::attempt`](super::Adaptive::attempt) makes one for a request that took its tokens in another way, such
/// as a [`join`](crate::join).
#[must_use = "dropping the attempt reports success: keep it until the outcome is known"]
pub struct Attempt<T: Target = Limiter> {
    /// `None` once the outcome has been reported.
    shared: Option<Arc<Shared<T::Driven>>>,
    stamp: Stamp,
    cost: u64,
}

impl<T: Target> Attempt<T> {
    pub(super) fn new(shared: Arc<Shared<T::Driven>>, cost: u64, has_waited: bool) -> Self {
        let stamp = shared.stamp(has_waited, cost);
        Self { shared: Some(shared), stamp, cost }
    }

    /// Reports that the server accepted the request; see [`AdaptiveGrant::succeeded`].
    pub fn succeeded(self) {}

    /// Reports that the server refused the request; see [`AdaptiveGrant::throttled`].
    pub fn throttled(mut self, retry_after: impl Into<Option<Duration>>) {
        if let Some(shared) = self.shared.take() {
            shared.refused(self.stamp, self.cost, retry_after.into());
        }
    }

    /// Reports nothing; see [`AdaptiveGrant::ignored`].
    pub fn ignored(mut self) {
        self.shared = None;
    }
}

impl<T: Target> Drop for Attempt<T> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        // Changing the rate reads the limiter's clock, which is user code and may panic.
        quietly(|| shared.accepted(self.stamp, self.cost));
    }
}

impl<T: Target> fmt::Debug for Attempt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("cost", &self.cost).field("stamp", &self.stamp).finish_non_exhaustive()
    }
}
