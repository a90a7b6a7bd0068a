//! Coming: claims that are granted, denied, or enter the line; and what is foretold to them.

use super::{Cap, MOST_COST, Sample, State};
use crate::denial::Denial;
use crate::error::{Bound, ConsumeError, TryAcquireError};
use crate::knot::Strand;
use crate::queue::{Place, Waiter};
use crate::rovers::{Rovers, ahead, earlier};
use crate::supply::Supply;
use crate::wakes::Landed;
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
        if !self.line.is_empty() || self.supply.is_paused() {
            return None;
        }
        let limit = self.supply.limit();
        let ticket = rovers.try_claim_owned(cost, limit)?;
        self.supply.claim(cost);
        Some(ahead(limit, ticket).max(0) as u64)
    }

    /// The same from beginning to end, where there is nobody to serve: what `settle`, `admit` and `finish` come to then.
    pub(crate) fn admit_idle(&mut self, rovers: &Rovers, cost: u64, sample: Sample) -> Option<u64> {
        if self.closed || !self.line.is_empty() || self.is_roofed() {
            return None;
        }
        #[cfg(feature = "redis")]
        if self.is_hungry(rovers) {
            return None;
        }
        self.forget_denial(rovers);
        self.supply.mint(sample.now, None);
        self.refresh_ceiling(rovers, &mut Landed::default());
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
    pub(crate) fn join_quietly(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        cost: u64,
        waker: &mut Option<Waker>,
    ) -> bool {
        // The keeper of a shared line is told of each who waits.
        #[cfg(feature = "redis")]
        if self.supply.feed().is_some() {
            return false;
        }
        // Whether a joint claim is in its way is to be looked at.
        let can_wait =
            self.line.front().is_some() && self.line.parts().is_none() && cost > 0 && self.check_line(true).is_ok();
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
        let (tail, by, until) = if !self.line.is_empty() {
            let knows_all = self.supply.claimed() == self.next_start(rovers);
            (rovers.tail(), Bound::Line, if knows_all { self.due() } else { 0 })
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
        in_flight.is_none_or(|(flying, cap)| {
            flying.saturating_add(self.line.tokens() + self.line.part_tokens()).saturating_add(cost) <= cap
        })
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
        if !self.is_roofed()
            && let Some(remaining) = self.admit(rovers, cost)
        {
            return Ok(Some(remaining));
        }
        self.check_line(arrival.driven)?;
        #[cfg(feature = "redis")]
        if self.is_cut_off(self.claims(rovers).wrapping_add(cost)) {
            return Err(ConsumeError::Unreachable);
        }
        if let Some(allowed) = arrival.allowed {
            self.check_in_time(rovers, cost, now, allowed)?;
        }
        let waker = arrival.waker.take().expect("an arrival brings a waker");
        self.catch_up(rovers, now);
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
    pub(crate) fn check_line(&self, driven: bool) -> Result<(), ConsumeError> {
        let waiting = self.line.len();
        if waiting >= self.max_waiting {
            return Err(ConsumeError::LineFull { waiting });
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
        strand: Option<Box<Strand>>,
    ) {
        let ticket = rovers.claim(cost);
        self.line.push(place, Waiter { waker, ticket, cost, skip: 0, strand });
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
    fn most_claimable(&self, rovers: &Rovers) -> u64 {
        let most = MOST_COST.min(self.most_in_flight()).min(self.room(rovers));
        #[cfg(feature = "redis")]
        let most = self.supply.feed().map_or(most, |feed| most.min(feed.terms().most_claimed()));
        most
    }

    /// The instant at which a claim of `cost` made now would be granted, by the schedule alone: the ceiling is left
    /// out. `None` if no clock can tell, or not this line alone.
    ///
    /// Costs as many steps as there are waiters, unless one continuous quota (up to a token per nanosecond) is all
    /// there is, or nobody waits.
    pub(crate) fn foretell(&mut self, rovers: &Rovers, cost: u64) -> Option<u64> {
        if self.line.is_tied() || self.is_roofed() && !self.line.is_empty() {
            return None;
        }
        let end = rovers.tail().wrapping_add(cost);
        if self.line.is_empty() || self.supply.is_straight() {
            return self.supply.scheduled(end.wrapping_sub(self.totals.holes));
        }
        let mut ahead = self.rare().scratch.take().unwrap_or_else(|| self.supply.clone());
        ahead.clone_from(&self.supply);
        let at = self.run_ahead(rovers, &mut ahead).and_then(|()| ahead.scheduled(end));
        self.rare().scratch = Some(ahead);
        at
    }

    /// How long a claim of `cost` made now would wait.
    pub(crate) fn estimate(&mut self, rovers: &Rovers, cost: u64, now: u64) -> Option<Duration> {
        if self.closed || cost > self.most_claimable(rovers) {
            return None;
        }
        if cost == 0 {
            return Some(Duration::ZERO);
        }
        self.foretell(rovers, cost).map(|at| self.wait(at, now))
    }

    /// How long it is until `at`. What could pass by now need not wait until a clock that stepped back has caught up.
    fn wait(&self, at: u64, now: u64) -> Duration {
        Duration::from_nanos(if at <= self.supply.synced() { 0 } else { at.saturating_sub(now) })
    }

    /// Serves the whole line in `ahead`, as `serve` would in time.
    pub(super) fn run_ahead(&self, rovers: &Rovers, ahead: &mut Supply) -> Option<()> {
        let mut line = self.line.iter().peekable();
        while let Some(waiter) = line.next() {
            let next = line.peek().map_or_else(|| rovers.tail(), |next| next.start());
            ahead.mint(ahead.scheduled(waiter.ticket)?, Some(waiter.ticket));
            ahead.pass(waiter.stretch(), next);
        }
        Some(())
    }
}
