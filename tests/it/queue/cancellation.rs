//! Cancellation, beyond what the random histories of the oracle compare.

use super::*;

#[test]
fn a_claim_that_was_never_polled_has_no_effect() {
    let fixture = Fixture::new(one_per_milli(5));
    let _front = fixture.enter(5);
    let before = fixture.limiter.snapshot();
    drop(fixture.limiter.consume(3));
    drop(fixture.limiter.clone().consume_owned(3));
    drop(fixture.limiter.consume(3).within(MILLI));
    assert_eq!(fixture.limiter.snapshot(), before);
}

#[test]
fn a_future_dropped_after_its_grant_was_taken_gives_nothing_back() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9)).max_in_flight(9));
    let mut waiting = fixture.enter(3);
    fixture.pass(3 * MILLI);
    let grant = served(&mut waiting);
    drop(waiting);
    let after = fixture.limiter.snapshot();
    assert_eq!((fixture.limiter.available(), after.in_flight, after.refunded), (0, Some(3), 0));
    drop(grant);
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(0));
}

#[test]
fn cancelling_behind_the_front_serves_the_due_claims() {
    let fixture = Fixture::new(one_per_milli(9));
    let mut front = fixture.enter(1);
    let behind = fixture.enter(5);
    fixture.clock.advance(MILLI);
    drop(behind);
    let _grant = served(&mut front);
}
