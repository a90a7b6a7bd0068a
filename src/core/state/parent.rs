//! The state's part of the link between a parent and its children; see `core/parent.rs`.

use super::{Role, State};
use crate::core::classes::ClassId;
use crate::core::outcome::Outcome;
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;
use crate::error::{Bound, Denied, TryAcquireError};
use std::time::Duration;

/// A keyed limiter with a parent, as the parent sees it.
pub(crate) trait ChildLimiter: Send + Sync {
    /// The parent was closed.
    fn close(&self);
}

/// The ticket that a queue has in the queue of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParentTicket {
    None,
    /// It stands for the front claim.
    OfFront,
    /// It stands for no claim any more, and has to be withdrawn.
    Recalled,
}

impl State {
    /// Whether a ticket stands for the front claim.
    pub(crate) fn front_has_ticket(&self) -> bool {
        self.ticket == ParentTicket::OfFront
    }

    /// The front claim leaves without a grant, or is not ready any more.
    pub(crate) fn recall_ticket(&mut self) {
        if self.front_has_ticket() {
            self.ticket = ParentTicket::Recalled;
        }
    }

    /// A ticket stands for the front claim from now on.
    pub(crate) fn note_ticket_entered(&mut self) {
        self.ticket = ParentTicket::OfFront;
    }

    /// The cost of the front claim, if it is ready and the parent has to grant it.
    pub(crate) fn ready_front(&self, rovers: &Rovers) -> Option<u64> {
        let front = self.queue.front().filter(|_| self.role.has(Role::CHILD))?;
        let due = self.supply.due(self.base(rovers).wrapping_add(front.cost))?;
        (due <= self.supply.synced()).then_some(front.cost)
    }

    /// The [ready front](Self::ready_front), if it has no ticket yet.
    pub(crate) fn ready_without_ticket(&self, rovers: &Rovers) -> Option<u64> {
        if self.front_has_ticket() { None } else { self.ready_front(rovers) }
    }

    /// Whether the parent's queue has to be changed, for the front claim here or for a claim that is gone.
    #[inline]
    pub(crate) fn wants_parent(&self, rovers: &Rovers) -> bool {
        self.role.has(Role::CHILD)
            && (self.ticket == ParentTicket::Recalled || self.ready_without_ticket(rovers).is_some())
    }

    /// Whether the ticket must be withdrawn from the parent's queue. The caller must do it: it is not said again.
    pub(crate) fn take_ticket_recall(&mut self) -> bool {
        let is_recalled = self.ticket == ParentTicket::Recalled;
        if is_recalled {
            self.ticket = ParentTicket::None;
        }
        is_recalled
    }

    /// Grants the claim of the [ready front](Self::ready_front), which the parent has granted, as of `at`. The caller read
    /// `now` from the clock.
    pub(crate) fn grant_ready_front(&mut self, rovers: &Rovers, at: u64, now: u64, wakes: &mut Wakes) {
        let ticket = self.front_ticket(rovers);
        self.ticket = ParentTicket::None;
        self.supply.mint(at, ticket);
        self.grant_front(rovers, ticket, at, now, wakes);
    }

    /// The largest number of tokens that this queue can still take, if it is less than `cost`.
    pub(crate) fn overruns(&self, rovers: &Rovers, cost: u64) -> Option<u64> {
        Some(self.space_left(rovers)).filter(|space| *space < cost)
    }

    /// Turns the [ready front](Self::ready_front) away.
    pub(crate) fn turn_front_away(&mut self, rovers: &Rovers, outcome: Outcome, wakes: &mut Wakes) {
        if self.ready_front(rovers).is_some() {
            self.call_front(rovers, outcome, wakes);
        }
    }

