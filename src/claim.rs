//! The mechanism of every future that waits in one limiter's queue, generic over how it holds the limiter. The public
//! futures are thin wrappers around a [`Claim`].
//!
//! A claim keeps no copy of its state in the queue: its [`Place`] is authoritative. Whether the claim waits, was
//! granted, or never entered the queue is read from the place, under the lock. Dropping the claim reads it again.

use crate::core::claims::FirstPoll;
use crate::core::coop::{count_free_grant, poll_paid, uncount_free_grant};
use crate::core::limiter_ref::LimiterRef;
use crate::core::queue::Place;
use crate::core::state::MAX_COST;
use crate::core::state::Sample;
use crate::deadline::{Allowed, Deadline};
use crate::error::ConsumeError;
use crate::observe::WaitRecord;
use crate::permit::Permit;
use pin_project::{pin_project, pinned_drop};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// A claim on `cost` tokens that becomes a permit.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
pub(crate) struct Claim<S: LimiterRef> {
    cost: u64,
    #[pin]
    state: State<S>,
}

#[pin_project(project = StateProjection, project_replace = OwnedState)]
#[derive(Debug)]
enum State<S: LimiterRef> {
    /// Not in the queue. `core` is `None` once the claim has returned its result.
    Fresh { core: Option<S>, allowed: Allowed },
    /// Entering the queue, or in it.
    Waiting {
        core: S,
        #[pin]
        place: Place,
        extras: Option<Pin<Box<Extras>>>,
    },
}

/// The data of waits with a deadline or an observer. On the heap, so that futures do not carry space that most of them
/// never use.
#[pin_project]
#[derive(Debug)]
struct Extras {
    wait_record: WaitRecord,
    #[pin]
    deadline: Option<Deadline>,
}

/// The timer that ends a wait at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// A timer of the tokio runtime on which the claim is polled.
    Runtime,
    /// The thread that polls the claim: it parks until the deadline.
    Thread,
}

impl<S: LimiterRef> Claim<S> {
    #[inline]
    pub(crate) fn new(core: S, cost: u64) -> Self {
        Self::with_limit(core, cost, Allowed::ANY)
    }

