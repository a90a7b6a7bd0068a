//! The futures that wait for tokens, for borrowed and owned limiters.

use crate::claim::Claim;
use crate::error::ConsumeError;
use crate::grant::{Grant, OwnedGrant};
use crate::handle::{Handle, Limiter};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pin_project! {
    /// The future returned by [`Limiter::consume`](crate::Limiter::consume) and [`Class::consume`](crate::Class::consume): `L`
    /// is [`Limiter`] or [`Class`](crate::Class).
    ///
    /// # Cancel safety
    ///
    /// It can be dropped at any time: before the first poll, while it waits, or after the grant but before the next poll.
    /// Its claim leaves the queue, the claims behind it move up at once, and no token is lost.
    ///
    /// A grant that the caller has not received yet is refunded, up to the burst, and can be granted again at once. No
    /// request was sent for it, so the server sees no more than it is promised. Dropping a [`Grant`] that the caller has
    /// received refunds nothing; only [`settle`](crate::Grant::settle) refunds then, and its documentation says what a
    /// server may see.
    ///
    /// # Cooperative scheduling
    ///
    /// Each result costs one unit of the tokio task's budget ([`tokio::task::coop`]). On each thread, only one in 32 grants
    /// without waiting costs a unit. A poll that needs a unit and finds none returns `Pending`, claims nothing, enters no
    /// queue, and wakes the task at once. A claim's place therefore counts from the first poll that has budget. A claim
    /// that waits already keeps its place, and keeps the tokens that it is granted meanwhile. Outside of tokio the budget
    /// is unlimited.
    ///
    /// # Panics
    ///
    /// Panics if polled again after it was ready, or if it has to start the limiter's background task on a tokio runtime
    /// that was built without timers (`enable_time`).
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    #[derive(Debug)]
    pub struct Consume<'a, L: Handle = Limiter> {
        #[pin]
        claim: Claim<&'a L::Scope>,
    }
}

impl<'a, L: Handle> Consume<'a, L> {
    #[inline]
    pub(crate) fn new(scope: &'a L::Scope, cost: u64) -> Self {
        Self { claim: Claim::new(scope, cost) }
    }

    /// Limits the wait to `allowed`. If this is called several times, the last call counts.
    ///
    /// The future refuses at once with [`TooLate`](ConsumeError::TooLate) if the schedule already says that the wait
    /// would be longer. It ends with [`TimedOut`](ConsumeError::TimedOut) if the wait becomes longer for a reason that
    /// the schedule cannot foresee: the in-flight cap, a pause, a smaller quota.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{ConsumeError, Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(1).burst(1))?;
    /// let _grant = limiter.consume(1).await?;
    /// let refusal = limiter.consume(1).within(Duration::from_millis(200)).await.unwrap_err();
    /// assert!(matches!(refusal, ConsumeError::TooLate { .. }));
    /// # Ok(()) }
    /// ```
    pub fn within(self, allowed: Duration) -> Self {
        Self { claim: self.claim.within(allowed) }
    }

    /// Takes the tokens if they are there and no claim waits, without polling: for callers that do something before they
    /// wait, such as counting.
    ///
    /// A claim that comes back has done nothing: it has no place in the queue, and it is not counted or reported as a
    /// refusal, which a refused [`try_acquire`](crate::Limiter::try_acquire) is. It may come back although the tokens are
    /// there: from a class under a ceiling, for example, or from a limiter in dry run. Awaiting it then grants at once. A
    /// grant costs no unit of the task's budget, so a loop of such grants never yields to other tasks.
    ///
    /// # Errors
    ///
    /// The error is this future, which has claimed nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::new(Quota::per_second(100).burst(5))?;
    /// let grant = match limiter.consume(3).try_now() {
    ///     Ok(grant) => grant,
    ///     Err(claim) => {
    ///         println!("waiting");
    ///         claim.await?
    ///     }
    /// };
    /// assert_eq!(grant.cost(), 3);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn try_now(self) -> Result<Grant<'a, L>, Self> {
        self.claim.try_now().map(Grant::new).map_err(|claim| Self { claim })
    }
}

impl<'a, L: Handle> Future for Consume<'a, L> {
    type Output = Result<Grant<'a, L>, ConsumeError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll_paid(cx).map_ok(Grant::new)
    }
}

pin_project! {
    /// The future returned by [`Limiter::consume_owned`](crate::Limiter::consume_owned): a [`Consume`] that owns the
    /// limiter, for spawned tasks.
    ///
    /// # Cancel safety
    ///
    /// The same as [`Consume`].
    ///
    /// # Panics
    ///
    /// The same as [`Consume`].
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    #[derive(Debug)]
    pub struct ConsumeOwned<L: Handle = Limiter> {
        #[pin]
        claim: Claim<Arc<L::Scope>>,
    }
}

impl<L: Handle> ConsumeOwned<L> {
    pub(crate) fn new(scope: Arc<L::Scope>, cost: u64) -> Self {
        Self { claim: Claim::new(scope, cost) }
    }

    /// Limits the wait to `allowed`; see [`Consume::within`].
    pub fn within(self, allowed: Duration) -> Self {
        Self { claim: self.claim.within(allowed) }
    }

    /// Takes the tokens if they are there and no claim waits, without polling; see [`Consume::try_now`].
    ///
    /// # Errors
    ///
    /// The error is this future, which has claimed nothing.
    #[inline]
    pub fn try_now(self) -> Result<OwnedGrant<L>, Self> {
        self.claim.try_now().map(OwnedGrant::new).map_err(|claim| Self { claim })
    }
}

impl<L: Handle> Future for ConsumeOwned<L> {
    type Output = Result<OwnedGrant<L>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll_paid(cx).map_ok(OwnedGrant::new)
    }
}
