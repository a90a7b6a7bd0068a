//! Entering and being granted, beyond what the random histories of the oracle compare: a grant dropped by a panic, readings
//! of the clock.

use super::*;

#[test]
fn a_grant_dropped_by_a_panic_wakes_the_next() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(1));
    let grant = fixture.take(1);
    let mut next = fixture.enter(1);
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = grant;
        // Not `panic!`: the panic is intended, and its message would only clutter the output.
        std::panic::resume_unwind(Box::new("the work failed"));
    }));
    assert!(died.is_err());
    let _grant = served(&mut next);
}

/// Its own refund counts from the reading that it makes afterwards. Only a refund by another thread meanwhile needs
/// another reading.
#[test]
fn a_release_to_waiters_reads_the_clock_once() {
    let readings = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&readings);
    let clock = ClockFn::manual(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Duration::ZERO
    });
    let builder = Limiter::builder().quota(Quota::manual(100)).max_in_flight(8).clock(clock);
    let limiter = builder.build().unwrap();
    let [first, second] = [5, 3].map(|cost| limiter.try_acquire(cost).unwrap());
    let mut waiters = [5, 3].map(|cost| pending(limiter.consume(cost)));
    for (held, claim) in [first, second].into_iter().zip(&mut waiters) {
        let before = readings.load(Ordering::Relaxed);
        drop(held);
        assert_eq!(readings.load(Ordering::Relaxed) - before, 1);
        served(claim).forget();
    }
}
