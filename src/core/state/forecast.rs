//! Estimates: when a claim made now would be granted; see `core/forecast.rs`.

use super::{Role, State};
use crate::core::classes::ClassId;
use crate::core::forecast::Line;
use crate::core::queue::Waiter;
use crate::core::rovers::Rovers;
use crate::core::supply::Supply;
use std::time::Duration;

/// How many claims are served ahead of time while the lock is held. Before that, each step walks past the claims that are known
/// already, or that are left for later: half of the queue at most. So much smaller steps would take more work in all, but would
/// not hold the lock for much less.
const FORESEEN_AT_ONCE: usize = 16_384;

impl State {
    /// The instant at which a claim of `cost` made now would be granted. `None` if no clock can tell, or if this queue
    /// alone does not decide.
    ///
    /// Takes a few steps per quota, and also one step per waiter in the cases that `core/forecast.rs` names.
    pub(crate) fn predict(&mut self, rovers: &Rovers, class: ClassId, cost: u64) -> Option<u64> {
        if self.role.has(Role::CLASSES) {
            return self.predict_in_class(rovers, class, cost);
        }
        if self.queue.has_joint() || self.role.has(Role::CHILD) && !self.queue.is_empty() {
            return None;
        }
        let Some(line) = self.line(rovers) else { return self.supply.scheduled(rovers.tail().wrapping_add(cost)) };
        let forecast = &mut self.rare.get_or_insert_default().forecast;
        forecast.predict(&self.supply, line, cost, |from| self.queue.iter_from(from).map(Waiter::as_claim))
    }

    /// The claims that wait, if an estimate may depend on each of them.
    fn line(&self, rovers: &Rovers) -> Option<Line> {
        let front = self.queue.front().filter(|_| !self.supply.is_straight())?;
        let (base, first) = (self.base(rovers), (front.number, front.cost));
        Some(Line { base, tail: rovers.tail(), first, largest: self.queue.largest() })
    }

    /// Looks at a part of a long queue, for a [`predict`](Self::predict) that follows. Returns false if more is left of it.
    #[inline]
    pub(crate) fn prepare_to_predict(&mut self, rovers: &Rovers, cost: u64) -> bool {
        self.queue.len() <= FORESEEN_AT_ONCE as u64 || cost == 0 || self.prepare_part(rovers, cost)
    }

    #[cold]
    fn prepare_part(&mut self, rovers: &Rovers, cost: u64) -> bool {
        let is_other = self.role.has(Role::CLASSES | Role::CHILD | Role::SOURCE) || self.queue.has_joint();
        let Some(line) = self.line(rovers).filter(|_| !is_other) else { return true };
        let forecast = &mut self.rare.get_or_insert_default().forecast;
        let claims = |from| self.queue.iter_from(from).map(Waiter::as_claim);
        forecast.prepare(&self.supply, line, cost, claims, FORESEEN_AT_ONCE)
    }

    /// The supply as it will be once the last waiter has been granted, and the position in it at which the next claim
    /// begins. `None` if no clock can tell.
    ///
    /// Must not be called while a waiter also waits for another queue.
    pub(super) fn forecast_supply(&mut self, rovers: &Rovers) -> Option<(&Supply, u64)> {
        let base = self.base(rovers);
        let Some(front) = self.queue.front().map(|front| front.number) else { return Some((&self.supply, base)) };
        let forecast = &mut self.rare.get_or_insert_default().forecast;
        forecast.behind(&self.supply, base, front, |from| self.queue.iter_from(from).map(Waiter::as_claim))
    }

    /// The time that a claim of `cost` made now would wait.
    pub(crate) fn estimate(&mut self, rovers: &Rovers, class: ClassId, cost: u64, now: u64) -> Option<Duration> {
        if self.is_closed(class) || cost > self.most_claimable(rovers) {
            return None;
        }
        if cost == 0 {
            return Some(Duration::ZERO);
        }
        self.predict(rovers, class, cost).map(|at| self.wait(at, now))
    }

    /// The time until `at`. A claim that can pass by now does not wait for a clock that stepped back.
    pub(super) fn wait(&self, at: u64, now: u64) -> Duration {
        Duration::from_nanos(if at <= self.supply.synced() { 0 } else { at.saturating_sub(now) })
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
