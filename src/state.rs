//! Supply meets line, under the lock: serving, entering, leaving.
//!
//! The lock is `Shared::state`; every method here runs with it held and touches no waker beyond moving it. Time comes
//! in as a number that was read before the lock.

use crate::drivers::Drivers;
use crate::error::{Bound, ConfigError, ConsumeError, Denied, TryAcquireError};
use crate::knot::{Strand, Tie};
use crate::queue::{Left, Line, Outcome, Place, Waiter};
use crate::rovers::{Rovers, ahead, earlier};
use crate::supply::Supply;
use crate::wakes::Wakes;
use crate::{Quota, Which};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// The largest claim. Sixteen thousand of them, waiting or cancelled, fit between the rovers.
pub(crate) const MOST_COST: u64 = 1 << 48;
/// How far claims may overrun the tokens, so that wrapping differences stay far from overflowing.
const MOST_SPAN: i64 = 1 << 62;

/// The tail and the time, read in this order before the lock is taken: every claim up to `tail` was made by `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) tail: u64,
    pub(crate) now: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The line is served up to now.
    Done,
    /// Leave the lock, wake, read the time anew, and go on: there is no room for more wakers, or another line has decided
    /// about the front, at an instant that the time read before may not have reached.
    Again,
}

/// How far a line is brought whose front is ready and held by another line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To now, as every line: for whoever acts on the state.
    Now,
    /// To the instant at which it was ready, so that the grant can still have its own instant, and what is minted after
    /// that is not cut at the burst: for whoever only looks, or joins the end.
    Held,
}

enum Served {
    All,
    /// The front is held by another line, and nothing was minted past the instant at which it was ready.
    Held,
    Again,
}

enum Verdict {
    /// As of this instant.
    Grant(u64),
    TurnAway(Outcome),
    /// Ready since this instant, but another line is not.
    Held(u64),
    /// Another line has just decided.
    Again,
    Wait,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) line: Line,
    pub(crate) supply: Supply,
    pub(crate) drivers: Drivers,
    pub(crate) names: Box<[Option<Arc<str>>]>,
    pub(crate) cap: Option<Cap>,
    pub(crate) max_waiting: usize,
    pub(crate) closed: bool,
    pub(crate) stride: Stride,
    pub(crate) totals: Totals,
    /// Which of a keyed map's changes of quotas this line has come to know.
    #[cfg(feature = "keyed")]
    pub(crate) edition: u64,
    /// A copy of the supply in which `foretell` runs ahead; made when first needed, then reused.
    scratch: Option<Box<Supply>>,
}

/// The in-flight cap; its position is `Supply::ceiling`.
#[derive(Debug)]
pub(crate) struct Cap {
    pub(crate) tokens: u64,
    /// What was read of `Rovers::released` last.
    pub(crate) seen: u64,
    /// True while releases report to us: whenever somebody waits.
    pub(crate) watching: bool,
}

/// How far beyond the tail claims may go without reading the time.
///
/// 0, which makes every call exact, unless calls come so fast that a whole stride is eaten at over a token per
/// microsecond: then it doubles, up to a 64th of the smallest burst. A clock that stood still between two readings is a
/// test's clock, and tests must see exact numbers.
#[derive(Debug)]
pub(crate) struct Stride {
    pub(crate) tokens: u64,
    pub(crate) fixed: Option<u64>,
    /// Tail and time of the last reading.
    pub(crate) seen: Sample,
}

