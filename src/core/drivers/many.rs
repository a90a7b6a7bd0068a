//! Drivers of many queues: their notes about one of their queues.

use super::{Drivers, Notes};
use std::task::Waker;

/// The facts that a driver of many queues must record after a turn at one of them.
#[derive(Debug)]
pub(crate) struct NextLook {
    /// The instant of the next turn and the number of its entry. `None` if no clock can tell.
    pub(crate) next: Option<(u64, u64)>,
    /// The driver must record that the queue may be removed: nothing is due any more, and it has not recorded that yet.
    pub(crate) lingers: bool,
    /// Whether the entry made before this turn still held.
    pub(crate) was_noted: bool,
    /// Dropped by the caller without the lock.
    _old: Option<Waker>,
}

impl Drivers {
    /// Driver `id`, which serves many queues, goes on to another queue, and returns to this one at `due`. Its waker
    /// stays registered; `waker` replaces it after it was used.
    pub(crate) fn rest(&mut self, id: u64, due: u64, now: u64, waker: Option<Waker>) -> Option<NextLook> {
        let driver = self.arm(id, due, now)?;
        let alarm = driver.alarm;
        let old = waker.and_then(|waker| driver.waker.replace(waker));
        let Notes { noted, lingers } = &mut driver.notes;
        let was_noted = *noted % 2 == 1;
        *noted = noted.next_multiple_of(2);
        if due == u64::MAX {
            return Some(NextLook { next: None, lingers: !std::mem::replace(lingers, true), was_noted, _old: old });
        }
        *noted += 1;
        Some(NextLook { next: Some((alarm, *noted)), lingers: false, was_noted, _old: old })
    }

    /// Whether entry `number` of driver `id` is the latest one and still holds.
    pub(crate) fn is_noted(&self, id: u64, number: u64) -> bool {
        self.iter().any(|driver| driver.id == id && driver.notes.noted == number)
    }

    /// Whether driver `id` has an alarm for this queue, or is about to take a turn.
    pub(crate) fn will_look(&self, id: u64) -> bool {
        self.iter().any(|driver| driver.id == id && driver.alarm != u64::MAX)
    }

    /// Records that driver `id` has withdrawn its entry that this queue may be removed.
    pub(crate) fn stop_lingering(&mut self, id: u64) {
        if let Some(driver) = self.iter_mut().find(|driver| driver.id == id) {
            driver.notes.lingers = false;
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
