//! Coming: claims that are granted, denied, or enter the line; and what is foretold to them.

use super::{Cap, MAX_COST, Sample, State};
use crate::core::denial::Denial;
use crate::core::joint::JointPart;
use crate::core::queue::{Place, Waiter};
use crate::core::rovers::{Rovers, ahead, earlier};
use crate::core::wakes::ReleaseMark;
use crate::error::{Bound, ConsumeError, TryAcquireError};
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

/// A caller who wants to enter the line.
pub(crate) struct Arrival<'a> {
    pub(crate) place: Pin<&'a mut Place>,
    pub(crate) cost: u64,
    /// Taken if the caller has to wait; else left, to be dropped without the lock.
    pub(crate) waker: &'a mut Option<Waker>,
    /// The longest wait, in nanoseconds, that is worth beginning.
    pub(crate) allowed: Option<u64>,
    /// True if somebody will wake the caller when its time has come.
    pub(crate) driven: bool,
}

impl State {
    /// Grants `cost` tokens now if nobody waits and they are there, and says what remains.
    pub(crate) fn admit(&mut self, rovers: &Rovers, cost: u64) -> Option<u64> {
        if !self.queue.is_empty() || self.supply.is_paused() {
            return None;
        }
        let limit = self.supply.limit();
        let ticket = rovers.try_claim_owned(cost, limit)?;
        self.supply.claim(cost);
        Some(ahead(limit, ticket).max(0) as u64)
    }

    /// The same from beginning to end, where there is nobody to serve: what `settle`, `admit` and `finish` come to then.
    pub(crate) fn fast_admit(&mut self, rovers: &Rovers, cost: u64, sample: Sample) -> Option<u64> {
        if self.closed || !self.queue.is_empty() || self.has_parent() {
            return None;
        }
        #[cfg(feature = "redis")]
        if self.is_hungry(rovers) {
            return None;
        }
        self.forget_denial(rovers);
        self.supply.mint(sample.now, None);
        self.refresh_ceiling(rovers, &mut ReleaseMark::default());
        self.observe(rovers, sample);
        // `admit` and `publish` with one look at the limit and none at the line: of the exact path, where each call comes here,
        // it is a part that can be measured.
        if self.supply.is_paused() {
            return None;
        }
        let limit = self.supply.limit();
        let ticket = rovers.try_claim_owned(cost, limit)?;
        self.supply.claim(cost);
        rovers.publish(earlier(limit, rovers.tail().wrapping_add(self.stride.tokens)), limit);
        Some(ahead(limit, ticket).max(0) as u64)
    }

    /// Joins the end of a line that its driver looks after, or says that this has to be done with all due form: nothing moves
    /// but the tail, and what `settle` and `finish` would do is the driver's. That is not only cheaper: a long line that
    /// is served by each who comes is served one by one.
    pub(crate) fn enqueue_fast(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        cost: u64,
        waker: &mut Option<Waker>,
    ) -> bool {
        // The keeper of a shared line is told of each who waits.
        #[cfg(feature = "redis")]
        if self.supply.planner().is_some() {
            return false;
        }
        let can_wait = !self.queue.is_empty() && cost > 0 && self.check_queue(true).is_ok();
        if !can_wait || self.check_claim(rovers, cost).is_err() {
            return false;
        }
        let Some(waker) = waker.take() else { return false };
        self.enter(rovers, place, cost, waker, None);
        true
    }

    /// Whether nobody has served the line for `patience` since something was due.
    pub(crate) fn is_overdue(&self, now: u64, patience: u64) -> bool {
        now >= self.last_due.max(self.last_served).saturating_add(patience)
    }

    /// Whether `admit` would grant `cost` tokens, if the fast path is closed.
    pub(crate) fn can_admit(&self, rovers: &Rovers, cost: u64) -> bool {
        !self.closed && (cost == 0 || cost <= self.available(rovers))
    }

    pub(crate) fn try_acquire(&mut self, rovers: &Rovers, cost: u64, now: u64) -> Result<u64, TryAcquireError> {
        if self.closed {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(self.available(rovers));
        }
        let most = self.most_at_once();
        if cost > most {
            return Err(TryAcquireError::TooLarge { cost, most });
        }
        if let Some(remaining) = self.admit(rovers, cost) {
            return Ok(remaining);
        }
        #[cfg(feature = "redis")]
        if self.misses(rovers, cost) {
            return Err(TryAcquireError::Unreachable);
        }
        let denial = self.deny(rovers, cost);
        rovers.last_denial().keep(&denial);
        self.denied = true;
        Err(TryAcquireError::Denied(denial.as_of(now)))
    }

