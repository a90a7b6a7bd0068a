//! The futures that wait for tokens.
//!
//! One mechanism, [`Claim`], is generic over how it holds the limiter. The public futures are thin wrappers around it,
//! for borrowed and owned limiters.
//!
//! A claim keeps no waiting state of its own: its [`Place`] is authoritative. Whether the claim waits, was granted, or
//! never entered the queue is read from the place, under the lock. Dropping the claim reads it again.

use crate::clock::whole_nanos;
use crate::core::Core;
use crate::core::alarm::Alarm;
use crate::core::coop::{pay, poll_paid};
use crate::core::hold::Hold;
use crate::core::queue::Place;
use crate::error::ConsumeError;
use crate::grant::{Grant, OwnedGrant, Permit};
use crate::observe::WaitRecord;
use pin_project::{pin_project, pinned_drop};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::coop::{RestoreOnPending, poll_proceed};

/// A claim on `cost` tokens that becomes a permit.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
pub(crate) struct Claim<S: Hold> {
    /// `None` once the claim has returned its result.
    core: Option<S>,
    cost: u64,
    #[pin]
    place: Place,
    wait_record: WaitRecord,
}

impl<S: Hold> Claim<S> {
    pub(crate) fn new(core: S, cost: u64) -> Self {
        Self { core: Some(core), cost, place: Place::new(), wait_record: WaitRecord::default() }
    }

    /// [`poll_within`](Self::poll_within) without a limit on the wait. It takes one unit of the task's budget. It does
    /// not call `coop::poll_paid`: through that function, the compiler passes the grant through memory.
    #[inline]
    pub(crate) fn poll_paid(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<S>, ConsumeError>> {
        let budget = ready!(poll_proceed(cx));
        if let Some(permit) = self.as_mut().claim_at_once() {
            pay(budget);
            return Poll::Ready(Ok(permit));
        }
        self.poll_slowly_paid(cx, budget)
    }

    #[inline(never)]
    fn poll_slowly_paid(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        budget: RestoreOnPending,
    ) -> Poll<Result<Permit<S>, ConsumeError>> {
        let answer = self.poll_slowly(cx, None);
        if answer.is_ready() {
            pay(budget);
        }
        answer
    }

    /// The fast path of the first poll.
    #[inline]
    fn claim_at_once(self: Pin<&mut Self>) -> Option<Permit<S>> {
        let this = self.project();
        if this.place.is_entered() {
            return None;
        }
        let remaining = this.core.as_ref()?.claim_fast(*this.cost)?;
        Some(Permit::new(this.core.take()?, *this.cost, remaining))
    }

    /// Enters the queue on the first poll. Refuses if the expected wait is longer than `allowed` nanoseconds.
    #[inline]
    pub(crate) fn poll_within(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        allowed: Option<u64>,
    ) -> Poll<Result<Permit<S>, ConsumeError>> {
        match self.as_mut().claim_at_once() {
            Some(permit) => Poll::Ready(Ok(permit)),
            None => self.poll_slowly(cx, allowed),
        }
    }

    // Not inlined, so that the caller of this function is inlined at every `.await`: a grant without waiting needs
    // nothing else.
    #[inline(never)]
    fn poll_slowly(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        allowed: Option<u64>,
    ) -> Poll<Result<Permit<S>, ConsumeError>> {
        let this = self.project();
        let core = this.core.as_ref().expect("polled after it was ready");
        let answer = if this.place.is_entered() {
            core.look(this.place, core.class(), *this.cost, cx.waker())
        } else {
            core.arrive(this.place, core.class(), *this.cost, allowed, cx.waker(), this.wait_record)
        };
        let answer = ready!(answer);
        this.wait_record.end(core.observed(), *this.cost, answer.map(drop));
        // Present: `arrive` or `look` just used it.
        let core = this.core.take().expect("polled after it was ready");
        Poll::Ready(answer.map(|remaining| Permit::new(core, *this.cost, remaining)))
    }

    /// Leaves the queue: the claim is dropped before it returned a result. Not inlined, so that dropping a granted
    /// claim is.
    #[inline(never)]
    fn cancel(self: Pin<&mut Self>) {
        let this = self.project();
        let Some(core) = this.core else { return };
        if this.place.is_entered() {
            core.cancel(this.place, core.class(), *this.cost);
        }
        this.wait_record.cancel(core.observed());
    }
}

#[pinned_drop]
impl<S: Hold> PinnedDrop for Claim<S> {
    fn drop(self: Pin<&mut Self>) {
        // Nearly all claims have returned their result.
        if self.core.is_some() {
            self.cancel();
        }
    }
}

/// A claim that gives up after an allowed wait.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Deadline<S: Hold> {
    #[pin]
    claim: Claim<S>,
    allowed: Duration,
    /// When the claim entered the queue and when it gives up, in the limiter's nanoseconds.
    since: Option<(u64, u64)>,
    #[pin]
    alarm: Alarm,
}

