//! Going, paying afterwards, and changes of the limiter itself.

use super::{MOST_COST, State};
use crate::error::ConfigError;
use crate::knot::Tie;
use crate::queue::{Left, Outcome, Place, Waiter};
use crate::rovers::Rovers;
use crate::{Quota, Which};
use std::pin::Pin;
use std::task::Waker;

/// What a claim leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// What it had been called out for and not seen.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) waker: Option<Waker>,
    /// What the roof had granted it, though this line had not: to be given back there.
    pub(crate) above: u64,
}

impl State {
    /// A future that waits behind the front is done with its place, while nothing was known to be due by `now`: nothing
    /// moves but its own claim, and what `settle` and `finish` would do can wait. `None` if that is not so; then nothing
    /// was done.
    ///
    /// Between the last look at the line and this one it counts as gone: what may have come due for it meanwhile goes to
    /// those behind it, who could not have had it earlier than now.
    pub(crate) fn depart_quietly(&mut self, rovers: &Rovers, place: Pin<&mut Place>, now: u64) -> Option<Waker> {
        if self.closed || self.line.is_tied() || self.last_due <= now.max(self.supply.synced()) {
            return None;
        }
        let waiter = self.line.leave_behind(place)?;
        self.note_hole(waiter.cost);
        self.forget_denial(rovers);
        Some(waiter.waker)
    }

    /// A claim left from behind: it is noted on the waiter before it.
    fn note_hole(&mut self, cost: u64) {
        self.totals.holes += cost;
        self.totals.skipped = self.totals.skipped.wrapping_add(cost);
    }

    /// A future is done with its place, in whatever state.
    pub(crate) fn depart(&mut self, rovers: &Rovers, place: Pin<&mut Place>) -> Departed {
        match self.line.leave(place) {
            Left::Nothing => Departed::default(),
            Left::Called(outcome) => Departed { outcome: Some(outcome), ..Departed::default() },
            Left::Front(waiter) => {
                let above = self.call_back(&waiter);
                self.totals.holes -= waiter.skip;
                self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
                self.fill_front(rovers, &waiter);
                Departed { outcome: None, waker: Some(waiter.waker), above }
            }
            Left::Behind(waiter) => {
                self.note_hole(waiter.cost);
                Departed { outcome: None, waker: Some(waiter.waker), above: 0 }
            }
        }
    }

    /// Calls back the envoy of a claim that leaves from the front, and says how many tokens the roof had granted it.
    fn call_back(&mut self, waiter: &Waiter) -> u64 {
        match &waiter.strand {
            Some(strand) if self.is_roofed() => {
                self.recall_envoy();
                if strand.knot.kill() == Tie::Committed { waiter.cost } else { 0 }
            }
            _ => 0,
        }
    }

    /// `tokens` of a grant were not used, and are not in flight any more.
    pub(crate) fn give_back(&mut self, rovers: &Rovers, tokens: u64) {
        self.supply.refund(tokens);
        self.totals.refunded = self.totals.refunded.wrapping_add(tokens);
        if let Some(cap) = &mut self.cap {
            // Nobody need be told: we hold the lock, and this release is made at the instant we have come to.
            rovers.release(tokens);
            cap.seen = cap.seen.wrapping_add(tokens << 1);
            self.supply.raise_ceiling(tokens);
        }
    }

    /// Charges `tokens` on top of a grant, as a debt at the end of the line, and says how many of them it took: a
    /// debt that no rover could span is cut.
    pub(crate) fn charge(&mut self, rovers: &Rovers, tokens: u64) -> u64 {
        let tokens = tokens.min(MOST_COST).min(self.room(rovers));
        rovers.claim(tokens);
        if self.line.front().is_none() {
            self.supply.claim(tokens);
        } else {
            self.supply.owe(tokens);
        }
        tokens
    }

    pub(crate) fn replenish(&mut self, rovers: &Rovers, tokens: u64) {
        self.supply.replenish(tokens, self.bound_ticket(rovers));
    }

    pub(crate) fn close(&mut self, rovers: &Rovers) {
        self.retract(rovers);
        self.closed = true;
    }

    pub(crate) fn pause_until(&mut self, rovers: &Rovers, gate: u64) {
        self.retract(rovers);
        self.supply.pause_until(gate);
    }

    pub(crate) fn set_quota(&mut self, rovers: &Rovers, which: Which<'_>, quota: Quota) -> Result<(), ConfigError> {
        let count = self.supply.quotas().len();
        let found = match which {
            Which::Index(index) => (index < count).then_some(index),
            Which::Name(name) => (0..count).find(|index| self.name(*index).is_some_and(|known| **known == *name)),
        };
        let index = found.ok_or_else(|| ConfigError::UnknownQuota { which: which.to_string(), count })?;
        quota.check(index)?;
        #[cfg(feature = "redis")]
        if self.supply.quotas()[index].is_leased() {
            return Err(ConfigError::SharedQuota { quota: index });
        }
        self.retract(rovers);
        self.supply.set_quota(index, quota, self.bound_ticket(rovers));
        self.stride.shorten(self.supply.least_burst() / 64);
        Ok(())
    }

    pub(crate) fn set_max_in_flight(&mut self, rovers: &Rovers, tokens: u64) -> Result<(), ConfigError> {
        self.retract(rovers);
        let cap = self.cap.as_mut().ok_or(ConfigError::NotCapped)?;
        self.supply.change_cap(cap.tokens, tokens);
        cap.tokens = tokens;
        Ok(())
    }
}
