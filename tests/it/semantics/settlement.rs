//! Refunds, later charges, and the ceiling.

use super::*;
use tollgate::ReleaseError;

#[test]
fn settle_of_an_owned_grant_is_the_same() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(100));
    let mut grant = assert_ready_ok!(spawn(fixture.limiter.clone().consume_owned(40)).poll());
    grant.settle(70);
    grant.settle(10);
    assert_eq!((grant.cost(), fixture.limiter.available()), (10, 90));
    drop(grant);
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(0));
}

#[test]
fn releasing_more_than_is_in_flight_is_an_error_and_nothing_moves() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(10));
    fixture.take(4).forget();
    let _held = fixture.take(6);
    let mut waiting = fixture.enter(1);
    let before = fixture.limiter.snapshot();
    for asked in [5, 10, 11, u64::MAX] {
        // The tokens of a live grant are released by the grant: only the four forgotten ones can be released by hand.
        assert_eq!(fixture.limiter.release(asked), Err(ReleaseError::TooMuch { asked, owed: 4 }));
    }
    waits(&mut waiting);
    assert_eq!(fixture.limiter.snapshot(), before);
    fixture.limiter.release(4).unwrap();
    let mut grant = served(&mut waiting);
    assert_eq!(fixture.limiter.release(1), Err(ReleaseError::TooMuch { asked: 1, owed: 0 }));
    // A forgotten grant is released at its latest cost.
    grant.settle(3);
    grant.forget();
    assert_eq!(fixture.limiter.release(4), Err(ReleaseError::TooMuch { asked: 4, owed: 3 }));
    fixture.limiter.release(3).unwrap();
}

#[test]
fn releasing_without_a_ceiling_is_an_error() {
    let fixture = Fixture::new(one_per_milli(5).initial(5));
    fixture.take(4).forget();
    assert_eq!(fixture.limiter.release(4), Err(ReleaseError::NotCapped));
    assert_eq!(fixture.limiter.available(), 1);
}
