//! Arriving claims: granted, denied, or entered into the queue; and their estimated waits.

use super::{Cap, MAX_COST, Role, Sample, State};
use crate::core::Core;
use crate::core::classes::{ClassId, ROOT};
use crate::core::denial::Denial;
use crate::core::queue::{Place, Waiter};
use crate::core::rovers::{Rovers, ahead, earlier};
use crate::error::{Bound, ConsumeError, TryAcquireError};
use crate::observe::GrantWord;
use std::pin::Pin;
use std::sync::Weak;
use std::task::Waker;
use std::time::Duration;

/// A caller that wants to enter the queue.
pub(crate) struct Arrival<'a> {
    pub(crate) place: Pin<&'a mut Place>,
    pub(crate) cost: u64,
    /// The class in which it waits.
    pub(crate) class: ClassId,
    /// Taken if the caller has to wait. Otherwise it stays here, and the caller drops it without the lock.
    pub(crate) waker: &'a mut Option<Waker>,
    /// The longest wait that the caller accepts, in nanoseconds.
    pub(crate) allowed: Option<u64>,
    /// True if a driver will serve the queue when the caller's claim is due.
    pub(crate) driven: bool,
    /// The time that the caller read.
    pub(crate) now: u64,
}

impl State {
    /// Grants `cost` tokens now if no waiter waits and they are available.
    #[inline(always)]
    pub(crate) fn admit(&mut self, rovers: &Rovers, cost: u64) -> Option<GrantWord> {
        if !self.is_clear() || self.supply.is_paused() {
            return None;
        }
        let limit = self.supply.limit();
        let ticket = rovers.try_claim_owned(cost, limit)?;
        self.supply.claim(cost);
        Some(GrantWord::plain(ahead(limit, ticket).max(0) as u64))
    }

    /// Grants `cost` tokens in one pass if the queue is empty: combines `settle`, `admit` and `finish` for that case.
    pub(crate) fn fast_admit(&mut self, rovers: &Rovers, cost: u64, sample: Sample) -> Option<GrantWord> {
        // A joint claim that is due comes first.
        if self.closed || !self.queue.is_empty() || self.queue.has_joint() && self.has_due_front(sample.now) {
            return None;
        }
        if !self.role.is_plain() {
            if self.role.has(Role::CHILD | Role::AWAITS | Role::DRY_RUN)
                || cost > self.max_cost()
                || self.supply.aside() > 0
                || self.is_hungry(rovers)
            {
                return None;
            }
            if self.role.has(Role::SPECIAL_WORDS) {
                return self.fast_admit_in_period(rovers, cost, sample);
            }
        }
        self.fast_admit_plain(rovers, cost, sample)
    }

    /// The way of a limiter with a calendar or a sliding quota.
    #[inline(never)]
    fn fast_admit_in_period(&mut self, rovers: &Rovers, cost: u64, sample: Sample) -> Option<GrantWord> {
        self.look_at_wall(sample.now);
        let word = self.fast_admit_plain(rovers, cost, sample)?;
        Some(self.with_instant(word))
    }

    #[inline(always)]
    fn fast_admit_plain(&mut self, rovers: &Rovers, cost: u64, sample: Sample) -> Option<GrantWord> {
        self.forget_denial(rovers);
        self.supply.mint(sample.now, None);
        self.refresh_ceiling(rovers);
        self.note_sample(rovers, sample);
        // This combines `admit` and `publish`, reads the limit once, and does not look at the queue. The difference is
        // measurable on the exact path, where every call comes here.
        if self.supply.is_paused() {
            return None;
        }
        let limit = self.supply.limit();
        let ticket = rovers.try_claim_owned(cost, limit)?;
        self.supply.claim(cost);
        rovers.publish(earlier(limit, rovers.tail().wrapping_add(self.stride.tokens)), limit);
        Some(GrantWord::plain(ahead(limit, ticket).max(0) as u64))
    }

