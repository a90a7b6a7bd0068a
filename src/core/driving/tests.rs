use super::*;
use crate::core::drivers::NO_TIMER;
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
fn a_queue_stays_while_a_waiter_is_due_to_the_keyed_driver() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(1).initial(0);
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let core = limiter.core();
    let id = crate::core::drivers::OF_MANY;
    core.state.lock().drivers.adopt(id, Kind::ByHand);
    let mut waiting = spawn(limiter.consume(1));
    assert!(waiting.poll().is_pending());
    let look = |now, waker| core.drive_one(id, now, waker).map(|rest| (rest.next, rest.timer, rest.lingers));
    assert_eq!(look(0, Some(Waker::noop().clone())), Some((1_000_000_000, NO_TIMER, false)));
    assert!(core.stays(id, false));
    clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(look(1_000_000_000, None), Some((NO_TIMER, 1_000_000_000, true)));
    assert!(!core.stays(id, false));
    assert!(core.stays(id, true));
}
