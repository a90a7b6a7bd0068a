//! A sequence of events on a limiter that is being observed: for meters and subscribers alike.

use crate::fixture::*;

pub(crate) use crate::fixture::{MILLI, built};

/// A token each millisecond on a manual clock, from a full bucket of `burst`.
pub(crate) fn by_hand(burst: u64) -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::new(1, MILLI).burst(burst)))
}

/// Every method that grants without waiting, a hundred times each, and a claim that is never polled: 700 tokens.
pub(crate) fn grants_at_once(limiter: &Limiter) {
    for _ in 0..100 {
        let _ = limiter.try_acquire(1).unwrap();
        let _ = assert_ready_ok!(spawn(limiter.consume(1)).poll());
        let _ = assert_ready_ok!(spawn(limiter.consume(1).within(MILLI)).poll());
        let _ = assert_ready_ok!(spawn(limiter.clone().consume_owned(1)).poll());
        let _ = limiter.blocking_consume(1).unwrap();
        let _ = assert_ready_ok!(spawn(join([(limiter, 1)])).poll());
        let _ = try_join([(limiter, 1)]).unwrap();
        drop(limiter.consume(1));
    }
}

/// Empty at first, and with a cap of 10: for [`every_event`].
pub(crate) fn empty_with_cap() -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(Quota::new(1, MILLI).initial(0)).max_in_flight(10))
}

/// Causes one of each event, for an observer that may do anything: five claims wait, of which three are granted, one is
/// cancelled and one is refused; and one claim is refused at once.
pub(crate) fn every_event(limiter: &Limiter, clock: &ManualClock) {
    let (mut first, mut second) = (pending(limiter.consume(1)), pending(limiter.consume(2).within(100 * MILLI)));
    let (left, mut joint) = (pending(limiter.consume(1)), pending(join([(limiter, 1)])));
    let mut late = pending(limiter.consume(1).within(5 * MILLI));
    assert_pending!(first.poll());
    assert!(limiter.try_acquire(1).is_err());
    drop(left);
    tick_after(clock, limiter, 4 * MILLI);
    assert!(first.is_woken() && second.is_woken() && joint.is_woken());
    let grants = (assert_ready_ok!(first.poll()), assert_ready_ok!(second.poll()), assert_ready_ok!(joint.poll()));
    limiter.pause_for(100 * MILLI);
    clock.advance(MILLI);
    assert_ready_err!(late.poll());
    assert_eq!(limiter.snapshot().in_flight, Some(4));
    drop(grants);
    clock.advance(100 * MILLI);
    let seen = limiter.snapshot();
    assert_eq!((seen.in_flight, seen.waiting_tasks, seen.granted), (Some(0), 0, 4));
    assert!(limiter.try_acquire(1).is_ok());
}
