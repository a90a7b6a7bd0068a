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
mod tests {
    use super::*;
    use crate::core::drivers::{Kind, OF_MANY};

    const ID: u64 = OF_MANY + 1;
    const OTHER: u64 = OF_MANY + 2;

    /// Rests driver `ID`. Returns its next turn and entry, whether the queue became removable, and whether the old
    /// entry held.
    fn rest(drivers: &mut Drivers, due: u64) -> (Option<(u64, u64)>, bool, bool) {
        let rest = drivers.rest(ID, due, 0, None).expect("driver ID is registered");
        (rest.next, rest.lingers, rest.was_noted)
    }

    #[test]
    fn a_driver_of_many_queues_tracks_its_latest_entry_for_each() {
        let mut drivers = Drivers::default();
        drivers.adopt(OTHER, Kind::ByHand);
        drivers.adopt(ID, Kind::ByHand);
        assert_eq!(drivers.sleep(ID, 1, 0, Waker::noop().clone()).0, 1, "it takes the lead");
        drivers.sleep(OTHER, u64::MAX, 0, Waker::noop().clone());
        drivers.lead.as_mut().unwrap().alarm = 0;
        assert!(drivers.will_look(ID), "it is about to");
        assert_eq!(rest(&mut drivers, 5), (Some((5, 1)), false, false));
        assert!(drivers.is_noted(ID, 1));
        assert!(!drivers.is_noted(ID, 0) && !drivers.is_noted(OTHER, 1));
        assert!(drivers.will_look(ID) && !drivers.will_look(OTHER));
        assert_eq!(rest(&mut drivers, 7), (Some((7, 3)), false, true));
        assert!(drivers.is_noted(ID, 3) && !drivers.is_noted(ID, 1));
        // No claim is due any more.
        assert_eq!(rest(&mut drivers, u64::MAX), (None, true, true));
        assert!(!drivers.is_noted(ID, 3) && !drivers.will_look(ID));
        assert_eq!(rest(&mut drivers, u64::MAX), (None, false, false));
        drivers.stop_lingering(OTHER);
        assert_eq!(rest(&mut drivers, u64::MAX), (None, false, false));
        drivers.stop_lingering(ID);
        assert_eq!(rest(&mut drivers, u64::MAX), (None, true, false));
        assert_eq!(rest(&mut drivers, 9), (Some((9, 5)), false, false));
    }
}