    /// Joins the end of a queue that its driver serves. Only the tail moves; the driver does the work of `settle` and
    /// `finish`. Returns false if the caller has to take the full path instead.
    ///
    /// This is cheaper, and it keeps batches together: a long queue that every newcomer serves is served one waiter at
    /// a time.
    pub(crate) fn enqueue_fast(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        cost: u64,
        waker: &mut Option<Waker>,
    ) -> bool {
        // The task of a source must learn of each waiter, and a dry run of each claim.
        if self.role.has(Role::DRY_RUN | Role::SOURCE) {
            return false;
        }
        let can_wait = !self.queue.is_empty() && cost > 0 && self.check_queue(true).is_ok();
        if !can_wait || self.check_claim(rovers, cost).is_err() {
            return false;
        }
        let Some(waker) = waker.take() else { return false };
        self.enter(rovers, place, ROOT, cost, waker, None);
        true
    }

    /// Whether the queue has not been served for `delay` nanoseconds although something was due.
    pub(crate) fn is_overdue(&self, now: u64, delay: u64) -> bool {
        now >= self.last_due.max(self.last_served).saturating_add(delay)
    }

    /// Grants `cost` tokens to a class now, or in a limiter without classes, if no claim is ahead of this one and they are
    /// there.
    #[inline(always)]
    pub(crate) fn admit_in(&mut self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<GrantWord> {
        if self.role.has(Role::CLASSES) { self.admit_class(rovers, class, cost) } else { self.admit(rovers, cost) }
    }

    /// Whether [`admit_in`](Self::admit_in) would grant `cost` tokens, provided that the fast path is closed.
    pub(crate) fn can_admit(&mut self, rovers: &Rovers, class: ClassId, cost: u64) -> bool {
        if self.is_closed(class) || cost == 0 {
            return !self.is_closed(class);
        }
        cost <= self.max_cost().min(self.available_in(rovers, class))
    }

    pub(crate) fn try_acquire(
        &mut self,
        rovers: &Rovers,
        class: ClassId,
        cost: u64,
        now: u64,
    ) -> Result<GrantWord, TryAcquireError> {
        let word = if self.role.has(Role::DRY_RUN) {
            self.try_acquire_in_dry_run(rovers, cost, now)?
        } else {
            self.try_acquire_enforced(rovers, class, cost, now)?
        };
        Ok(self.with_instant(word))
    }

    /// Grants or denies `cost` tokens. A dry run does not learn of the call.
    pub(super) fn try_acquire_enforced(
        &mut self,
        rovers: &Rovers,
        class: ClassId,
        cost: u64,
        now: u64,
    ) -> Result<GrantWord, TryAcquireError> {
        if self.is_closed(class) {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(GrantWord::plain(self.available_in(rovers, class)));
        }
        if let Some(error) = self.too_large_at_once(class, cost) {
            return Err(error);
        }
        let admitted = self.admit_in(rovers, class, cost);
        admitted.ok_or_else(|| self.deny(rovers, class, cost, now))
    }

    /// Why `cost` tokens are not granted at once, although the class or the limiter alone could perhaps grant them.
    pub(crate) fn refuse(&mut self, rovers: &Rovers, class: ClassId, cost: u64, now: u64) -> TryAcquireError {
        if self.is_closed(class) {
            return TryAcquireError::Closed;
        }
        let too_large = self.too_large_at_once(class, cost);
        too_large.unwrap_or_else(|| self.deny(rovers, class, cost, now))
    }

    /// The error of a claim that [`admit_in`](Self::admit_in) did not grant.
    fn deny(&mut self, rovers: &Rovers, class: ClassId, cost: u64, now: u64) -> TryAcquireError {
        if let Some(why) = self.note_miss(rovers, cost) {
            return why.into();
        }
        if self.role.has(Role::CLASSES) {
            return self.deny_class(rovers, class, cost, now).into();
        }
        let denial = self.deny_in_queue(rovers, cost);
        rovers.last_denial().keep(&denial);
        self.denied = true;
        denial.as_of(now).into()
    }

    fn deny_in_queue(&mut self, rovers: &Rovers, cost: u64) -> Denial {
        // The denial is about the claims known here, not about claims made without the lock since the sample.
        let (tail, by, until) = if !self.is_clear() {
            let knows_all = self.supply.claimed() == self.base(rovers);
            (rovers.tail(), Bound::Queue, if knows_all { self.due(rovers) } else { 0 })
        } else {
            let end = rovers.tail().wrapping_add(cost);
            (self.supply.claimed(), self.supply.obstacle(end), self.supply.next_mint())
        };
        let until = if self.supply.is_paused() { until.min(self.supply.gate()) } else { until };
        // The wall clock may be set: a calendar is read again in time.
        let until = until.min(self.fresh_until());
        let at = if self.fits_in_flight(rovers, cost) { self.predict(rovers, ROOT, cost) } else { None };
        let at = at.map(|at| if at <= self.supply.synced() { 0 } else { at });
        let released = self.cap.as_ref().map_or(0, Cap::word);
        Denial { cost, tail, released, until, at, remaining: self.available(rovers), by, name: self.quota_name(by) }
    }

    /// Whether the cap leaves space for `cost` tokens behind all waiters.
    pub(super) fn fits_in_flight(&self, rovers: &Rovers, cost: u64) -> bool {
        let in_flight = self.in_flight(rovers);
        in_flight.is_none_or(|(in_flight, cap)| in_flight.saturating_add(self.costs()).saturating_add(cost) <= cap)
    }

    /// Grants at once, or enters the queue: `Ok(None)` means that `arrival.place` now waits.
    pub(crate) fn arrive(&mut self, rovers: &Rovers, arrival: Arrival<'_>) -> Result<Option<GrantWord>, ConsumeError> {
        let is_dry = self.role.has(Role::DRY_RUN);
        let result =
            if is_dry { self.arrive_in_dry_run(rovers, arrival) } else { self.arrive_uncounted(rovers, arrival) };
        self.totals.refused += u64::from(result.is_err());
        Ok(result?.map(|word| self.with_instant(word)))
    }

    pub(super) fn arrive_uncounted(
        &mut self,
        rovers: &Rovers,
        arrival: Arrival<'_>,
    ) -> Result<Option<GrantWord>, ConsumeError> {
        let Arrival { place, cost, class, now, .. } = arrival;
        self.check_claim(rovers, cost)?;
        if self.is_closed(class) {
            return Err(ConsumeError::Closed);
        }
        if cost == 0 {
            return Ok(Some(GrantWord::plain(self.available_in(rovers, class))));
        }
        if !self.role.has(Role::CHILD) {
            if let Some(word) = self.admit_in(rovers, class, cost) {
                return Ok(Some(word));
            }
        }
        self.check_queue_of(class, arrival.driven)?;
        if let Some(why) = self.cut_off(rovers.tail().wrapping_add(cost)) {
            return Err(why.into());
        }
        if let Some(allowed) = arrival.allowed {
            self.check_in_time(rovers, class, cost, now, allowed)?;
        }
        let waker = arrival.waker.take().expect("an arrival has a waker");
        self.enter(rovers, place, class, cost, waker, None);
        if self.role.has(Role::SOURCE) {
            if let Some((allowed, source)) = arrival.allowed.zip(self.supply.source_mut()) {
                source.note_deadline(now.saturating_add(allowed));
            }
        }
        Ok(None)
    }

    /// Whether `cost` tokens can be claimed at all.
    #[inline(always)]
    pub(crate) fn check_claim(&self, rovers: &Rovers, cost: u64) -> Result<(), ConsumeError> {
        if self.closed {
            return Err(ConsumeError::Closed);
        }
        let most = self.most_claimable(rovers);
        if cost > most { Err(self.too_large(cost, most)) } else { Ok(()) }
    }

    /// Whether one more claim may wait. `driven` tells whether a driver will serve the queue for it.
    pub(crate) fn check_queue(&self, driven: bool) -> Result<(), ConsumeError> {
        let waiting = self.queue.len();
        if self.queue.is_full() {
            return Err(ConsumeError::QueueFull { waiting });
        }
        if driven { Ok(()) } else { Err(ConsumeError::NoRuntime) }
    }

    /// Joins the end of the queue, or of that of a class; as a proxy of `child`, if it is set.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        rovers: &Rovers,
        place: Pin<&mut Place>,
        class: ClassId,
        cost: u64,
        waker: Waker,
        child: Option<Weak<Core>>,
    ) {
        let number = self.take_number();
        let waiter = Waiter { waker, number, cost, debt_after: 0, child };
        if self.role.has(Role::SOURCE) {
            let since = self.supply.synced();
            self.supply.source_mut().into_iter().for_each(|source| source.note_wait(number, since));
        }
        if self.role.has(Role::CLASSES) {
            return self.enter_class(rovers, place, class, waiter);
        }
        rovers.claim(cost);
        self.queue.push(place, waiter);
    }