    /// A claim that waits for at most `allowed`.
    #[inline]
    pub(crate) fn with_limit(core: S, cost: u64, allowed: Allowed) -> Self {
        Self { cost, state: State::Fresh { core: Some(core), allowed } }
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
    pub(crate) fn core_if_fresh(&self) -> Option<&S> {
        match &self.state {
            State::Fresh { core, .. } => core.as_ref(),
            State::Waiting { .. } => None,
        }
    }

    /// [`poll`](Self::poll) for one unit of the task's budget. A grant without waiting may be [free](count_free_grant).
    #[inline]
    pub(crate) fn poll_paid(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<S>, ConsumeError>> {
        let is_free = count_free_grant();
        if is_free && let Some(permit) = self.as_mut().claim_at_once() {
            return Poll::Ready(Ok(permit));
        }
        self.pay(cx, is_free)
    }

    /// The rest of [`poll_paid`](Self::poll_paid). If `is_tried`, the fast path was tried and found no tokens.
    // Not inlined, so that the caller of this function is inlined at every `.await`: a grant without waiting needs
    // nothing else. It only jumps to one of two functions, so that the frequent one does not pay for the larger one.
    #[inline(never)]
    fn pay(self: Pin<&mut Self>, cx: &mut Context<'_>, is_tried: bool) -> Poll<Result<Permit<S>, ConsumeError>> {
        if is_tried { self.pay_and_wait(cx) } else { self.pay_and_poll(cx) }
    }

    #[inline(never)]
    fn pay_and_poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<S>, ConsumeError>> {
        poll_paid(cx, |cx| self.as_mut().poll(cx))
    }

    /// The rest of [`poll_paid`](Self::poll_paid) after the fast path was tried and found no tokens.
    #[inline(never)]
    fn pay_and_wait(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<S>, ConsumeError>> {
        uncount_free_grant();
        poll_paid(cx, |cx| self.poll_wait(cx))
    }

    /// Enters the queue on the first poll, or refuses if the expected wait is longer than allowed.
    #[inline]
    pub(crate) fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<S>, ConsumeError>> {
        match self.as_mut().claim_at_once() {
            Some(permit) => Poll::Ready(Ok(permit)),
            None => self.poll_slowly(cx),
        }
    }

    // Not inlined, for the same reason as `pay`.
    #[inline(never)]
    fn poll_slowly(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<S>, ConsumeError>> {
        self.poll_wait(cx)
    }

    /// Polls on a thread that keeps the deadline itself: `Continue` is the instant of the deadline, in the limiter's
    /// nanoseconds.
    pub(crate) fn poll_on_thread(
        mut self: Pin<&mut Self>,
        waker: &Waker,
    ) -> ControlFlow<Result<Permit<S>, ConsumeError>, Option<u64>> {
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
    pub(crate) fn try_now(mut self) -> Result<Permit<S>, Self> {
        if let State::Fresh { core: slot, .. } = &mut self.state
            && let Some(core) = slot
            && self.cost <= MAX_COST
            && let Some(remaining) = core.claim_fast(self.cost).or_else(|| {
                let sample = core.sample();
                core.admit_now(core.flags(), self.cost, sample)
            })
            && let Some(core) = slot.take()
        {
            return Ok(Permit::new(core, self.cost, remaining));
        }
        Err(self)
    }

    /// The fast path of the first poll.
    #[inline]
    fn claim_at_once(self: Pin<&mut Self>) -> Option<Permit<S>> {
        let this = self.project();
        let StateProjection::Fresh { core, .. } = this.state.project() else { return None };
        let remaining = core.as_ref()?.claim_fast(*this.cost)?;
        Some(Permit::new(core.take()?, *this.cost, remaining))
    }

    /// All of a poll but the fast path.
    // Inlined always: it has two callers, and is a part of every wait.
    #[inline(always)]
    fn poll_wait(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Permit<S>, ConsumeError>> {
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
    fn poll_queue(mut self: Pin<&mut Self>, waker: &Waker, timer: Timer) -> Poll<Result<Permit<S>, ConsumeError>> {
        let mut this = self.as_mut().project();
        let cost = *this.cost;
        let answer = match this.state.as_mut().project() {
            StateProjection::Waiting { core, place, .. } => core.poll_claim(place, core.class(), cost, waker),
            StateProjection::Fresh { core: slot, allowed } => {
                let (core, allowed) = (slot.as_ref().expect("polled after it was ready"), *allowed);
                let early = core.arrive_early(core.class(), cost, allowed.nanos());
                let core = slot.take().expect("present: it was just used");
                match early {
                    ControlFlow::Break(answer) => {
                        if let Err(error) = answer {
                            core.observers().refused_in(core.label(), cost, error);
                        }
                        return Poll::Ready(answer.map(|remaining| Permit::new(core, cost, remaining)));
                    }
                    ControlFlow::Continue(sample) => {
                        this.state.set(State::Waiting { core, place: Place::new(), extras: None });
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
    ) -> Poll<Result<u64, ConsumeError>> {
        let this = self.project();
        let mut entering = Entering { state: this.state, allowed };
        let StateProjection::Waiting { core, place, extras } = entering.state.as_mut().project() else {
            unreachable!("the caller has set this state")
        };
        let mut wait_record = WaitRecord::default();
        let limit = allowed.nanos();
        let has_timer = timer == Timer::Thread;
        let (class, label) = (core.class(), core.label());
        let arrival = FirstPoll { class, label, cost: *this.cost, allowed: limit, has_timer, waker, sample };
        let answer = core.arrive(place, arrival, &mut wait_record);
        if answer.is_pending() && (limit.is_some() || wait_record.is_some()) {
            *extras = Some(Box::pin(Extras { wait_record, deadline: limit.map(Deadline::new) }));
        }
        std::mem::forget(entering);
        answer
    }

    /// Ready with the time waited once the deadline has come; never without a deadline.
    fn poll_deadline(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Duration> {
        match self.project().state.project() {
            StateProjection::Waiting { core, extras: Some(extras), .. } => {
                extras.as_mut().project().deadline.as_pin_mut().map_or(Poll::Pending, |it| it.poll(&core.time, cx))
            }
            _ => Poll::Pending,
        }
    }

    /// Breaks with the time waited once the deadline has come; otherwise returns its instant, if there is one.
    fn time_left(self: Pin<&mut Self>) -> ControlFlow<Duration, Option<u64>> {
        match self.project().state.project() {
            StateProjection::Waiting { core, extras: Some(extras), .. } => {
                let deadline = extras.as_mut().project().deadline.as_pin_mut();
                deadline.map_or(ControlFlow::Continue(None), |deadline| deadline.check(&core.time).map_continue(Some))
            }
            _ => ControlFlow::Continue(None),
        }
    }

    /// Leaves the queue at the deadline. If the claim was granted or refused in the meantime, that result counts.
    fn give_up(self: Pin<&mut Self>, waited: Duration) -> Result<u64, ConsumeError> {
        let this = self.project();
        let StateProjection::Waiting { core, place, .. } = this.state.project() else {
            unreachable!("only a claim that waits has a deadline")
        };
        core.give_up(place, core.class(), *this.cost, waited)
    }

    /// Ends the wait with the result `answer`.
    // Inlined always, though large: it has one or two callers, and is a part of every wait.
    #[inline(always)]
    fn finish(self: Pin<&mut Self>, answer: Result<u64, ConsumeError>) -> Result<Permit<S>, ConsumeError> {
        let this = self.project();
        let done = State::Fresh { core: None, allowed: Allowed::ANY };
        let OwnedState::Waiting { core, extras, .. } = this.state.project_replace(done) else {
            unreachable!("a claim that has arrived is waiting")
        };
        match extras {
            Some(mut extras) => {
                extras.as_mut().project().wait_record.end(core.observed_here(), *this.cost, answer.map(drop))
            }
            None => WaitRecord::default().end(core.observed_here(), *this.cost, answer.map(drop)),
        }
        if let Ok(word) = answer {
            core.observers().verdict(*this.cost, word);
        }
        answer.map(|remaining| Permit::new(core, *this.cost, remaining))
    }

    /// Leaves the queue: the claim is dropped before it returned a result. Not inlined, so that dropping a granted
    /// claim is.
    #[inline(never)]
    fn cancel(self: Pin<&mut Self>) {
        let this = self.project();
        let StateProjection::Waiting { core, place, extras } = this.state.project() else { return };
        if place.is_entered() {
            core.cancel(place, core.class(), *this.cost);
        }
        if let Some(extras) = extras {
            extras.as_mut().project().wait_record.cancel(core.observed_here());
        }
    }
}

/// A claim while it enters the queue. Dropped only if a clock or a waker panics meanwhile. A claim that is not in the
/// queue can then be polled again.
struct Entering<'a, S: LimiterRef> {
    state: Pin<&'a mut State<S>>,
    allowed: Allowed,
}

impl<S: LimiterRef> Drop for Entering<'_, S> {
    #[cold]
    fn drop(&mut self) {
        let allowed = self.allowed;
        if let StateProjection::Waiting { place, .. } = self.state.as_mut().project()
            && !place.is_entered()
            && let OwnedState::Waiting { core, .. } =
                self.state.as_mut().project_replace(State::Fresh { core: None, allowed })
        {
            self.state.set(State::Fresh { core: Some(core), allowed });
        }
    }
}

#[pinned_drop]
impl<S: LimiterRef> PinnedDrop for Claim<S> {
    #[inline]
    fn drop(self: Pin<&mut Self>) {
        // Nearly all claims have returned their result.
        if matches!(self.state, State::Waiting { .. }) {
            self.cancel();
        }
    }
}
