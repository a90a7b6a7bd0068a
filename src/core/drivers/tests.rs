use super::*;

#[test]
fn removing_any_driver_keeps_the_others() {
    let mut drivers = Drivers::default();
    let all: Vec<u64> = (0..3).map(|_| drivers.add(Kind::ByHand)).collect();
    for (gone, left) in [(0, vec![1, 2]), (2, vec![1]), (1, vec![])] {
        assert!(drivers.remove(all[gone]).is_some() && drivers.remove(all[gone]).is_none());
        assert_eq!((0..3).filter(|index| drivers.contains(all[*index])).collect::<Vec<_>>(), left);
    }
}

const DUE: u64 = 1_000 * DELAY;

/// Drivers that take one turn each, in this order, while the queue is due at `DUE`.
fn asleep(count: usize) -> (Drivers, Vec<u64>) {
    let mut drivers = Drivers::default();
    let ids: Vec<u64> = (0..count).map(|_| drivers.add(Kind::ByHand)).collect();
    for id in &ids {
        drivers.sleep(*id, DUE, 0, Waker::noop().clone());
    }
    (drivers, ids)
}

/// The indices of the drivers that have been called and have not taken a turn since.
fn called(drivers: &Drivers, ids: &[u64]) -> Vec<usize> {
    let alarm = |id: &u64| drivers.iter().find(|driver| driver.id == *id).map(|driver| driver.alarm);
    ids.iter().enumerate().filter(|(_, id)| alarm(id) == Some(0)).map(|(index, _)| index).collect()
}

fn wake_if_late(drivers: &mut Drivers, due: u64) {
    let mut wakes = Wakes::default();
    while !drivers.wake_if_late(due, 0, &mut wakes) {
        wakes.wake_all();
    }
}

#[test]
fn the_lead_wakes_when_the_queue_is_due_and_the_backups_one_after_the_other() {
    let (mut drivers, ids) = asleep(4);
    let mut alarm = |index: usize| drivers.sleep(ids[index], DUE, 0, Waker::noop().clone()).0;
    assert_eq!([0, 3, 2, 1].map(&mut alarm), [0, 1, 2, 3].map(|rank| DUE + rank * DELAY));
}

#[test]
fn a_grant_calls_no_backup_and_a_new_front_that_is_due_earlier_calls_those_that_are_too_late() {
    let (mut drivers, ids) = asleep(40);
    drivers.sleep(ids[1], DUE, 0, Waker::noop().clone());
    wake_if_late(&mut drivers, DUE + 1);
    wake_if_late(&mut drivers, u64::MAX);
    assert!(called(&drivers, &ids).is_empty());
    wake_if_late(&mut drivers, DUE - DELAY / 2);
    assert_eq!(called(&drivers, &ids), [0], "only the lead");
    wake_if_late(&mut drivers, DUE - DELAY - DELAY / 2);
    assert_eq!(called(&drivers, &ids), [0, 39], "the backups of higher ranks may be later");
    wake_if_late(&mut drivers, 0);
    assert_eq!(called(&drivers, &ids).len(), 40);
}

#[test]
fn drivers_without_an_alarm_are_all_called_when_the_queue_becomes_due() {
    let (mut drivers, ids) = asleep(40);
    for id in &ids {
        assert_eq!(drivers.sleep(*id, u64::MAX, 0, Waker::noop().clone()).0, u64::MAX);
    }
    wake_if_late(&mut drivers, DUE);
    assert_eq!(called(&drivers, &ids).len(), 40);
}

#[test]
fn a_backup_that_finds_the_lead_missing_takes_its_place() {
    let (mut drivers, ids) = asleep(3);
    let mut look = |index: usize, due, now| drivers.sleep(ids[index], due, now, Waker::noop().clone()).0;
    let later = 2 * DUE;
    assert_eq!(look(2, later, DUE + DELAY - 1), later + DELAY, "the lead may still come");
    assert_eq!(look(1, later, DUE + DELAY), later);
    assert_eq!(look(0, later, DUE + DELAY), later + 2 * DELAY, "the former lead, which comes after all");
    assert_eq!(look(2, 2 * later, later + 9 * DELAY), 2 * later, "missing, and so is the next");
    wake_if_late(&mut drivers, 2 * later - 1);
    assert_eq!(called(&drivers, &ids), [2]);
}

#[test]
fn the_end_of_the_lead_calls_the_next_one_and_no_other() {
    let (mut drivers, ids) = asleep(9);
    assert!(drivers.remove(ids[4]).is_some());
    assert!(drivers.call_successors(DUE).iter().all(Option::is_none));
    assert!(drivers.remove(ids[0]).is_some());
    assert_eq!(drivers.call_successors(DUE).iter().flatten().count(), 1);
    assert_eq!(called(&drivers, &ids), [8]);
    assert_eq!(drivers.sleep(ids[8], DUE, 0, Waker::noop().clone()).0, DUE);
}

#[test]
fn beside_a_thread_that_leads_all_backups_sleep_long() {
    let mut drivers = Drivers::default();
    let ids = [(); 9].map(|()| drivers.add(Kind::Thread(thread::current().id())));
    let alarms = ids.map(|id| drivers.sleep(id, DUE, 0, Waker::noop().clone()).0);
    assert_eq!(alarms[0], DUE);
    assert_eq!(alarms[1..], [DUE + 8 * DELAY; 8]);
    assert!(drivers.remove(ids[0]).is_some());
    drivers.call_successors(DUE);
    assert_eq!(called(&drivers, &ids), [8], "the next lead, and no other");
}

#[test]
fn a_backup_of_a_high_rank_is_called_when_it_becomes_the_next_after_the_lead() {
    let (mut drivers, ids) = asleep(9);
    assert_eq!(drivers.sleep(ids[1], DUE, 0, Waker::noop().clone()).0, DUE + 8 * DELAY);
    for id in &ids[2..] {
        assert!(drivers.remove(*id).is_some());
    }
    assert_eq!(drivers.call_successors(DUE).iter().flatten().count(), 1);
    assert_eq!(called(&drivers, &ids), [1]);
}