impl<S: Hold> Deadline<S> {
    pub(crate) fn new(claim: Claim<S>, allowed: Duration) -> Self {
        Self { claim, allowed, since: None, alarm: Alarm::unset() }
    }

    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<S>, ConsumeError>> {
        let mut this = self.project();
        let allowed = whole_nanos(*this.allowed);
        if let ready @ Poll::Ready(_) = this.claim.as_mut().poll_within(cx, Some(allowed)) {
            return ready;
        }
        let claim = this.claim.project();
        let Some(core) = claim.core.as_ref() else { return Poll::Pending };
        let waited = loop {
            let now = core.time.now();
            // Only a claim that waits reads the clock: a claim that is granted at once has returned above.
            let (start, end) = *this.since.get_or_insert_with(|| (now, now.saturating_add(allowed)));
            if now >= end {
                break Duration::from_nanos(now.saturating_sub(start));
            }
            if core.time.is_manual() {
                // No timer runs on a manual clock: the code that moves the clock polls this future.
                return Poll::Pending;
            }
            // The alarm can be ready early if the end is far away: the loop then reads the clock and sleeps again.
            ready!(this.alarm.as_mut().poll_until(core.time.instant(end), cx));
        };
        // The claim may have been granted or refused at this very moment; then that result counts.
        let answer = match core.give_up(claim.place, core.class()) {
            Some(outcome) => outcome.into_result(),
            None => Err(ConsumeError::TimedOut { waited }),
        };
        claim.wait_record.end(core.observed(), *claim.cost, answer.map(drop));
        let core = claim.core.take().expect("present: it was just used");
        Poll::Ready(answer.map(|remaining| Permit::new(core, *claim.cost, remaining)))
    }
}

/// The future returned by [`Limiter::consume`](crate::Limiter::consume).
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
/// Each result costs one unit of the tokio task's budget ([`tokio::task::coop`]). A poll without budget returns
/// `Pending`, claims nothing, enters no queue, and wakes the task at once. A claim's place therefore counts from the
/// first poll that has budget. A claim that waits already keeps its place, and keeps the tokens that it is granted
/// meanwhile. Outside of tokio the budget is unlimited.
///
/// # Panics
///
/// Panics if polled again after it was ready, or if it has to start the limiter's background task on a tokio runtime
/// that was built without timers (`enable_time`).
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct Consume<'a> {
    #[pin]
    claim: Claim<&'a Core>,
}

impl<'a> Consume<'a> {
    pub(crate) fn new(core: &'a Core, cost: u64) -> Self {
        Self { claim: Claim::new(core, cost) }
    }

    /// Limits the wait to `allowed`.
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
    /// limiter.consume(1).await?;
    /// let refusal = limiter.consume(1).within(Duration::from_millis(200)).await.unwrap_err();
    /// assert!(matches!(refusal, ConsumeError::TooLate { .. }));
    /// # Ok(()) }
    /// ```
    pub fn within(self, allowed: Duration) -> Within<'a> {
        Within { timed: Deadline::new(self.claim, allowed) }
    }
}

impl<'a> Future for Consume<'a> {
    type Output = Result<Grant<'a>, ConsumeError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll_paid(cx).map_ok(Grant::new)
    }
}

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
#[pin_project]
#[derive(Debug)]
pub struct ConsumeOwned {
    #[pin]
    claim: Claim<Arc<Core>>,
}

impl ConsumeOwned {
    pub(crate) fn new(core: Arc<Core>, cost: u64) -> Self {
        Self { claim: Claim::new(core, cost) }
    }

    /// Limits the wait to `allowed`; see [`Consume::within`].
    pub fn within(self, allowed: Duration) -> WithinOwned {
        WithinOwned { timed: Deadline::new(self.claim, allowed) }
    }
}

impl Future for ConsumeOwned {
    type Output = Result<OwnedGrant, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll_paid(cx).map_ok(OwnedGrant::new)
    }
}

/// The future returned by [`Consume::within`]. It contains a timer, and is therefore larger than a [`Consume`].
///
/// # Cancel safety
///
/// The same as [`Consume`].
///
/// # Panics
///
/// The same as [`Consume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct Within<'a> {
    #[pin]
    timed: Deadline<&'a Core>,
}

impl<'a> Future for Within<'a> {
    type Output = Result<Grant<'a>, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let timed = self.project().timed;
        poll_paid(cx, |cx| timed.poll(cx)).map_ok(Grant::new)
    }
}

/// The future returned by [`ConsumeOwned::within`].
///
/// # Cancel safety
///
/// The same as [`Consume`].
///
/// # Panics
///
/// The same as [`Consume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct WithinOwned {
    #[pin]
    timed: Deadline<Arc<Core>>,
}

impl Future for WithinOwned {
    type Output = Result<OwnedGrant, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let timed = self.project().timed;
        poll_paid(cx, |cx| timed.poll(cx)).map_ok(OwnedGrant::new)
    }
}
