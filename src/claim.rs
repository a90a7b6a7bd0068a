//! The mechanism of every future that waits in one limiter's queue, generic over how it holds the limiter. The public
//! futures are thin wrappers around a [`Claim`].
//!
//! A claim keeps no copy of its state in the queue: its [`Place`] is authoritative. Whether the claim waits, was
//! granted, or never entered the queue is read from the place, under the lock. Dropping the claim reads it again.

use crate::core::claim_scope::ClaimScope;
use crate::core::claims::FirstPoll;
use crate::core::coop::{count_free_grant, poll_paid, uncount_free_grant};
use crate::core::queue::Place;
use crate::core::state::MAX_COST;
use crate::core::state::Sample;
use crate::deadline::{Allowed, Deadline};
use crate::error::ConsumeError;
use crate::observe::{GrantWord, WaitRecord};
use crate::permit::Permit;
use pin_project_lite::pin_project;
use std::ops::{ControlFlow, Deref};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

pin_project! {
    /// A claim on `cost` tokens that becomes a permit.
    #[derive(Debug)]
    pub(crate) struct Claim<P: Deref<Target: ClaimScope>> {
        cost: u64,
        #[pin]
        state: State<P>,
    }

    impl<P: Deref<Target: ClaimScope>> PinnedDrop for Claim<P> {
        #[inline]
        fn drop(this: Pin<&mut Self>) {
            // Nearly all claims have returned their result.
            if matches!(this.state, State::Waiting { .. }) {
                this.cancel();
            }
        }
    }
}

pin_project! {
    #[project = StateProjection]
    #[project_replace = OwnedState]
    #[derive(Debug)]
    enum State<P: Deref<Target: ClaimScope>> {
        // Not in the queue. `scope` is `None` once the claim has returned its result.
        Fresh { scope: Option<P>, allowed: Allowed },
        // Entering the queue, or in it.
        Waiting {
            scope: P,
            #[pin]
            place: Place,
            extras: Option<Pin<Box<Extras>>>,
        },
    }
}

pin_project! {
    /// The data of waits with a deadline or an observer. On the heap, so that futures do not carry space that most of them
    /// never use.
    #[derive(Debug)]
    struct Extras {
        wait_record: WaitRecord,
        #[pin]
        deadline: Option<Deadline>,
    }
}

/// The timer that ends a wait at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// A timer of the tokio runtime on which the claim is polled.
    Runtime,
    /// The thread that polls the claim: it parks until the deadline.
    Thread,
}

impl<P: Deref<Target: ClaimScope>> Claim<P> {
    #[inline]
    pub(crate) fn new(scope: P, cost: u64) -> Self {
        Self::with_limit(scope, cost, Allowed::ANY)
    }

    /// A claim that waits for at most `allowed`.
    #[inline]
    pub(crate) fn with_limit(scope: P, cost: u64, allowed: Allowed) -> Self {
        Self { cost, state: State::Fresh { scope: Some(scope), allowed } }
    }

    /// Limits the wait of a claim that was never polled. (A claim that was polled is pinned, and cannot be moved here.)
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        if let State::Fresh { allowed, .. } = &mut self.state {
            *allowed = Allowed::at_most(limit);
        }
        self
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// The limiter, if the claim was never polled.
    pub(crate) fn scope_if_fresh(&self) -> Option<&P> {
        match &self.state {
            State::Fresh { scope, .. } => scope.as_ref(),
            State::Waiting { .. } => None,
        }
    }

