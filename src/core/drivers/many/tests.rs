use super::*;
use crate::core::drivers::{DELAY, Kind, OF_MANY};
use crate::core::wakes::Wakes;

const ID: u64 = OF_MANY + 1;
const OTHER: u64 = OF_MANY + 2;
const DUE: u64 = 1_000 * DELAY;

/// Rests driver `ID`. Returns its next turn, the timer that it had, and whether the queue became removable.
fn rest(drivers: &mut Drivers, due: u64) -> (u64, u64, bool) {
    let rest = drivers.rest(ID, due, 0, None);
    (rest.next, rest.timer, rest.lingers)
}

#[test]
fn a_driver_of_many_queues_knows_its_timer_for_each() {
    let mut drivers = Drivers::default();
    drivers.adopt(OTHER, Kind::ByHand);
    drivers.adopt(ID, Kind::ByHand);
    assert_eq!(drivers.sleep(ID, 1, 0, Waker::noop().clone()).0, 1, "it takes the lead");
    drivers.sleep(OTHER, u64::MAX, 0, Waker::noop().clone());
    drivers.lead.as_mut().unwrap().alarm = 0;
    assert!(drivers.will_look(ID), "it is about to");
    assert_eq!(rest(&mut drivers, 5), (5, NO_TIMER, false));
    assert!(drivers.will_look(ID) && !drivers.will_look(OTHER));
    assert_eq!(rest(&mut drivers, 7), (7, 5, false));
    // No claim is due any more.
    assert_eq!(rest(&mut drivers, u64::MAX), (NO_TIMER, 7, true));
    assert!(!drivers.will_look(ID));
    assert_eq!(rest(&mut drivers, u64::MAX), (NO_TIMER, NO_TIMER, false));
    drivers.stop_lingering(OTHER);
    assert_eq!(rest(&mut drivers, u64::MAX), (NO_TIMER, NO_TIMER, false));
    drivers.stop_lingering(ID);
    assert_eq!(rest(&mut drivers, u64::MAX), (NO_TIMER, NO_TIMER, true));
    assert_eq!(rest(&mut drivers, 9), (9, NO_TIMER, false));
    let unknown = drivers.rest(ID + 2, 9, 0, None);
    assert_eq!((unknown.next, unknown.timer, unknown.lingers), (NO_TIMER, NO_TIMER, false));
}

/// It was the lead, and missing when a thread took its turn. It would keep an entry for the queue until its alarm.
#[test]
fn a_driver_of_many_queues_behind_a_new_lead_is_called_when_no_claim_waits_any_more() {
    let (mut drivers, noop) = (Drivers::default(), || Waker::noop().clone());
    drivers.adopt(ID, Kind::ByHand);
    let thread = drivers.add(Kind::Thread(std::thread::current().id()));
    assert_eq!(drivers.sleep(ID, 5, 0, noop()).0, 5);
    assert_eq!(drivers.sleep(thread, DUE, DUE / 2, noop()).0, DUE, "it takes the lead");
    assert!(drivers.sleep(ID, DUE, DUE / 2, noop()).0 > DUE);
    assert!(drivers.wake_if_late(u64::MAX, DUE / 2, &mut Wakes::default()));
    assert!(drivers.iter().all(|driver| (driver.alarm == 0) == (driver.id == ID)));
}
