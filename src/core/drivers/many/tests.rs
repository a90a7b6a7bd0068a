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
