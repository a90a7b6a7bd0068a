//! Under a roof, and as a roof; see `core/parent_link.rs`.

use super::State;
use crate::core::queue::Outcome;
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;
use crate::error::{Bound, Denied, TryAcquireError};
use std::time::Duration;

impl State {
    /// What the front claims, if it is ready and has no envoy yet.
    pub(crate) fn ready_front(&self) -> Option<u64> {
        let front = self.queue.front().filter(|front| self.has_parent && front.part.is_none())?;
        let due = self.supply.due(front.ticket)?;
        (due <= self.supply.synced()).then_some(front.cost)
    }

    /// Whether something is to be done in the roof's line for the front here, or for one that is gone.
    pub(crate) fn wants_parent(&self) -> bool {
        self.has_parent && (self.ticket_recalled || self.ready_front().is_some())
    }

    /// Whether the envoy in the roof's line is to leave it. To be asked by who then sees to it.
    pub(crate) fn take_ticket_recall(&mut self) -> bool {
        std::mem::take(&mut self.ticket_recalled) && self.queue.front().is_none_or(|front| front.part.is_none())
    }

    /// Grants the claim of the [ready front](Self::ready_front), which the roof has granted, at its own instant: that its
    /// timer was late is not the key's loss.
    pub(crate) fn grant_front(&mut self, rovers: &Rovers, now: u64, wakes: &mut Wakes) {
        let Some(ticket) = self.front_ticket() else { return };
        let at = self.supply.synced();
        self.supply.mint(at, Some(ticket));
        self.totals.lateness = self.totals.lateness.max(now.saturating_sub(at));
        let remaining = self.left_behind(ticket);
        self.call_front(rovers, Outcome::Granted { remaining }, wakes);
    }

    /// How many tokens this line can hold at most, if those are fewer than `cost`.
    pub(crate) fn overruns(&self, rovers: &Rovers, cost: u64) -> Option<u64> {
        Some(self.room(rovers)).filter(|room| *room < cost)
    }

    /// Turns the [ready front](Self::ready_front) away, which has no envoy.
    pub(crate) fn turn_front_away(&mut self, rovers: &Rovers, outcome: Outcome, wakes: &mut Wakes) {
        if self.ready_front().is_some() {
            self.call_front(rovers, outcome, wakes);
        }
    }

    /// How long a claim of `cost` that comes in `delay`, if nobody else comes meanwhile, will have waited by then, counted
    /// from now. `None` as in [`estimate`](Self::estimate).
    pub(crate) fn estimate_later(&mut self, rovers: &Rovers, cost: u64, now: u64, delay: Duration) -> Option<Duration> {
        if cost == 0 || delay.is_zero() || self.queue.is_joint() {
            return self.estimate(rovers, cost, now).map(|wait| wait.max(delay));
        }
        self.estimate(rovers, cost, now)?;
        let comes = now.checked_add(u64::try_from(delay.as_nanos()).ok()?)?;
        let mut ahead = self.foresee(rovers)?.clone();
        ahead.mint(comes.max(ahead.synced()), None);
        let at = ahead.scheduled(rovers.tail().wrapping_add(cost))?;
        Some(Duration::from_nanos(at.saturating_sub(now)).max(delay))
    }

    /// What a line under this one says in the end that has denied `cost` tokens: both have to grant them.
    pub(crate) fn deny_too(&mut self, rovers: &Rovers, cost: u64, now: u64, denied: Denied) -> TryAcquireError {
        if self.closed {
            return TryAcquireError::Closed;
        }
        let most = self.most_at_once();
        if cost > most {
            return TryAcquireError::TooLarge { cost, most };
        }
        let fits = self.fits_in_flight(rovers, cost);
        let later = |delay| if fits { self.estimate_later(rovers, cost, now, delay) } else { None };
        let retry_after = denied.retry_after.and_then(later);
        let by = if retry_after == denied.retry_after { denied.by } else { Bound::Parent };
        Denied { retry_after, remaining: denied.remaining.min(self.available(rovers)), by }.into()
    }

    /// What this limiter refuses, as a line says it under it that has `remaining` tokens.
    pub(crate) fn as_parent(error: TryAcquireError, remaining: u64) -> TryAcquireError {
        match error {
            TryAcquireError::Denied(denied) => {
                Denied { by: Bound::Parent, remaining: remaining.min(denied.remaining), ..denied }.into()
            }
            error => error,
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use crate::{Limiter, Quota};

    #[test]
    fn what_just_fits_overruns_nothing() {
        let limiter = Limiter::new(Quota::per_second(1)).unwrap();
        limiter.core().with(|state, rovers, _| {
            let room = state.room(rovers);
            assert_eq!(state.overruns(rovers, room), None);
            assert_eq!(state.overruns(rovers, room + 1), Some(room));
        });
    }
}