    fn deny(&mut self, rovers: &Rovers, cost: u64) -> Denial {
        // The answer is about the claims we know of: not of those that were made without the lock since the sample.
        let (tail, by, until) = if let Some(front) = self.queue.front() {
            let knows_all = self.supply.claimed() == front.start();
            (rovers.tail(), Bound::Queue, if knows_all { self.due() } else { 0 })
        } else {
            let end = rovers.tail().wrapping_add(cost);
            (self.supply.claimed(), self.supply.obstacle(end), self.supply.next_mint())
        };
        let until = if self.supply.is_paused() { until.min(self.supply.gate()) } else { until };
        let at = if self.fits_in_flight(rovers, cost) { self.foretell(rovers, cost) } else { None };
        let at = at.map(|at| if at <= self.supply.synced() { 0 } else { at });
        let released = self.cap.as_ref().map_or(0, Cap::word);
        Denial { cost, tail, released, until, at, remaining: self.available(rovers), by }
    }

    /// Whether the cap leaves room for `cost` tokens behind everybody who waits.
    pub(super) fn fits_in_flight(&self, rovers: &Rovers, cost: u64) -> bool {
        let in_flight = self.in_flight(rovers);
        in_flight.is_none_or(|(flying, cap)| flying.saturating_add(self.queue.tokens()).saturating_add(cost) <= cap)
    }

    /// Grants at once, saying what remains, or enters the line: `Ok(None)` means that `arrival.place` now waits.
    pub(crate) fn arrive(
        &mut self,
        rovers: &Rovers,
        arrival: Arrival<'_>,
        now: u64,
    ) -> Result<Option<u64>, ConsumeError> {
        let result = self.arrive_uncounted(rovers, arrival, now);
        self.totals.refused += u64::from(result.is_err());
        result
    }

    fn arrive_uncounted(
        &mut self,
        rovers: &Rovers,
        arrival: Arrival<'_>,
        now: u64,
    ) -> Result<Option<u64>, ConsumeError> {
        let cost = arrival.cost;
        self.check_claim(rovers, cost)?;
        if cost == 0 {
            return Ok(Some(self.available(rovers)));
        }
        if !self.has_parent()
            && let Some(remaining) = self.admit(rovers, cost)
        {
            return Ok(Some(remaining));
        }
        self.check_queue(arrival.driven)?;
        #[cfg(feature = "redis")]
        if self.is_cut_off(self.claims(rovers).wrapping_add(cost)) {
            return Err(ConsumeError::Unreachable);
        }
        if let Some(allowed) = arrival.allowed {
            self.check_in_time(rovers, cost, now, allowed)?;
        }
        let waker = arrival.waker.take().expect("an arrival brings a waker");
        self.enter(rovers, arrival.place, cost, waker, None);
        Ok(None)
    }

    /// Whether `cost` tokens can be claimed at all.
    pub(crate) fn check_claim(&self, rovers: &Rovers, cost: u64) -> Result<(), ConsumeError> {
        if self.closed {
            return Err(ConsumeError::Closed);
        }
        let most = self.most_claimable(rovers);
        if cost > most { Err(ConsumeError::TooLarge { cost, most }) } else { Ok(()) }
    }

    /// Whether one more may wait; `driven` says whether somebody will serve the line for it.
    pub(crate) fn check_queue(&self, driven: bool) -> Result<(), ConsumeError> {
        let waiting = self.queue.len();
        if waiting >= self.max_waiting {
            return Err(ConsumeError::QueueFull { waiting });
        }
        if driven { Ok(()) } else { Err(ConsumeError::NoRuntime) }
    }

    /// Joins the end of the line.
    pub(crate) fn enter(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        cost: u64,
        waker: Waker,
        part: Option<Box<JointPart>>,
    ) {
        let ticket = rovers.claim(cost);
        self.queue.push(place, Waiter { waker, ticket, cost, skip: 0, part });
    }

    fn check_in_time(&mut self, rovers: &Rovers, cost: u64, now: u64, allowed: u64) -> Result<(), ConsumeError> {
        let estimate = self.foretell(rovers, cost).map_or(Duration::ZERO, |at| self.wait(at, now));
        let allowed = Duration::from_nanos(allowed);
        if estimate > allowed { Err(ConsumeError::TooLate { estimate, allowed }) } else { Ok(()) }
    }

    /// The most that the in-flight cap lets one claim have.
    fn most_in_flight(&self) -> u64 {
        self.cap.as_ref().map_or(u64::MAX, |cap| cap.tokens)
    }

    /// The most that can be had without waiting.
    pub(super) fn most_at_once(&self) -> u64 {
        self.supply.most_at_once().min(self.most_in_flight())
    }

    /// The most that one claim can ask for.
    pub(super) fn most_claimable(&self, rovers: &Rovers) -> u64 {
        let most = MAX_COST.min(self.most_in_flight()).min(self.room(rovers));
        #[cfg(feature = "redis")]
        let most = self.supply.planner().map_or(most, |planner| most.min(planner.terms().most_claimed()));
        most
    }
}
