//! The life of a claim: it arrives, waits, and is granted or leaves. What its grant does afterwards is in `grants.rs`.

use super::{Core, drop_quietly};
use crate::core::classes::{ClassId, ROOT};
use crate::core::outcome::Outcome;
use crate::core::queue::Place;
use crate::core::rovers::{Rovers, ahead};
use crate::core::state::{Arrival, CatchUp, MAX_COST, Reach, Refund, Sample, State};
use crate::error::{ConsumeError, TryAcquireError};
use crate::observe::{ClassLabel, GrantWord, OBSERVED, QueueInfo, WaitRecord};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Poll, Waker};
use tokio::runtime::Handle;

/// How late, in nanoseconds, a driver may be before an arriving caller serves the queue in its place: two ticks of
/// tokio's timer.
const MAX_LATE: u64 = 2_000_000;

/// A claim that is polled for the first time.
#[derive(Clone, Copy)]
pub(crate) struct FirstPoll<'a> {
    pub(crate) class: ClassId,
    pub(crate) label: Option<&'a ClassLabel>,
    pub(crate) cost: u64,
    /// The longest wait, in nanoseconds.
    pub(crate) allowed: Option<u64>,
    /// True if the caller ends the wait at its deadline itself, without a timer of the runtime.
    pub(crate) has_timer: bool,
    pub(crate) waker: &'a Waker,
    pub(crate) sample: Sample,
}

impl Core {
    /// Grants `cost` tokens, or refuses and reports the refusal to the observers.
    #[inline(always)]
    pub(crate) fn try_acquire(&self, cost: u64) -> Result<GrantWord, TryAcquireError> {
        let answer = self.try_acquire_unobserved(cost);
        // Without observers the error is not inspected: that would move it through memory.
        if OBSERVED {
            if let Err(error) = &answer {
                self.observers().refused(cost, *error);
            }
        }
        answer
    }

