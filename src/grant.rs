//! Grants: the values that prove that tokens were taken.

use crate::claim::Claim;
use crate::core::claim_scope::ClaimScope;
use crate::core::coop::poll_paid;
use crate::error::{Bound, ConsumeError, TryAcquireError};
use crate::handle::{Handle, Limiter};
use crate::permit::Permit;
use pin_project_lite::pin_project;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Proof that tokens were granted.
///
/// With [`max_in_flight`](crate::Builder::max_in_flight), the tokens are in flight until the grant is dropped, also by
/// a panic: keep the grant for as long as the work lasts. Without a cap, dropping the grant does nothing.
///
/// Dropping a grant happens before every grant that it makes possible: a caller that is granted because of the drop
/// sees all writes made before it.
#[must_use = "dropping a grant releases its tokens if the limiter caps tokens in flight, and `let _ =` drops it at once: write \
              `let _grant =` for as long as the work lasts, or call `wait` if there is nothing to hold"]
#[derive(Debug)]
pub struct Grant<'a, L: Handle = Limiter>(Permit<&'a L::Scope>);

/// A [`Grant`] that owns the limiter, for spawned tasks.
#[must_use = "dropping a grant releases its tokens if the limiter caps tokens in flight, and `let _ =` drops it at once: write \
              `let _grant =` for as long as the work lasts, or call `wait` if there is nothing to hold"]
#[derive(Debug)]
pub struct OwnedGrant<L: Handle = Limiter>(Permit<Arc<L::Scope>>);

macro_rules! grant_methods {
    () => {
        /// Returns the cost of this grant in tokens: the latest value passed to [`settle`](Self::settle), if any.
        pub fn cost(&self) -> u64 {
            self.0.cost
        }

        /// Returns how many tokens remained after this grant, as of the limiter's last reading of the clock.
        ///
        /// This is the value for a response header. For a grant that waited, it is the number at the instant of the
        /// grant. With a calendar quota or a [sliding](crate::Quota::sliding) one, it is the number at the instant of this
        /// call.
        pub fn remaining(&self) -> u64 {
            self.0.remaining()
        }

        /// Returns how long the call would have waited if all quotas of the limiter had been enforced.
        ///
        /// It is the wait that the schedule gave when the call arrived, exact to the nanosecond, by the quotas and pauses
        /// alone, and at most 146 years. `Some(Duration::ZERO)` means that the call would have been granted at once.
        ///
        /// `None` if no quota of the limiter was in [dry run](crate::Builder::dry_run), if the call
        /// [would have been refused](Self::would_have_been_refused), or if the wait is unknown because a manual quota
        /// would have held the call back.
        pub fn would_have_waited(&self) -> Option<Duration> {
            self.0.verdict()?.wait()
        }

        /// Returns the bound that would have refused the call if all quotas of the limiter had been enforced; `None` if
        /// it would have been granted, or if no quota was in [dry run](crate::Builder::dry_run).
        ///
        /// [`Bound::Queue`] stands for a queue that another caller waits in (`try_acquire`), or that is full.
        pub fn would_have_been_refused(&self) -> Option<Bound> {
            self.0.verdict()?.refused_by()
        }

        /// Sets the real cost, known afterwards, and refunds or charges the difference at once. The latest value
        /// counts.
        ///
        /// * Less than before: the difference is refunded, up to the burst, and waiters may be granted at once. A
        ///   [sliding](crate::Quota::sliding) quota gets nothing back once the tokens of the grant are back anyway.
        /// * More than before: the difference is charged as a debt. It delays later callers, but not those already
        ///   waiting. A debt is limited to 2<sup>48</sup> tokens, and the cost to
        ///   [`max_cost`](crate::Builder::max_cost), if it is set; [`cost`](Self::cost) returns the cost that was recorded.
        ///
        /// With an in-flight cap, the additional tokens are also in flight until the grant is dropped.
        ///
        /// In a [class](crate::Class), a refund goes to the limiter's quotas and to the ceilings of the class and of the
        /// classes around it, up to their bursts. Their shares are net of it, but for a sixteenth of the grant, which counts
        /// in any case. A debt belongs to the class: it is paid at the end of the class's queue, in the turns of the class,
        /// or at once if no claim waits in the limiter.
        ///
        /// # What a server may see
        ///
        /// The limiter counts tokens granted less tokens refunded. Refunded tokens can be granted again at once. A
        /// single refund can therefore bring back as much as the burst, and several refunds at one instant as much as
        /// all of them together: with a burst of 1, five grants that are settled for 0 at one instant let five others
        /// pass at that instant. If the requests of the first five were sent all the same, the server sees ten
        /// requests. So settle for less only if the server does not count the difference either: a request that was
        /// never sent, tokens that the server did not bill.
        ///
        /// # Panics
        ///
        /// Panics if the limiter's [clock](crate::Clock) panics. Nothing has changed then.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::{Limiter, Quota};
        /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
        /// let limiter = Limiter::new(Quota::manual(100))?;
        /// let mut grant = limiter.try_acquire(40)?;
        /// grant.settle(25);
        /// assert_eq!(limiter.available(), 75);
        /// grant.settle(110);
        /// assert_eq!((limiter.available(), limiter.deficiency()), (0, 10));
        /// # Ok(()) }
        /// ```
        pub fn settle(&mut self, actual: u64) {
            self.0.settle(actual);
        }

        /// Charges `tokens` more at once, as [`settle`](Self::settle) does: a debt that later callers wait for. It never
        /// waits.
        ///
        /// Use it while the cost becomes known piece by piece, for example for each chunk of a stream. A final
        /// [`settle`](Self::settle) replaces the sum.
        ///
        /// # Panics
        ///
        /// The same as [`settle`](Self::settle).
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::{Limiter, Quota};
        /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
        /// let limiter = Limiter::new(Quota::manual(100))?;
        /// let mut grant = limiter.try_acquire(40)?;
        /// grant.grow(10);
        /// grant.grow(10);
        /// assert_eq!((grant.cost(), limiter.available()), (60, 40));
        /// grant.settle(45); // the invoice
        /// assert_eq!(limiter.available(), 55);
        /// # Ok(()) }
        /// ```
        pub fn grow(&mut self, tokens: u64) {
            self.0.grow(tokens);
        }

        /// Waits in the limiter's queue for `tokens` more, and adds them to this grant.
        ///
        /// With an in-flight cap the grant holds its tokens meanwhile. So if several grants hold all of the cap and wait
        /// to grow, none of them ever does: bound the wait with [`tokio::time::timeout`], or use
        /// [`grow`](Self::grow).
        ///
        /// # Errors
        ///
        /// The same as [`Limiter::consume`](crate::Limiter::consume). The grant has then not grown. With an in-flight
        /// cap, [`TooLarge`](crate::ConsumeError::TooLarge) is returned if the cap is too small for this grant and
        /// `tokens` together.
        ///
        /// # Cancel safety
        ///
        /// The same as [`Consume`](crate::Consume): a future that is dropped has not grown the grant.
        ///
        /// # Examples
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
        /// use tollgate::{Limiter, Quota};
        /// let limiter = Limiter::new(Quota::per_second(100).burst(10))?;
        /// let mut grant = limiter.consume(10).await?;
        /// grant.grow_within(20).await?; // 200 ms
        /// assert_eq!(grant.cost(), 30);
        /// # Ok(()) }
        /// ```
        pub fn grow_within(&mut self, tokens: u64) -> impl Future<Output = Result<(), ConsumeError>> {
            Growth::new(&mut self.0, tokens)
        }

        /// Consumes the grant without releasing its tokens.
        ///
        /// The caller then owes a [`Limiter::release`](crate::Limiter::release) of its cost. Without an in-flight cap
        /// this is the same as dropping the grant.
        pub fn forget(self) {
            self.0.forget();
        }
    };
}