    /// Whether a claim of `cost` made now waits for at most `allowed` nanoseconds.
    pub(crate) fn check_in_time(
        &mut self,
        rovers: &Rovers,
        class: ClassId,
        cost: u64,
        now: u64,
        allowed: u64,
    ) -> Result<(), ConsumeError> {
        let allowed = Duration::from_nanos(allowed);
        if self.granted_by(rovers, class, cost).is_some_and(|at| self.wait(at, now) <= allowed) {
            return Ok(());
        }
        let at = self.predict(rovers, class, cost).or_else(|| self.not_before(rovers, class, cost));
        let Some(at) = at else { return Ok(()) };
        let estimate = self.wait(at, now);
        if estimate <= allowed {
            return Ok(());
        }
        if self.is_delayed_by_ceiling(class, rovers.tail().wrapping_add(cost), at) {
            let (by, quota_name) = (Bound::Ceiling, self.name_in_class(Bound::Ceiling, class, cost).text());
            return Err(ConsumeError::TooLate { estimate, allowed, by, quota_name });
        }
        Err(self.too_late(rovers, cost, estimate, allowed))
    }

    /// The refusal of a claim of `cost` that would wait for `estimate` behind all waiters.
    pub(crate) fn too_late(&self, rovers: &Rovers, cost: u64, estimate: Duration, allowed: Duration) -> ConsumeError {
        let by = self.supply.scheduled_obstacle(rovers.tail().wrapping_add(cost));
        ConsumeError::TooLate { estimate, allowed, by, quota_name: self.quota_name(by).text() }
    }