/// What no rover tells.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Where the rovers began.
    pub(crate) origin: u64,
    /// Positions the tail passed without anybody being granted them: cancelled and retracted.
    pub(crate) skipped: u64,
    /// Of these, cancelled claims that still lie behind a waiter.
    pub(crate) holes: u64,
    pub(crate) refunded: u64,
    pub(crate) refused: u64,
    /// The longest time, in nanoseconds, between an instant the schedule gave and its delivery.
    pub(crate) lateness: u64,
}

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
    pub(crate) fn new(supply: Supply, names: Box<[Option<Arc<str>>]>, cap: Option<u64>, origin: u64) -> Self {
        Self {
            line: Line::new(),
            supply,
            drivers: Drivers::default(),
            names,
            cap: cap.map(|tokens| Cap { tokens, seen: 0, watching: false }),
            max_waiting: usize::MAX,
            closed: false,
            stride: Stride { tokens: 0, fixed: None, seen: Sample { tail: origin, now: 0 } },
            totals: Totals { origin, ..Totals::default() },
            #[cfg(feature = "keyed")]
            edition: 0,
            scratch: None,
        }
    }

    // ---- serving ----------------------------------------------------------------------------------------------

    /// Brings everything up to `now`. To be called before acting on the state.
    pub(crate) fn settle(&mut self, rovers: &Rovers, now: u64, reach: Reach, wakes: &mut Wakes) -> Progress {
        loop {
            match self.serve(rovers, now, reach, wakes) {
                Served::Again => return Progress::Again,
                // Releases are for those who advance to now: they make it theirs.
                Served::Held => return Progress::Done,
                Served::All => {}
            }
            // The releases we read count from now on, not from when they were made: what they let through would
            // otherwise be granted in a past in which the ceiling was closed.
            if self.refresh_ceiling(rovers) == 0 {
                return Progress::Done;
            }
        }
    }

    /// After acting: serves the line again, publishes, and rouses the drivers whose alarms are too late.
    pub(crate) fn finish(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) -> Progress {
        let watching = self.cap.as_ref().is_some_and(|cap| cap.watching);
        if self.line.is_empty() && !watching {
            // The common case: nobody to serve, no alarm to set.
            self.supply.mint(now, None);
            self.publish(rovers);
            return Progress::Done;
        }
        if self.settle(rovers, now, Reach::Held, wakes) == Progress::Again {
            return Progress::Again;
        }
        self.publish(rovers);
        let due = self.due();
        if self.drivers.rouse(due, wakes) { Progress::Done } else { Progress::Again }
    }

    /// Serves the line in virtual time: each waiter at the very instant the schedule gives it.
    fn serve(&mut self, rovers: &Rovers, now: u64, reach: Reach, wakes: &mut Wakes) -> Served {
        let mut now = now;
        while let Some(front) = self.line.front() {
            now = now.max(self.supply.synced());
            let ticket = front.ticket;
            let verdict = self.verdict(front, now);
            match verdict {
                Verdict::Held(since) if reach == Reach::Held => {
                    self.supply.mint(since, Some(ticket));
                    return Served::Held;
                }
                Verdict::Held(_) | Verdict::Wait => {
                    self.supply.mint(now, Some(ticket));
                    return Served::All;
                }
                Verdict::Again => return Served::Again,
                _ if wakes.is_full() => return Served::Again,
                Verdict::Grant(at) => {
                    self.supply.mint(at, Some(ticket));
                    self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
                    self.call_front(rovers, Outcome::Granted { remaining: self.left_behind(ticket) }, wakes);
                }
                Verdict::TurnAway(outcome) => {
                    self.supply.mint(now, Some(ticket));
                    self.call_front(rovers, outcome, wakes);
                }
            }
        }
        self.supply.mint(now.max(self.supply.synced()), None);
        Served::All
    }

    /// What becomes of the front waiter by `now`.
    fn verdict(&self, front: &Waiter, now: u64) -> Verdict {
        if self.closed {
            return Verdict::TurnAway(Outcome::Closed);
        }
        let due = self.supply.due(front.ticket).filter(|at| *at <= now);
        let Some(strand) = &front.strand else { return due.map_or(Verdict::Wait, Verdict::Grant) };
        let tie = due.map_or_else(|| strand.unready(), |at| strand.ready(at));
        if tie != Tie::Held && strand.is_news() {
            return Verdict::Again;
        }
        match (tie, due) {
            // That instant has come, also where this clock has stepped back behind it.
            (Tie::Committed, _) => Verdict::Grant(strand.committed_at(now).max(self.supply.synced())),
            (Tie::Dead, _) => Verdict::TurnAway(Outcome::Untied),
            (Tie::Held, Some(since)) => Verdict::Held(since),
            (Tie::Held, None) => Verdict::Wait,
        }
    }

    /// Takes the front waiter out of the line, granted or turned away.
    fn call_front(&mut self, rovers: &Rovers, outcome: Outcome, wakes: &mut Wakes) {
        let waiter = self.line.call_front(outcome).expect("called only while somebody waits");
        self.totals.holes -= waiter.skip;
        if !matches!(outcome, Outcome::Granted { .. }) {
            self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
            self.fill_front(rovers, &waiter);
        } else {
            self.supply.pass(waiter.stretch(), self.next_start(rovers));
        }
        if let Some(strand) = waiter.strand {
            // A line that closes turns the claim away everywhere. In all other cases this changes nothing, and the
            // other lines must look: they hold the rest of it.
            strand.knot.kill();
            wakes.push_knot(strand.knot);
        }
        wakes.push(waiter.waker);
    }

    /// Where the front claim begins, or the next one would.
    fn next_start(&self, rovers: &Rovers) -> u64 {
        self.line.front().map_or_else(|| rovers.tail(), Waiter::start)
    }

    fn front_ticket(&self) -> Option<u64> {
        self.line.front().map(|front| front.ticket)
    }

    /// The instant at which the front waiter has to be looked at; `u64::MAX` if nobody waits or no clock can tell.
    pub(crate) fn due(&self) -> u64 {
        let due = self.front_ticket().and_then(|ticket| self.supply.due(ticket));
        // Due and still here: another line holds it, and will have this one look.
        due.filter(|at| *at > self.supply.synced()).unwrap_or(u64::MAX)
    }

    /// Reads what was released, raises the ceiling by it, and says how much that was. Whoever waits is told of every
    /// later release: it takes effect at its own instant then.
    fn refresh_ceiling(&mut self, rovers: &Rovers) -> u64 {
        let Some(cap) = &mut self.cap else { return 0 };
        let watch = !self.line.is_empty();
        let released = if watch && !cap.watching {
            rovers.watch_releases(&mut cap.seen)
        } else {
            if cap.watching && !watch {
                rovers.ignore_releases();
            }
            rovers.released_since(&mut cap.seen)
        };
        cap.watching = watch;
        self.supply.raise_ceiling(released);
        released
    }

    /// Tells the fast path how far it may go. While anybody waits that is not even to the tail.
    fn publish(&self, rovers: &Rovers) {
        let limit = self.supply.limit();
        let until = match self.line.front() {
            Some(front) => front.start(),
            None if self.closed || self.supply.is_paused() => rovers.tail(),
            None => rovers.tail().wrapping_add(self.stride.tokens),
        };
        rovers.publish(earlier(limit, until), limit);
    }

    /// Takes a reading of tail and time to heart, once the line is served up to it.
    pub(crate) fn observe(&mut self, rovers: &Rovers, sample: Sample) {
        self.supply.know_claimed(earlier(sample.tail, self.next_start(rovers)));
        let most = self.supply.least_burst() / 64;
        self.stride.adapt(sample, most);
    }

    /// Stops the fast path: what was published and not claimed is ours again.
    pub(crate) fn retract(&mut self, rovers: &Rovers) {
        let shift = rovers.retract();
        self.supply.shift(shift);
        self.totals.skipped = self.totals.skipped.wrapping_add(shift);
        self.stride.seen.tail = self.stride.seen.tail.wrapping_add(shift);
    }

    // ---- coming -----------------------------------------------------------------------------------------------

    /// How many tokens a claim that ends at `ticket` leaves behind.
    fn left_behind(&self, ticket: u64) -> u64 {
        ahead(self.supply.limit(), ticket).max(0) as u64
    }

    /// Grants `cost` tokens now if nobody waits and they are there, and says what remains.
    pub(crate) fn admit(&mut self, rovers: &Rovers, cost: u64) -> Option<u64> {
        if !self.line.is_empty() || self.supply.is_paused() {
            return None;
        }
        let ticket = rovers.try_claim_below(cost, self.supply.limit())?;
        self.supply.claim(cost);
        Some(self.left_behind(ticket))
    }

    /// Whether `admit` would grant `cost` tokens, if the fast path is closed.
    pub(crate) fn can_admit(&self, rovers: &Rovers, cost: u64) -> bool {
        !self.closed && (cost == 0 || cost <= self.available(rovers))
    }

    pub(crate) fn try_acquire(&mut self, rovers: &Rovers, cost: u64, now: u64) -> Result<u64, TryAcquireError> {
        let result = self.try_acquire_uncounted(rovers, cost, now);
        self.totals.refused += u64::from(result.is_err());
        result
    }

    fn try_acquire_uncounted(&mut self, rovers: &Rovers, cost: u64, now: u64) -> Result<u64, TryAcquireError> {
        if self.closed {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(self.available(rovers));
        }
        let most = self.supply.least_burst().min(self.most_in_flight());
        if cost > most {
            return Err(TryAcquireError::TooLarge { cost, most });
        }
        if let Some(remaining) = self.admit(rovers, cost) {
            return Ok(remaining);
        }
        let by =
            if self.line.is_empty() { self.supply.obstacle(rovers.tail().wrapping_add(cost)) } else { Bound::Line };
        let fits_in_flight = self
            .in_flight(rovers)
            .is_none_or(|(flying, cap)| flying.saturating_add(self.line.tokens()).saturating_add(cost) <= cap);
        let at = if fits_in_flight { self.foretell(rovers, cost) } else { None };
        let retry_after = at.map(|at| self.wait(at, now));
        Err(TryAcquireError::Denied(Denied { retry_after, remaining: self.available(rovers), by }))
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
        if let Some(remaining) = self.admit(rovers, cost) {
            return Ok(Some(remaining));
        }
        self.check_line(arrival.driven)?;
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

    /// The most that one claim can ask for.
    fn most_claimable(&self, rovers: &Rovers) -> u64 {
        MOST_COST.min(self.most_in_flight()).min(self.room(rovers))
    }

    /// How many more tokens may be claimed before the rovers are too far apart to be compared.
    fn room(&self, rovers: &Rovers) -> u64 {
        (MOST_SPAN - ahead(rovers.tail(), self.supply.limit())).max(0) as u64
    }

    /// The instant at which a claim of `cost` made now would be granted, by the schedule alone: the ceiling is left
    /// out. `None` if no clock can tell, or not this line alone.
    ///
    /// Costs as many steps as there are waiters, unless one continuous quota (up to a token per nanosecond) is all
    /// there is, or nobody waits.
    pub(crate) fn foretell(&mut self, rovers: &Rovers, cost: u64) -> Option<u64> {
        if self.line.is_tied() {
            return None;
        }
        let end = rovers.tail().wrapping_add(cost);
        if self.line.is_empty() || self.supply.is_straight() {
            return self.supply.scheduled(end.wrapping_sub(self.totals.holes));
        }
        let mut ahead = self.scratch.take().unwrap_or_else(|| Box::new(self.supply.clone()));
        (*ahead).clone_from(&self.supply);
        let at = self.run_ahead(rovers, &mut ahead).and_then(|()| ahead.scheduled(end));
        self.scratch = Some(ahead);
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
    fn run_ahead(&self, rovers: &Rovers, ahead: &mut Supply) -> Option<()> {
        let mut line = self.line.iter().peekable();
        while let Some(waiter) = line.next() {
            let next = line.peek().map_or_else(|| rovers.tail(), |next| next.start());
            ahead.mint(ahead.scheduled(waiter.ticket)?, Some(waiter.ticket));
            ahead.pass(waiter.stretch(), next);
        }
        Some(())
    }

    // ---- going ------------------------------------------------------------------------------------------------

    /// A future is done with its place, in whatever state. Says what it had been called out for and not seen; the
    /// waker is to be dropped without the lock.
    pub(crate) fn depart(&mut self, rovers: &Rovers, place: Pin<&mut Place>) -> (Option<Outcome>, Option<Waker>) {
        let waiter = match self.line.leave(place) {
            Left::Nothing => return (None, None),
            Left::Called(outcome) => return (Some(outcome), None),
            Left::Front(waiter) => {
                self.totals.holes -= waiter.skip;
                self.fill_front(rovers, &waiter);
                waiter
            }
            Left::Behind(waiter) => {
                self.totals.holes += waiter.cost;
                waiter
            }
        };
        self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
        (None, Some(waiter.waker))
    }

    /// A claim left from the front: jump over it now, and burn what it had saved above the burst.
    fn fill_front(&mut self, rovers: &Rovers, waiter: &Waiter) {
        self.supply.drop_front(waiter.stretch(), self.next_start(rovers));
    }

    // ---- afterwards -------------------------------------------------------------------------------------------

    /// `tokens` of a grant were not used, and are not in flight any more.
    pub(crate) fn give_back(&mut self, rovers: &Rovers, tokens: u64) {
        self.supply.refund(tokens);
        self.totals.refunded = self.totals.refunded.wrapping_add(tokens);
        if self.cap.is_some() {
            // Nobody need be told: we hold the lock, and look at the releases again before we leave it.
            rovers.release(tokens);
        }
    }

    /// Charges `tokens` on top of a grant, as a debt at the end of the line, and says how many of them it took: a
    /// debt that no rover could span is cut.
    pub(crate) fn charge(&mut self, rovers: &Rovers, tokens: u64) -> u64 {
        let tokens = tokens.min(MOST_COST).min(self.room(rovers));
        rovers.claim(tokens);
        if self.line.is_empty() {
            self.supply.claim(tokens);
        } else {
            self.supply.owe(tokens);
        }
        tokens
    }

    pub(crate) fn replenish(&mut self, tokens: u64) {
        self.supply.replenish(tokens, self.front_ticket());
    }

    // ---- changes ----------------------------------------------------------------------------------------------

    pub(crate) fn close(&mut self, rovers: &Rovers) {
        self.retract(rovers);
        self.closed = true;
    }

    pub(crate) fn pause_until(&mut self, rovers: &Rovers, gate: u64) {
        self.retract(rovers);
        self.supply.pause_until(gate);
    }

    pub(crate) fn set_quota(&mut self, rovers: &Rovers, which: Which<'_>, quota: Quota) -> Result<(), ConfigError> {
        let found = match which {
            Which::Index(index) => (index < self.names.len()).then_some(index),
            Which::Name(name) => self.names.iter().position(|known| known.as_deref() == Some(name)),
        };
        let count = self.names.len();
        let index = found.ok_or_else(|| ConfigError::UnknownQuota { which: which.to_string(), count })?;
        quota.check(index)?;
        self.retract(rovers);
        self.supply.set_quota(index, quota, self.front_ticket());
        self.stride.tokens = self.stride.tokens.min(self.supply.least_burst() / 64);
        Ok(())
    }

    pub(crate) fn set_max_in_flight(&mut self, rovers: &Rovers, tokens: u64) -> Result<(), ConfigError> {
        self.retract(rovers);
        let cap = self.cap.as_mut().ok_or(ConfigError::NotCapped)?;
        self.supply.change_cap(cap.tokens, tokens);
        cap.tokens = tokens;
        Ok(())
    }

    // ---- to look at -------------------------------------------------------------------------------------------

    /// What `try_acquire` could have now.
    pub(crate) fn available(&self, rovers: &Rovers) -> u64 {
        if self.closed || self.supply.is_paused() || !self.line.is_empty() {
            return 0;
        }
        ahead(self.supply.limit(), rovers.tail()).max(0) as u64
    }

    /// By how much claims overrun the tokens.
    pub(crate) fn deficiency(&self, rovers: &Rovers) -> u64 {
        let claims = rovers.tail().wrapping_sub(self.totals.holes);
        ahead(claims, self.supply.limit()).max(0) as u64
    }

    /// Tokens in flight, and the cap on them.
    pub(crate) fn in_flight(&self, rovers: &Rovers) -> Option<(u64, u64)> {
        let (cap, ceiling) = (self.cap.as_ref()?.tokens, self.supply.ceiling()?);
        let claims = rovers.tail().wrapping_sub(self.totals.holes).wrapping_sub(self.line.tokens());
        // A line that is held reads its releases late; they have landed all the same.
        let unread = self.cap.as_ref().map_or(0, |cap| rovers.released_since(&mut cap.seen.clone()));
        let flying = ahead(claims, ceiling.wrapping_sub(cap).wrapping_add(unread));
        Some((flying.max(0) as u64, cap))
    }

    /// Tokens granted since the beginning, those charged afterwards included, those refunded too.
    pub(crate) fn granted(&self, rovers: &Rovers) -> u64 {
        let Totals { origin, skipped, .. } = self.totals;
        rovers.tail().wrapping_sub(origin).wrapping_sub(skipped).wrapping_sub(self.line.tokens())
    }
}

impl Stride {
    fn adapt(&mut self, sample: Sample, most: u64) {
        let eaten = ahead(sample.tail, self.seen.tail).max(0) as u64;
        let elapsed = sample.now.saturating_sub(self.seen.now);
        let stood_still = elapsed == 0;
        // 1,000 ns per token: at a token per microsecond, reading the clock each time is about 2 % of the caller's
        // time and exactness is free; above it the clock begins to be the price.
        let fast = eaten.saturating_mul(1_000) >= elapsed && eaten >= self.tokens.max(1);
        self.tokens = match self.fixed {
            Some(fixed) => fixed,
            None if fast && !stood_still => (self.tokens * 2).max(1).min(most),
            None => 0,
        };
        self.seen = Sample { now: sample.now.max(self.seen.now), tail: sample.tail };
    }
}
