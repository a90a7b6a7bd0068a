//! Going, paying afterwards, and changes of the limiter itself.

use super::{MAX_COST, State};
use crate::core::joint::JointState;
use crate::core::queue::{Left, Outcome, Place, Waiter};
use crate::core::rovers::{Rovers, ahead};
use crate::error::ConfigError;
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
    pub(crate) parent: u64,
}

impl State {
    /// A future that waits behind the front is done with its place, while nothing was known to be due by `now`: nothing
    /// moves but its own claim, and what `settle` and `finish` would do can wait. `None` if that is not so; then nothing
    /// was done.
    ///
    /// Between the last look at the line and this one it counts as gone: what may have come due for it meanwhile goes to
    /// those behind it, who could not have had it earlier than now.
    pub(crate) fn remove_fast(&mut self, rovers: &Rovers, place: Pin<&mut Place>, now: u64) -> Option<Waker> {
        if self.closed || self.queue.is_joint() || self.last_due <= now.max(self.supply.synced()) {
            return None;
        }
        let (waiter, before) = self.queue.leave_behind(place)?;
        self.note_hole(&waiter, before);
        self.forget_denial(rovers);
        Some(waiter.waker)
    }

    /// A claim left from behind: it is noted on the waiter before it, which begins at `before`.
    fn note_hole(&mut self, waiter: &Waiter, before: u64) {
        self.totals.holes += waiter.cost;
        self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
        self.hole_in_forecast(before, waiter.start(), waiter.cost + waiter.skip);
    }

    /// A future is done with its place, in whatever state.
    pub(crate) fn depart(&mut self, rovers: &Rovers, place: Pin<&mut Place>) -> Departed {
        match self.queue.leave(place) {
            Left::Nothing => Departed::default(),
            Left::Called(outcome) => Departed { outcome: Some(outcome), ..Departed::default() },
            Left::Front(waiter) => {
                let parent = self.recall_ticket(&waiter);
                self.totals.holes -= waiter.skip;
                self.totals.skipped = self.totals.skipped.wrapping_add(waiter.cost);
                self.fill_front(rovers, &waiter);
                Departed { outcome: None, waker: Some(waiter.waker), parent }
            }
            Left::Behind { waiter, before } => {
                self.note_hole(&waiter, before);
                Departed { outcome: None, waker: Some(waiter.waker), parent: 0 }
            }
        }
    }

    /// Calls back the envoy of a claim that leaves from the front, and says how many tokens the roof had granted it.
    fn recall_ticket(&mut self, waiter: &Waiter) -> u64 {
        match &waiter.part {
            Some(part) if self.has_parent() => {
                self.recall_parent_ticket();
                if part.joint.kill() == JointState::Committed { waiter.cost } else { 0 }
            }
            _ => 0,
        }
    }

    /// [`give_back`](Self::give_back) at the instant that the queue has been served up to.
    pub(super) fn give_back_now(&mut self, rovers: &Rovers, tokens: u64) {
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
        let tokens = tokens.min(MAX_COST).min(self.room(rovers));
        rovers.claim(tokens);
        if self.queue.is_empty() {
            self.supply.claim(tokens);
        } else {
            self.supply.owe(tokens);
        }
        tokens
    }

    /// [`replenish`](Self::replenish) at the instant that the queue has been served up to. A front waiter that begins at
    /// `end` or behind it has not come yet.
    pub(super) fn replenish_now(&mut self, tokens: u64, end: Option<u64>) {
        let front = self.queue.front().filter(|front| end.is_none_or(|end| ahead(front.start(), end) < 0));
        let front = front.map(|front| front.ticket);
        self.supply.replenish(tokens, front);
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
            return Err(ConfigError::DistributedQuota { quota: index });
        }
        self.retract(rovers);
        self.supply.set_quota(index, quota, self.front_ticket());
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