    /// The refusal of a claim of more than the `most` that can be claimed.
    #[cold]
    fn too_large(&self, cost: u64, most: u64) -> ConsumeError {
        let source = self.supply.source().filter(|(_, source)| source.most_claimed() <= most);
        let window = self.supply.smallest_window().filter(|(_, amount)| *amount <= most);
        let quota = source.map(|(index, _)| index).or(window.map(|(index, _)| index));
        let by = self.setting_of(most).or(quota.map(Bound::Quota));
        ConsumeError::TooLarge { cost, most, by, quota_name: by.and_then(|by| self.quota_name(by).text()) }
    }

    /// The largest claim that the in-flight cap, `max_cost` and a sliding quota allow.
    #[inline(always)]
    fn most_by_settings(&self) -> u64 {
        let most = self.cap.as_ref().map_or(u64::MAX, |cap| cap.tokens);
        if !self.role.has(Role::MAX_COST) {
            return most;
        }
        let window = self.supply.smallest_window().map_or(u64::MAX, |(_, amount)| amount);
        most.min(self.max_cost()).min(window)
    }

    /// The setting that allows no more than `most`, if there is one.
    pub(super) fn setting_of(&self, most: u64) -> Option<Bound> {
        let cap = self.cap.as_ref().map_or(u64::MAX, |cap| cap.tokens);
        let by = if self.max_cost() <= most { Bound::MaxCost } else { Bound::InFlight };
        (self.max_cost().min(cap) <= most).then_some(by)
    }

    /// The largest number of tokens that can be granted without a wait.
    pub(super) fn most_at_once(&self) -> u64 {
        self.supply.most_at_once().min(self.most_by_settings())
    }

    /// The largest claim that can be made.
    #[inline(always)]
    pub(super) fn most_claimable(&self, rovers: &Rovers) -> u64 {
        let most = MAX_COST.min(self.most_by_settings()).min(self.space_left(rovers));
        let source = if self.role.has(Role::SOURCE) { self.supply.source() } else { None };
        source.map_or(most, |(_, source)| most.min(source.most_claimed()))
    }
}
