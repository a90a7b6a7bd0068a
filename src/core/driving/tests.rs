use super::*;
use crate::{Limiter, ManualClock, Quota};
use tokio_test::task::spawn;

#[test]
fn drive_reports_whether_several_wait() {
    let quota = Quota::manual(1).initial(0);
    let limiter = Limiter::builder().quota(quota).clock(ManualClock::new()).build().unwrap();
    let id = limiter.core().add_driver(Kind::ByHand);
    let mut queue: Vec<_> = (0..3).map(|_| spawn(limiter.consume(1))).collect();
    let several_wait = queue.iter_mut().map(|claim| {
        assert!(claim.poll().is_pending());
        matches!(limiter.core().drive(id, Waker::noop()), Drive::Until { several_wait: true, .. })
    });
    assert_eq!(several_wait.collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn a_keyed_driver_acts_on_its_latest_entry_only_and_the_queue_stays_while_a_waiter_is_due() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(1).initial(0);
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let core = limiter.core();
    let id = crate::core::drivers::OF_MANY;
    core.state.lock().drivers.adopt(id, Kind::ByHand);
    let mut waiting = spawn(limiter.consume(1));
    assert!(waiting.poll().is_pending());
    let look = |why, now| match core.drive_one(id, now, why) {
        Look::NextLook(rest) => (rest.next, rest.lingers),
        other => panic!("{other:?}"),
    };
    let (next, lingers) = look(LookReason::Woken(Waker::noop().clone()), 0);
    let (due, number) = next.expect("a claim waits");
    assert_eq!((due, lingers), (1_000_000_000, false));
    assert!(core.is_noted(id, number) && !core.is_noted(id, number + 2));
    assert!(core.stays(id, false));
    clock.advance(std::time::Duration::from_secs(1));
    assert!(matches!(core.drive_one(id, due, LookReason::Noted(number + 2)), Look::Stale));
    assert_eq!(look(LookReason::Noted(number), due), (None, true));
    assert!(!core.stays(id, false));
    assert!(core.stays(id, true));
}