    /// Grants `cost` tokens, or refuses.
    // Without the attribute the compiler does not inline this into a large caller, and a refusal then goes through
    // memory three times, which was measured to be slower.
    #[inline(always)]
    pub(crate) fn try_acquire_unobserved(&self, cost: u64) -> Result<GrantWord, TryAcquireError> {
        if let Some(ticket) = self.rovers.try_claim(cost) {
            return Ok(GrantWord::plain(self.rovers.remaining_after(ticket)));
        }
        if let Some(parent_link) = self.parent_link() {
            return self.try_acquire_with_parent(parent_link, cost);
        }
        // The tail is read before the time, as in `sample`.
        let tail = self.rovers.tail();
        let now = self.time.now();
        match self.rovers.denial_of(cost, tail) {
            Some(denial) if now < denial.until => Err(TryAcquireError::Denied(denial.as_of(now))),
            _ => self.try_acquire_slowly(ROOT, cost, Sample { tail, now }),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn try_acquire_slowly(
        &self,
        class: ClassId,
        cost: u64,
        sample: Sample,
    ) -> Result<GrantWord, TryAcquireError> {
        if let Some(word) = self.fast_admit(class, cost, sample) {
            return Ok(word);
        }
        let (answer, source_task_is_gone) = self.look_ahead(sample, cost, |state, rovers, sample| {
            (state.try_acquire(rovers, class, cost, sample.now), state.source_task_is_gone())
        });
        if let Ok(word) = answer {
            self.observers().verdict(cost, word);
        }
        if source_task_is_gone {
            self.replace_source_task();
        }
        answer
    }

    /// Grants `cost` tokens if they are available and no claim waits, which is the common case. Cheaper than
    /// [`with`](Self::with), because it does only the steps that this case needs.
    #[inline(always)]
    pub(super) fn fast_admit(&self, class: ClassId, cost: u64, sample: Sample) -> Option<GrantWord> {
        if self.is_claimed_beyond(sample) {
            return None;
        }
        let mut state = self.state.lock();
        if class != ROOT && !state.is_free(class) {
            return None;
        }
        let word = state.fast_admit(&self.rovers, cost, sample)?;
        if state.has_source() {
            let waker = state.waker_after_grant(&self.rovers);
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
        Some(word)
    }

    /// Grants `cost` tokens at once, in a class or in the limiter itself, or changes nothing. `None` does not mean that
    /// the tokens are not there.
    pub(crate) fn admit_now(&self, class: ClassId, cost: u64, sample: Sample) -> Option<GrantWord> {
        let claimed = if class == ROOT { self.try_claim(cost) } else { None };
        claimed.or_else(|| self.fast_admit(class, cost, sample))
    }

    /// True if more is claimed than is published: a claim waits, or tokens are owed.
    #[inline]
    fn is_claimed_beyond(&self, sample: Sample) -> bool {
        ahead(sample.tail, self.rovers.published()) > 0
    }

    /// Enters `place` at the end of a queue that will be served without this caller, and returns the state of the queue
    /// ahead of it. Returns `None`, and does nothing, if the queue may need this caller to serve it.
    fn enqueue_fast(
        &self,
        place: Pin<&mut Place>,
        class: ClassId,
        cost: u64,
        waker: &mut Option<Waker>,
        host: &Option<Handle>,
        sample: Sample,
    ) -> Option<QueueInfo> {
        if !self.is_claimed_beyond(sample) {
            return None;
        }
        // With a manual clock there are no drivers: every caller serves.
        let max_late = if self.time.is_manual() { 0 } else { MAX_LATE };
        let mut state = self.state.lock();
        if self.is_unserved(&state, host) || state.is_overdue(sample.now, max_late) {
            return None;
        }
        let queue_info = state.queue_info(&self.rovers, cost, sample.now);
        if state.has_classes() {
            let joined = state.enqueue_in_class(&self.rovers, place, class, cost, waker, sample.now);
            return joined.then_some(queue_info);
        }
        let join = |state: &mut State| state.enqueue_fast(&self.rovers, place, cost, waker);
        let joined = if state.is_unfinished() { state.act_behind(sample.now, join) } else { join(&mut state) };
        joined.then_some(queue_info)
    }

    /// The fast path of callers that may wait: grants `cost` tokens, or changes nothing.
    #[inline]
    pub(crate) fn try_claim(&self, cost: u64) -> Option<GrantWord> {
        // Free if the cost is a constant. Without it, a claim above the limit could be granted while the fast path is
        // open.
        if cost > MAX_COST {
            None
        } else {
            self.rovers.try_claim(cost).map(|ticket| GrantWord::plain(self.rovers.remaining_after(ticket)))
        }
    }

    /// The beginning of the first poll of a claim that [`try_claim`](Self::try_claim) did not grant: breaks with the
    /// result if the claim does not have to enter the queue, which is the common case.
    #[inline(always)]
    pub(crate) fn arrive_early(
        &self,
        class: ClassId,
        cost: u64,
        allowed: Option<u64>,
    ) -> ControlFlow<Result<GrantWord, ConsumeError>, Sample> {
        let sample = self.sample();
        if let Some(parent_link) = self.parent_link() {
            match self.admit_with_parent(parent_link, cost, allowed) {
                Ok(None) => return ControlFlow::Continue(sample),
                Ok(Some(word)) => return ControlFlow::Break(Ok(word)),
                Err(error) => return ControlFlow::Break(Err(error)),
            }
        }
        if cost <= MAX_COST {
            if let Some(word) = self.fast_admit(class, cost, sample) {
                return ControlFlow::Break(Ok(word));
            }
        }
        ControlFlow::Continue(sample)
    }

    /// The rest of the first poll, after [`arrive_early`](Self::arrive_early).
    pub(crate) fn arrive(
        &self,
        mut place: Pin<&mut Place>,
        arrival: FirstPoll<'_>,
        wait_record: &mut WaitRecord,
    ) -> Poll<Result<GrantWord, ConsumeError>> {
        let FirstPoll { class, label, cost, allowed, has_timer, waker, sample } = arrival;
        let mut waker = Some(waker.clone());
        let host = self.host();
        if allowed.is_none() {
            if let Some(queue_info) = self.enqueue_fast(place.as_mut(), class, cost, &mut waker, &host, sample) {
                wait_record.begin(self.observers(), label, cost, queue_info);
                return Poll::Pending;
            }
        }
        let act = |state: &mut State, rovers: &Rovers, sample: Sample| {
            // `within` needs a timer of its own, and so a runtime, a manual clock, or a thread that parks.
            let timed = allowed.is_none() || has_timer || host.is_some() || self.time.is_manual();
            let driven = timed && self.is_driven(state, &host);
            let (place, waker, now) = (place.as_mut(), &mut waker, sample.now);
            let queue_info = state.queue_info(rovers, cost, now);
            let arrival = Arrival { place, class, cost, waker, allowed, driven, now };
            (state.arrive(rovers, arrival), self.is_unserved(state, &host), queue_info)
        };
        let (result, unserved, queue_info) = match allowed {
            Some(_) => self.look_ahead(sample, cost, act),
            None => self.sampled(Some(sample), Reach::Held, CatchUp::Batch, act),
        };
        drop_quietly(waker);
        match result {
            Ok(Some(word)) => Poll::Ready(Ok(word)),
            Ok(None) => {
                let answer = self.wait_here(place, class, cost, unserved, &host);
                if answer.is_pending() {
                    wait_record.begin(self.observers(), label, cost, queue_info);
                }
                answer
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// A later poll of a claim that waits: takes the outcome of `place` if there is one; otherwise stores `waker` there.
    pub(crate) fn poll_claim(
        &self,
        mut place: Pin<&mut Place>,
        class: ClassId,
        cost: u64,
        waker: &Waker,
    ) -> Poll<Result<GrantWord, ConsumeError>> {
        // A waiter is nearly always woken because it has an outcome, and then needs nothing else.
        let outcome = self.state.lock().queue_of(class).take_outcome(place.as_mut());
        if let Some(outcome) = outcome {
            return Poll::Ready(outcome.into_result());
        }
        // Cloned before the lock is taken; whichever of the two wakers is not kept is dropped after it is released.
        let waker = waker.clone();
        let host = self.host();
        let mut state = self.state.lock();
        let (outcome, spare) = state.queue_of(class).poll(place.as_mut(), waker);
        let unserved = self.is_unserved(&state, &host);
        drop(state);
        drop_quietly(spare);
        match outcome {
            Some(outcome) => Poll::Ready(outcome.into_result()),
            None => self.wait_here(place, class, cost, unserved, &host),
        }
    }

    /// Whether no driver serves this queue for a caller on the current runtime, and none can be hired.
    pub(crate) fn is_left_alone(&self) -> bool {
        let host = self.host();
        let unserved = self.is_unserved(&self.state.lock(), &host);
        unserved && !host.is_some_and(|host| self.serve_here(&host))
    }

    /// `place` waits. Hires a driver if `place` is `unserved`: it is the first waiter on this runtime, or it was polled
    /// on another runtime before.
    #[inline]
    fn wait_here(
        &self,
        place: Pin<&mut Place>,
        class: ClassId,
        cost: u64,
        unserved: bool,
        host: &Option<Handle>,
    ) -> Poll<Result<GrantWord, ConsumeError>> {
        if !unserved {
            return Poll::Pending;
        }
        match catch_unwind(AssertUnwindSafe(|| host.as_ref().is_some_and(|host| self.serve_here(host)))) {
            Ok(true) => Poll::Pending,
            Ok(false) => {
                self.cancel(place, class, cost);
                self.count_refused();
                Poll::Ready(Err(ConsumeError::NoRuntime))
            }
            Err(panic) => {
                // If the caller catches the panic, it holds a future that is not in the queue.
                self.cancel(place, class, cost);
                resume_unwind(panic)
            }
        }
    }

    /// The claim in `place` is dropped: it leaves the queue, or gives back a grant that the caller has not seen.
    pub(crate) fn cancel(&self, mut place: Pin<&mut Place>, class: ClassId, cost: u64) {
        // With a manual clock every caller serves, so the time is needed. Otherwise the driver serves. Whether the
        // driver is late is not checked, because reading the clock would cost more than the removal itself.
        let now = if self.time.is_manual() { self.sample_or_last().map(|sample| sample.now) } else { Some(0) };
        if let Some(now) = now {
            let left = self.state.lock().remove_fast(&self.rovers, place.as_mut(), now);
            if left.is_some() {
                return drop_quietly(left);
            }
        }
        let left = self.leaving(|state, rovers, _| {
            let left = state.depart(rovers, place, class);
            if let Some(Outcome::Granted(word)) = left.outcome {
                let refund = Refund::new(class, cost, word.refundable(cost), word);
                state.give_back(rovers, refund);
            }
            left
        });
        drop_quietly(left.waker);
        if let Some(Outcome::Granted(_)) = left.outcome {
            self.give_back_to_parent(cost);
        }
    }

    /// Counts that a caller wanted to wait and was refused.
    pub(crate) fn count_refused(&self) {
        self.state.lock().totals.refused += 1;
    }

    /// Counts and reports that a claim was refused before it arrived.
    pub(crate) fn refuse(&self, label: Option<&ClassLabel>, cost: u64, error: ConsumeError) {
        self.count_refused();
        self.observers().refused_in(label, cost, error);
    }

    /// Closes the limiter: every waiter and every later caller gets `Closed`.
    ///
    /// # Panics
    /// If the clock panics; then nothing has changed.
    pub(crate) fn close(&self) {
        self.with_batch(|state, rovers, _| state.close(rovers));
    }

    /// Like [`close`](Self::close), as one of several limiters: if the clock panics, the last sample is used.
    pub(crate) fn close_anyway(&self) {
        self.leaving(|state, rovers, _| state.close(rovers));
    }
}
