//! The life of a claim: coming, waiting, going, and what is paid afterwards.

use super::{Shared, drop_quietly};
use crate::error::{ConsumeError, ReleaseError, TryAcquireError};
use crate::queue::{Outcome, Place};
use crate::rovers::ahead;
use crate::state::{Arrival, MOST_COST, Reach, Sample};
use crate::sync::Ordering;
use crate::vigil::{Outlook, Vigil};
use crate::wakes::Wakes;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Poll, Waker};
use tokio::runtime::Handle;

/// How late, in nanoseconds, a driver may be before those who come serve the line in its place: two of tokio's ticks.
const MOST_LATE: u64 = 2_000_000;

impl Shared {
    /// Grants, saying what remains; or refuses, and tells of it.
    #[inline(always)]
    pub(crate) fn try_acquire(&self, cost: u64) -> Result<u64, TryAcquireError> {
        let answer = self.try_acquire_untold(cost);
        // A refusal is not to be moved about where nobody is told of it.
        if cfg!(any(feature = "metrics", feature = "tracing"))
            && let Err(error) = &answer
        {
            self.audience().refused(cost, *error);
        }
        answer
    }

    /// Grants, saying what remains.
    // By itself the compiler makes a call of it in a large caller, and a refusal then goes through memory three times: 1.4 x
    // the price of a clock reading, where it is 1.25 to 1.31 x.
    #[inline(always)]
    pub(crate) fn try_acquire_untold(&self, cost: u64) -> Result<u64, TryAcquireError> {
        if let Some(ticket) = self.rovers.try_claim(cost) {
            return Ok(self.rovers.left_behind(ticket));
        }
        // The tail before the time, as in `sample`.
        let tail = self.rovers.tail();
        let now = self.time.now();
        match self.rovers.denial_of(cost, tail) {
            Some(denial) if now < denial.until => Err(TryAcquireError::Denied(denial.as_of(now))),
            _ => self.try_acquire_slowly(cost, Sample { tail, now }),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_acquire_slowly(&self, cost: u64, sample: Sample) -> Result<u64, TryAcquireError> {
        if let Some(remaining) = self.admit_idle(cost, sample) {
            return Ok(remaining);
        }
        let answer = self
            .sampled(Some(sample), Reach::Held, |state, rovers, sample| state.try_acquire(rovers, cost, sample.now));
        #[cfg(feature = "redis")]
        if answer.is_err()
            && let Some(host) = self.host()
        {
            self.fill_post(&host);
        }
        answer
    }

    /// Grants `cost` tokens if they are there and there is no line, which is the common case: at less price than
    /// `sampled`, of which it is the part that matters then.
    pub(super) fn admit_idle(&self, cost: u64, sample: Sample) -> Option<u64> {
        if self.is_claimed_beyond(sample) {
            return None;
        }
        self.state.lock().admit_idle(&self.rovers, cost, sample)
    }

    /// More is claimed than is published: somebody waits or owes.
    fn is_claimed_beyond(&self, sample: Sample) -> bool {
        ahead(sample.tail, self.rovers.published()) > 0
    }

    /// Has `place` wait at the end of a line that will be served without its help, and says what lies before it.
    fn join_quietly(
        &self,
        place: Pin<&mut Place>,
        cost: u64,
        waker: &mut Option<Waker>,
        host: &Option<Handle>,
        sample: Sample,
    ) -> Option<Outlook> {
        if !self.is_claimed_beyond(sample) {
            return None;
        }
        // Where time is moved by hand, whoever looks serves.
        let patience = if self.time.is_manual() { 0 } else { MOST_LATE };
        let mut state = self.state.lock();
        if self.is_unserved(&state, host) || state.is_overdue(sample.now, patience) {
            return None;
        }
        let outlook = state.outlook(&self.rovers, cost, sample.now);
        state.join_quietly(&self.rovers, place, cost, waker).then_some(outlook)
    }

    /// The fast path of those who may wait: says what remains.
    #[inline]
    pub(crate) fn try_claim(&self, cost: u64) -> Option<u64> {
        // Of no price where the cost is known: and else a claim could be larger while the fast path is open.
        if cost > MOST_COST { None } else { self.rovers.try_claim(cost).map(|ticket| self.rovers.left_behind(ticket)) }
    }

    /// The first poll of a claim that [`try_claim`](Self::try_claim) did not grant; ready with what remains.
    pub(crate) fn arrive(
        &self,
        mut place: Pin<&mut Place>,
        cost: u64,
        allowed: Option<u64>,
        waker: &Waker,
        vigil: &mut Vigil,
    ) -> Poll<Result<u64, ConsumeError>> {
        let sample = self.sample();
        #[cfg(feature = "keyed")]
        if let Some(roof) = self.roof() {
            match self.admit_under(roof, cost, allowed) {
                Ok(None) => {}
                Ok(Some(remaining)) => return Poll::Ready(Ok(remaining)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if cost <= MOST_COST
            && let Some(remaining) = self.admit_idle(cost, sample)
        {
            return Poll::Ready(Ok(remaining));
        }
        let mut waker = Some(waker.clone());
        let host = self.host();
        if allowed.is_none()
            && let Some(outlook) = self.join_quietly(place.as_mut(), cost, &mut waker, &host, sample)
        {
            vigil.begin(self, cost, outlook);
            return Poll::Pending;
        }
        let (result, unserved, outlook) = self.sampled(Some(sample), Reach::Held, |state, rovers, sample| {
            // `within` needs a timer of its own.
            let timed = allowed.is_none() || host.is_some() || self.time.is_manual();
            let driven = timed && self.is_driven(state, &host);
            let arrival = Arrival { place: place.as_mut(), cost, waker: &mut waker, allowed, driven };
            let outlook = state.outlook(rovers, cost, sample.now);
            (state.arrive(rovers, arrival, sample.now), self.is_unserved(state, &host), outlook)
        });
        drop_quietly(waker);
        match result {
            Ok(Some(remaining)) => Poll::Ready(Ok(remaining)),
            Ok(None) => {
                let answer = self.wait_here(place, cost, unserved, &host);
                if answer.is_pending() {
                    vigil.begin(self, cost, outlook);
                }
                answer
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// A later poll of a claim that waits.
    pub(crate) fn look(&self, mut place: Pin<&mut Place>, cost: u64, waker: &Waker) -> Poll<Result<u64, ConsumeError>> {
        match self.check(place.as_mut(), waker) {
            (Poll::Ready(outcome), _, _) => Poll::Ready(outcome.into_result()),
            (Poll::Pending, unserved, host) => self.wait_here(place, cost, unserved, &host),
        }
    }

    /// Whether `place` was called out, else leaves `waker` there; and whether its runtime has no driver.
    pub(crate) fn check(&self, mut place: Pin<&mut Place>, waker: &Waker) -> (Poll<Outcome>, bool, Option<Handle>) {
        // Who was woken for an outcome, as nearly all are, needs nothing else.
        let outcome = self.state.lock().line.take_outcome(place.as_mut());
        if let Some(outcome) = outcome {
            return (Poll::Ready(outcome), false, None);
        }
        // Cloned before the lock, and whichever of the two is not kept is dropped after it.
        let waker = waker.clone();
        let host = self.host();
        let mut state = self.state.lock();
        let looked = state.line.look(place, waker);
        let unserved = self.is_unserved(&state, &host);
        drop(state);
        let (outcome, spare) = looked;
        drop_quietly(spare);
        (outcome.map_or(Poll::Pending, Poll::Ready), unserved, host)
    }

    /// Whether a part of a joint claim was called out, else leaves `waker` there; and whether its runtime has no driver.
    pub(crate) fn check_part(
        &self,
        number: u64,
        set: &[usize],
        waker: &Waker,
    ) -> (Poll<Outcome>, bool, Option<Handle>) {
        let outcome = self.state.lock().line.parts_mut().and_then(|parts| parts.take_outcome(number));
        if let Some(outcome) = outcome {
            return (Poll::Ready(outcome), false, None);
        }
        let waker = waker.clone();
        let host = self.host();
        let mut state = self.state.lock();
        let (outcome, spare) = state.look_at_part(number, set, waker);
        let unserved = self.is_unserved(&state, &host);
        drop(state);
        drop_quietly(spare);
        (outcome, unserved, host)
    }

    /// A joint claim over the limiters of `set` is dropped: its part leaves, or gives back what it was granted and did not see.
    pub(crate) fn cancel_part(&self, number: u64, set: &[usize], cost: u64) {
        let spare = self.leaving(|state, rovers, _| {
            let (outcome, waker) = state.depart_part(rovers, number, set);
            if let Some(Outcome::Granted { .. }) = outcome {
                state.give_back(rovers, cost);
            }
            waker
        });
        drop_quietly(spare);
    }

    /// `place` waits, on a runtime that may have no driver yet: because it is the first here, or was polled on another
    /// runtime before.
    fn wait_here(
        &self,
        place: Pin<&mut Place>,
        cost: u64,
        unserved: bool,
        host: &Option<Handle>,
    ) -> Poll<Result<u64, ConsumeError>> {
        if !unserved {
            return Poll::Pending;
        }
        match catch_unwind(AssertUnwindSafe(|| host.as_ref().is_some_and(|host| self.serve_here(host)))) {
            Ok(true) => Poll::Pending,
            Ok(false) => {
                self.cancel(place, cost);
                Poll::Ready(Err(ConsumeError::NoRuntime))
            }
            Err(no_timers) => {
                // Whoever catches this holds a future that does not stand in the line.
                self.cancel(place, cost);
                resume_unwind(no_timers)
            }
        }
    }

    /// The claim in `place` is dropped: it leaves the line, or gives back what it was granted and did not see.
    pub(crate) fn cancel(&self, mut place: Pin<&mut Place>, cost: u64) {
        // Where time is moved by hand, whoever looks serves. Else the driver does, and whether it is late is not asked: reading
        // the clock is the better half of what leaving would cost.
        let now = if self.time.is_manual() { self.sample_anyway().map(|sample| sample.now) } else { Some(0) };
        if let Some(now) = now {
            let left = self.state.lock().depart_quietly(&self.rovers, place.as_mut(), now);
            if left.is_some() {
                return drop_quietly(left);
            }
        }
        let left = self.leaving(|state, rovers, _| {
            let left = state.depart(rovers, place);
            if let Some(Outcome::Granted { .. }) = left.outcome {
                state.give_back(rovers, cost);
            }
            left
        });
        drop_quietly(left.waker);
        match left.outcome {
            Some(Outcome::Granted { .. }) => self.give_back_above(cost),
            _ => self.give_back_above(left.above),
        }
    }

    /// A grant of `cost` that nobody saw.
    pub(crate) fn give_back(&self, cost: u64) {
        self.leaving(|state, rovers, _| state.give_back(rovers, cost));
    }

    /// The claim in `place` ran out of time: it leaves the line, unless it was called out in this very moment.
    pub(crate) fn give_up(&self, place: Pin<&mut Place>) -> Option<Outcome> {
        let left = self.leaving(|state, rovers, _| state.depart(rovers, place));
        drop_quietly(left.waker);
        self.give_back_above(left.above);
        left.outcome
    }

    /// Tokens that the roof has granted to a claim here that is not granted.
    fn give_back_above(&self, tokens: u64) {
        #[cfg(feature = "keyed")]
        if tokens > 0
            && let Some(roof) = self.roof()
        {
            roof.limiter.give_back(tokens);
        }
        #[cfg(not(feature = "keyed"))]
        let _ = tokens;
    }

    /// Tokens in flight have landed.
    #[inline]
    pub(crate) fn release(&self, cost: u64) {
        if self.rovers.release(cost) {
            self.land();
        }
    }

    /// Somebody waits for what was released.
    #[cold]
    fn land(&self) {
        let mut wakes = Wakes::default();
        // Before the time, as the tail.
        wakes.landed.note(&self.rovers, self.rovers.landed());
        self.sampled_with(wakes, Some(self.sample()), Reach::Held, |_, _, _| ());
    }

    pub(crate) fn forget(&self, cost: u64) {
        self.owed.fetch_add(cost, Ordering::AcqRel);
    }

    pub(crate) fn release_owed(&self, asked: u64) -> Result<(), ReleaseError> {
        self.take_owed(asked)?;
        self.release(asked);
        Ok(())
    }

    /// Counts `asked` tokens of forgotten grants as to be released, which is up to the caller.
    pub(crate) fn take_owed(&self, asked: u64) -> Result<(), ReleaseError> {
        if !self.capped {
            return Err(ReleaseError::NotCapped);
        }
        let mut owed = self.owed.load(Ordering::Acquire);
        loop {
            let left = owed.checked_sub(asked).ok_or(ReleaseError::TooMuch { asked, owed })?;
            match self.owed.compare_exchange_weak(owed, left, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => owed = now,
            }
        }
    }

    /// Changes what a grant cost, and says what it costs now.
    pub(crate) fn resettle(&self, cost: u64, actual: u64) -> u64 {
        if actual > cost {
            return cost + self.with(|state, rovers, _| state.charge(rovers, actual - cost));
        }
        if actual < cost {
            self.with(|state, rovers, _| state.give_back(rovers, cost - actual));
        }
        actual
    }

    /// Mints what is due and serves the line.
    pub(crate) fn tick(&self) {
        self.look_at(|_, _, _| ());
    }
}
