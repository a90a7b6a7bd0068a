//! Refunds, later charges, and the ceiling.

use super::*;
use tollgate::ReleaseError;

/// The law counts the tokens granted less those refunded: five grants that are refunded at one instant let five others
/// pass at that instant, in addition to the one token in the bucket. A server sees six requests if the five were sent.
#[test]
fn refunds_at_one_instant_let_as_many_tokens_pass_at_that_instant() {
    let fixture = Fixture::new(one_per_milli(1).initial(1));
    let mut grants: Vec<_> = (0..5)
        .map(|_| {
            let grant = fixture.take(1);
            fixture.pass(MILLI);
            grant
        })
        .collect();
    let before = fixture.limiter.snapshot();
    let mut passed = Vec::new();
    // The bucket is full: if its token were not taken, a refund would be lost.
    passed.push(fixture.limiter.try_acquire(1).unwrap());
    for grant in &mut grants {
        assert_eq!(fixture.denied(1).remaining, 0);
        grant.settle(0);
        passed.push(fixture.limiter.try_acquire(1).unwrap());
    }
    assert_eq!(fixture.denied(1).retry_after, Some(MILLI));
    let after = fixture.limiter.snapshot();
    assert_eq!((after.granted - before.granted, after.refunded - before.refunded, passed.len()), (6, 5, 6));
}

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

/// Seastar's ceiling loses the tokens minted while it is reached, and grants about half of the rate.
#[test]
fn ceiling_reached_again_and_again_does_not_slow_the_configured_rate() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(10)).max_in_flight(4));
    let mut held = vec![];
    let mut passed = 0;
    for milli in 0..1_000 {
        fixture.pass(MILLI);
        // Work in batches: all of it is released every seventh millisecond, repeatedly.
        if milli % 7 == 6 {
            held.clear();
        }
        while let Ok(grant) = fixture.limiter.try_acquire(1) {
            held.push(grant);
            passed += 1;
            if milli % 7 == 6 && held.len() == 4 {
                held.clear();
            }
        }
    }
    assert_eq!(passed + fixture.level(), 1_000);
    assert!(fixture.level() <= 10);
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
