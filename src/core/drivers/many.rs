//! Drivers of many queues: what they have to remember of one of their queues.

use super::Drivers;
use std::task::Waker;

/// In place of an instant: there is no timer.
pub(crate) const NO_TIMER: u64 = u64::MAX;

/// What a driver of many queues has to record after a turn at one of them.
#[derive(Debug)]
pub(crate) struct NextLook {
    /// The instant of the next turn, or [`NO_TIMER`] if no clock can tell.
    pub(crate) next: u64,
    /// What `next` was after the turn before this one.
    pub(crate) timer: u64,
    /// The driver must record that the queue may be removed: nothing is due any more, and it has not recorded that yet.
    pub(crate) lingers: bool,
    /// Dropped by the caller without the lock.
    _old: Option<Waker>,
}

impl Drivers {
    /// Driver `id`, which serves many queues, goes on to another queue, and returns to this one at `due`. Its waker
    /// stays registered; `waker` replaces it after it was used.
    pub(crate) fn rest(&mut self, id: u64, due: u64, now: u64, waker: Option<Waker>) -> NextLook {
        let Some(driver) = self.arm(id, due, now) else {
            return NextLook { next: NO_TIMER, timer: NO_TIMER, lingers: false, _old: waker };
        };
        let _old = waker.and_then(|waker| driver.waker.replace(waker));
        let next = driver.alarm;
        let lingers = next == NO_TIMER && !std::mem::replace(&mut driver.lingers, true);
        NextLook { next, timer: std::mem::replace(&mut driver.timer, next), lingers, _old }
    }

    /// Whether driver `id` has an alarm for this queue, or is about to take a turn.
    pub(crate) fn will_look(&self, id: u64) -> bool {
        self.iter().any(|driver| driver.id == id && driver.alarm != u64::MAX)
    }

    /// Records that driver `id` has withdrawn its entry that this queue may be removed.
    pub(crate) fn stop_lingering(&mut self, id: u64) {
        if let Some(driver) = self.iter_mut().find(|driver| driver.id == id) {
            driver.lingers = false;
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