impl<'a, L: Handle> Grant<'a, L> {
    #[inline(always)]
    pub(crate) fn new(permit: Permit<&'a L::Scope>) -> Self {
        Self(permit)
    }

    #[inline(always)]
    pub(crate) fn acquire(scope: &'a L::Scope, cost: u64) -> Result<Self, TryAcquireError> {
        let word = scope.try_acquire(cost)?;
        Ok(Self(Permit::new(scope, cost, word)))
    }

    /// [`settle`](Self::settle) for costs that cannot be undone.
    pub(crate) fn settle_anyway(&mut self, actual: u64) {
        self.0.settle_anyway(actual);
    }

    grant_methods!();
}

impl<L: Handle> OwnedGrant<L> {
    pub(crate) fn new(permit: Permit<Arc<L::Scope>>) -> Self {
        Self(permit)
    }

    pub(crate) fn acquire(scope: Arc<L::Scope>, cost: u64) -> Result<Self, TryAcquireError> {
        let word = scope.try_acquire(cost)?;
        Ok(Self(Permit::new(scope, cost, word)))
    }

    /// [`settle`](Self::settle) for costs that cannot be undone.
    #[cfg(feature = "io")]
    pub(crate) fn settle_anyway(&mut self, actual: u64) {
        self.0.settle_anyway(actual);
    }

    grant_methods!();
}

pin_project! {
    /// A claim for tokens that are added to a grant of cost `cost`.
    #[derive(Debug)]
    pub(crate) struct Growth<'a, S>
    where
        S: ClaimScope,
        S: ?Sized,
    {
        #[pin]
        claim: Claim<&'a S>,
        cost: &'a mut u64,
        refundable: &'a mut u64,
    }
}

impl<'a, S: ClaimScope + ?Sized> Growth<'a, S> {
    /// `borrow` borrows the limiter, or the class in which the grant was made, from what the grant holds.
    pub(crate) fn new(permit: &'a mut Permit<impl Deref<Target = S>>, tokens: u64) -> Self {
        let (scope, cost, refundable) = permit.parts();
        Self { claim: Claim::new(scope, tokens), cost, refundable }
    }
}

impl<S: ClaimScope + ?Sized> Future for Growth<'_, S> {
    type Output = Result<(), ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let tokens = this.claim.cost();
        if let Some(scope) = this.claim.scope_if_fresh() {
            if let Err(error) = scope.core().check_growth(**this.cost, tokens) {
                return poll_paid(cx, |_| {
                    scope.core().refuse(scope.label(), tokens, error);
                    Poll::Ready(Err(error))
                });
            }
        }
        let mut more = ready!(this.claim.poll_paid(cx))?;
        // The grant takes over the tokens, also those in flight.
        let (cost, refundable) = more.take();
        **this.cost = this.cost.saturating_add(cost);
        **this.refundable += refundable;
        Poll::Ready(Ok(()))
    }
}