    /// How long a claim of `cost` will have waited, counted from now, if it arrives after `delay` and no other claim
    /// arrives before it. `None` as in [`estimate`](Self::estimate), and if claims wait in a parent with classes: the
    /// order in which the scheduler will serve them is known only after a simulation of all of them.
    pub(crate) fn estimate_later(
        &mut self,
        rovers: &Rovers,
        group: ClassId,
        cost: u64,
        now: u64,
        delay: Duration,
    ) -> Option<Duration> {
        if self.role.has(Role::CLASSES) {
            let is_known = self.queue.is_empty() && !self.queue.has_joint() && cost <= self.most_claimable(rovers);
            let at = if is_known { self.served_by(rovers, group, cost)? } else { return None };
            return Some(self.wait(at, now).max(delay));
        }
        if cost == 0 || delay.is_zero() || self.queue.has_joint() {
            return self.estimate(rovers, group, cost, now).map(|wait| wait.max(delay));
        }
        self.estimate(rovers, group, cost, now)?;
        let comes = now.checked_add(u64::try_from(delay.as_nanos()).ok()?)?;
        let (ahead, base) = self.forecast_supply(rovers)?;
        let mut ahead = ahead.clone();
        ahead.mint(comes.max(ahead.synced()), None);
        let at = ahead.scheduled(base.wrapping_add(cost))?;
        Some(Duration::from_nanos(at.saturating_sub(now)).max(delay))
    }

    /// The final answer to a `try_acquire` for `cost` tokens that a child has denied: parent and child both have to
    /// grant them.
    pub(crate) fn deny_too(
        &mut self,
        rovers: &Rovers,
        group: ClassId,
        cost: u64,
        now: u64,
        denied: Denied,
    ) -> TryAcquireError {
        if self.is_closed(group) {
            return TryAcquireError::Closed;
        }
        if let Some(error) = self.too_large_at_once(group, cost) {
            return State::as_parent(error, 0);
        }
        let fits = self.fits_in_flight(rovers, cost);
        let later = |delay| match (fits, self.role.has(Role::CLASSES)) {
            (false, _) => None,
            (true, true) => self.served_by(rovers, group, cost).map(|at| self.wait(at, now).max(delay)),
            (true, false) => self.estimate_later(rovers, group, cost, now, delay),
        };
        let retry_after = denied.retry_after.and_then(later);
        let remaining = denied.remaining.min(self.available_in(rovers, group));
        if retry_after == denied.retry_after {
            return Denied { remaining, ..denied }.into();
        }
        let end = rovers.tail().wrapping_add(cost);
        let below_ceilings = self.classes().map_or(0, |it| it.scheduler.tree.ceilings_have(it.entry(group).leaf, cost));
        let is_delayed = self.is_delayed_by_ceiling(group, end, below_ceilings);
        let by = if is_delayed { Bound::Ceiling } else { self.supply.obstacle(end) };
        let name = self.name_in_class(by, group, cost);
        Denied { retry_after, remaining, by: by.of_parent(), name }.into()
    }

    /// Translates a refusal of this limiter into the refusal that its child, which has `remaining` tokens, returns.
    pub(crate) fn as_parent(error: TryAcquireError, remaining: u64) -> TryAcquireError {
        match error {
            TryAcquireError::Denied(denied) => {
                let (by, remaining) = (denied.by.of_parent(), remaining.min(denied.remaining));
                Denied { by, remaining, ..denied }.into()
            }
            TryAcquireError::TooLarge { cost, most, by, quota_name } => {
                TryAcquireError::TooLarge { cost, most, by: by.of_parent(), quota_name }
            }
            error => error,
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use crate::{Limiter, Quota};

    #[test]
    fn a_claim_that_just_fits_does_not_overrun() {
        let limiter = Limiter::new(Quota::per_second(1)).unwrap();
        limiter.core().with(|state, rovers, _| {
            let space = state.space_left(rovers);
            assert_eq!(state.overruns(rovers, space), None);
            assert_eq!(state.overruns(rovers, space + 1), Some(space));
        });
    }
}