    /// [`poll`](Self::poll) for one unit of the task's budget. A grant without waiting may be [free](count_free_grant).
    #[inline]
    pub(crate) fn poll_paid(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<P>, ConsumeError>> {
        let is_free = count_free_grant();
        if is_free {
            if let Some(permit) = self.as_mut().claim_at_once() {
                return Poll::Ready(Ok(permit));
            }
        }
        self.pay(cx, is_free)
    }

    /// The rest of [`poll_paid`](Self::poll_paid). If `is_tried`, the fast path was tried and found no tokens.
    // Not inlined, so that the caller of this function is inlined at every `.await`: a grant without waiting needs
    // nothing else. It only jumps to one of two functions, so that the frequent one does not pay for the larger one.
    #[inline(never)]
    fn pay(self: Pin<&mut Self>, cx: &mut Context<'_>, is_tried: bool) -> Poll<Result<Permit<P>, ConsumeError>> {
        if is_tried { self.pay_and_wait(cx) } else { self.pay_and_poll(cx) }
    }

    #[inline(never)]
    fn pay_and_poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<P>, ConsumeError>> {
        poll_paid(cx, |cx| self.as_mut().poll(cx))
    }

    /// The rest of [`poll_paid`](Self::poll_paid) after the fast path was tried and found no tokens.
    #[inline(never)]
    fn pay_and_wait(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<P>, ConsumeError>> {
        uncount_free_grant();
        poll_paid(cx, |cx| self.poll_wait(cx))
    }

    /// Enters the queue on the first poll, or refuses if the expected wait is longer than allowed.
    #[inline]
    pub(crate) fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<P>, ConsumeError>> {
        match self.as_mut().claim_at_once() {
            Some(permit) => Poll::Ready(Ok(permit)),
            None => self.poll_slowly(cx),
        }
    }

    // Not inlined, for the same reason as `pay`.
    #[inline(never)]
    fn poll_slowly(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<P>, ConsumeError>> {
        self.poll_wait(cx)
    }

    /// Polls on a thread that keeps the deadline itself: `Continue` is the instant of the deadline, in the limiter's
    /// nanoseconds.
    pub(crate) fn poll_on_thread(
        mut self: Pin<&mut Self>,
        waker: &Waker,
    ) -> ControlFlow<Result<Permit<P>, ConsumeError>, Option<u64>> {
        if let Poll::Ready(answer) = self.as_mut().poll_queue(waker, Timer::Thread) {
            return ControlFlow::Break(answer);
        }
        let waited = match self.as_mut().time_left() {
            ControlFlow::Continue(end) => return ControlFlow::Continue(end),
            ControlFlow::Break(waited) => waited,
        };
        let answer = self.as_mut().give_up(waited);
        ControlFlow::Break(self.finish(answer))
    }

    /// Takes the tokens if that needs no more than the lock, for a claim that was never polled.
    #[inline]
    pub(crate) fn try_now(mut self) -> Result<Permit<P>, Self> {
        let State::Fresh { scope: slot, .. } = &mut self.state else { return Err(self) };
        let Some(scope) = slot.as_ref().filter(|_| self.cost <= MAX_COST) else { return Err(self) };
        let word = scope.claim_fast(self.cost).or_else(|| {
            let sample = scope.core().sample();
            scope.core().admit_now(scope.class(), self.cost, sample)
        });
        match word.and_then(|word| Some((slot.take()?, word))) {
            Some((scope, word)) => Ok(Permit::new(scope, self.cost, word)),
            None => Err(self),
        }
    }

    /// The fast path of the first poll.
    #[inline]
    fn claim_at_once(self: Pin<&mut Self>) -> Option<Permit<P>> {
        let this = self.project();
        let StateProjection::Fresh { scope, .. } = this.state.project() else { return None };
        let word = scope.as_ref()?.claim_fast(*this.cost)?;
        Some(Permit::new(scope.take()?, *this.cost, word))
    }

    /// All of a poll but the fast path.
    #[inline(always)]
    fn poll_wait(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<P>, ConsumeError>> {
        if let answer @ Poll::Ready(_) = self.as_mut().poll_queue(cx.waker(), Timer::Runtime) {
            return answer;
        }
        let waited = ready!(self.as_mut().poll_deadline(cx));
        let answer = self.as_mut().give_up(waited);
        Poll::Ready(self.finish(answer))
    }

    /// Enters the queue on the first poll. Later polls read the state of the claim from the place.
    // Inlined always, so that the answer is not copied from one function to the next.
    #[inline(always)]
    fn poll_queue(mut self: Pin<&mut Self>, waker: &Waker, timer: Timer) -> Poll<Result<Permit<P>, ConsumeError>> {
        let mut this = self.as_mut().project();
        let cost = *this.cost;
        let answer = match this.state.as_mut().project() {
            StateProjection::Waiting { scope, place, .. } => scope.core().poll_claim(place, scope.class(), cost, waker),
            StateProjection::Fresh { scope: slot, allowed } => {
                let (scope, allowed) = (slot.as_ref().expect("polled after it was ready"), *allowed);
                let early = scope.core().arrive_early(scope.class(), cost, allowed.nanos());
                let scope = slot.take().expect("present: it was just used");
                match early {
                    ControlFlow::Break(answer) => {
                        if let Err(error) = answer {
                            scope.core().observers().refused_in(scope.label(), cost, error);
                        }
                        return Poll::Ready(answer.map(|word| Permit::new(scope, cost, word)));
                    }
                    ControlFlow::Continue(sample) => {
                        this.state.set(State::Waiting { scope, place: Place::new(), extras: None });
                        self.as_mut().arrive(allowed, waker, timer, sample)
                    }
                }
            }
        };
        Poll::Ready(self.finish(ready!(answer)))
    }

    fn arrive(
        self: Pin<&mut Self>,
        allowed: Allowed,
        waker: &Waker,
        timer: Timer,
        sample: Sample,
    ) -> Poll<Result<GrantWord, ConsumeError>> {
        let this = self.project();
        let mut entering = Entering { state: this.state, allowed };
        let StateProjection::Waiting { scope, place, extras } = entering.state.as_mut().project() else {
            unreachable!("the caller has set this state")
        };
        let mut wait_record = WaitRecord::default();
        let limit = allowed.nanos();
        let has_timer = timer == Timer::Thread;
        let (class, label) = (scope.class(), scope.label());
        let arrival = FirstPoll { class, label, cost: *this.cost, allowed: limit, has_timer, waker, sample };
        let answer = scope.core().arrive(place, arrival, &mut wait_record);
        if answer.is_pending() && (limit.is_some() || wait_record.is_some()) {
            *extras = Some(Box::pin(Extras { wait_record, deadline: limit.map(Deadline::new) }));
        }
        std::mem::forget(entering);
        answer
    }

    /// Ready with the time waited once the deadline has come; never without a deadline.
    fn poll_deadline(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Duration> {
        match self.project().state.project() {
            StateProjection::Waiting { scope, extras: Some(extras), .. } => extras
                .as_mut()
                .project()
                .deadline
                .as_pin_mut()
                .map_or(Poll::Pending, |it| it.poll(&scope.core().time, cx)),
            _ => Poll::Pending,
        }
    }

    /// Breaks with the time waited once the deadline has come; otherwise returns its instant, if there is one.
    fn time_left(self: Pin<&mut Self>) -> ControlFlow<Duration, Option<u64>> {
        match self.project().state.project() {
            StateProjection::Waiting { scope, extras: Some(extras), .. } => {
                let deadline = extras.as_mut().project().deadline.as_pin_mut();
                deadline.map_or(ControlFlow::Continue(None), |deadline| {
                    deadline.check(&scope.core().time).map_continue(Some)
                })
            }
            _ => ControlFlow::Continue(None),
        }
    }

    /// Leaves the queue at the deadline. If the claim was granted or refused in the meantime, that result counts.
    fn give_up(self: Pin<&mut Self>, waited: Duration) -> Result<GrantWord, ConsumeError> {
        let this = self.project();
        let StateProjection::Waiting { scope, place, .. } = this.state.project() else {
            unreachable!("only a claim that waits has a deadline")
        };
        scope.core().give_up(place, scope.class(), *this.cost, waited)
    }

    /// Ends the wait with the result `answer`.
    #[inline(always)]
    fn finish(self: Pin<&mut Self>, answer: Result<GrantWord, ConsumeError>) -> Result<Permit<P>, ConsumeError> {
        let this = self.project();
        let done = State::Fresh { scope: None, allowed: Allowed::ANY };
        let OwnedState::Waiting { scope, extras, .. } = this.state.project_replace(done) else {
            unreachable!("a claim that has arrived is waiting")
        };
        match extras {
            Some(mut extras) => {
                extras.as_mut().project().wait_record.end(scope.observed(), *this.cost, answer.map(drop))
            }
            None => WaitRecord::default().end(scope.observed(), *this.cost, answer.map(drop)),
        }
        if let Ok(word) = answer {
            scope.core().observers().verdict(*this.cost, word);
        }
        answer.map(|word| Permit::new(scope, *this.cost, word))
    }

    /// Leaves the queue: the claim is dropped before it returned a result. Not inlined, so that dropping a granted
    /// claim is.
    #[inline(never)]
    fn cancel(self: Pin<&mut Self>) {
        let this = self.project();
        let StateProjection::Waiting { scope, place, extras } = this.state.project() else { return };
        if place.is_entered() {
            scope.core().cancel(place, scope.class(), *this.cost);
        }
        if let Some(extras) = extras {
            extras.as_mut().project().wait_record.cancel(scope.observed());
        }
    }
}

/// A claim while it enters the queue. Dropped only if a clock or a waker panics meanwhile. A claim that is not in the
/// queue can then be polled again.
struct Entering<'a, P: Deref<Target: ClaimScope>> {
    state: Pin<&'a mut State<P>>,
    allowed: Allowed,
}

impl<P: Deref<Target: ClaimScope>> Drop for Entering<'_, P> {
    #[cold]
    fn drop(&mut self) {
        let allowed = self.allowed;
        let StateProjection::Waiting { place, .. } = self.state.as_mut().project() else { return };
        if place.is_entered() {
            return;
        }
        let state = self.state.as_mut().project_replace(State::Fresh { scope: None, allowed });
        if let OwnedState::Waiting { scope, .. } = state {
            self.state.set(State::Fresh { scope: Some(scope), allowed });
        }
    }
}
