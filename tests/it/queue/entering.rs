//! Entering and being granted, beyond what the random histories of the oracle compare: costs that can never be granted,
//! a grant dropped by a panic, readings of the clock.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_test::assert_ready_err;
use tollgate::{Bound, Clock, ConsumeError};

#[test]
fn an_impossible_cost_is_refused_and_takes_no_place() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(100)).max_in_flight(10));
    for cost in [11, 1 << 48, u64::MAX] {
        let error = assert_ready_err!(spawn(fixture.limiter.consume(cost)).poll());
        assert_eq!(error, ConsumeError::TooLarge { cost, most: 10, by: Some(Bound::InFlight), quota_name: None });
    }
    assert_eq!(fixture.limiter.snapshot().waiting_tasks, 0);
    let mut most = fixture.enter(10);
    fixture.pass(10 * MILLI);
    let _grant = served(&mut most);
}

#[test]
fn one_claim_of_two_to_the_48_may_wait_and_one_more_token_may_not() {
    let most = 1 << 48;
    let fixture = Fixture::new(one_per_milli(1));
    let _waiting = fixture.enter(most);
    let error = assert_ready_err!(spawn(fixture.limiter.consume(most + 1)).poll());
    assert_eq!(error, ConsumeError::TooLarge { cost: most + 1, most, by: None, quota_name: None });
}

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

/// A clock that stands still and counts its readings.
#[derive(Clone, Debug, Default)]
struct Read(Arc<AtomicU64>);

impl Clock for Read {
    fn now(&self) -> Duration {
        self.0.fetch_add(1, Ordering::Relaxed);
        Duration::ZERO
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// Its own refund counts from the reading that it makes afterwards. Only a refund by another thread meanwhile needs
/// another reading.
#[test]
fn a_release_to_waiters_reads_the_clock_once() {
    let clock = Read::default();
    let builder = Limiter::builder().quota(Quota::manual(100)).max_in_flight(8).clock(clock.clone());
    let limiter = builder.build().unwrap();
    let [first, second] = [5, 3].map(|cost| limiter.try_acquire(cost).unwrap());
    let mut waiters = [5, 3].map(|cost| pending(limiter.consume(cost)));
    for (held, claim) in [first, second].into_iter().zip(&mut waiters) {
        let before = clock.0.load(Ordering::Relaxed);
        drop(held);
        assert_eq!(clock.0.load(Ordering::Relaxed) - before, 1);
        served(claim).forget();
    }
}
