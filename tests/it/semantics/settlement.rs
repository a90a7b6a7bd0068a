//! Refunds, later charges, and the ceiling.

use super::*;
use tollgate::ReleaseError;

#[test]
fn giant_that_saved_up_and_leaves_lets_at_most_the_burst_pass_at_once_and_the_rate_after_it() {
    let fixture = Fixture::new(one_per_milli(4));
    let giant = fixture.enter(100);
    let mut waiters: Vec<_> = (0..10).map(|_| fixture.enter(1)).collect();
    fixture.pass(90 * MILLI);
    drop(giant);
    assert_eq!(count_served(&mut waiters), 4);
    for _ in 0..6 {
        fixture.pass(MILLI - NANO);
        assert_eq!(count_served(&mut waiters), 0);
        fixture.pass(NANO);
        assert_eq!(count_served(&mut waiters), 1);
    }
}

#[test]
fn refund_above_the_burst_is_clamped_to_it() {
    let fixture = Fixture::new(one_per_milli(5));
    let mut giant = fixture.enter(20);
    fixture.pass(20 * MILLI);
    let mut grant = served(&mut giant);
    fixture.pass(3 * MILLI);
    grant.settle(0);
    assert_eq!((grant.cost(), fixture.limiter.available()), (0, 5));
}

#[test]
fn refund_above_the_burst_lets_at_most_a_burst_pass_at_once_while_others_wait() {
    let fixture = Fixture::new(one_per_milli(5));
    let mut giant = fixture.enter(20);
    let mut waiters: Vec<_> = (0..15).map(|_| fixture.enter(1)).collect();
    fixture.pass(20 * MILLI);
    let mut grant = served(&mut giant);
    grant.settle(0);
    assert_eq!(count_served(&mut waiters), 5);
    fixture.pass(MILLI);
    assert_eq!(count_served(&mut waiters), 1);
}

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

/// The same for waiters: each refund serves the front at once.
#[test]
fn refunds_at_one_instant_serve_as_many_waiters_at_that_instant() {
    let fixture = Fixture::new(one_per_milli(1).initial(1));
    let mut grants: Vec<_> = (0..5)
        .map(|_| {
            let grant = fixture.take(1);
            fixture.pass(MILLI);
            grant
        })
        .collect();
    let _last = fixture.take(1);
    let mut waiters: Vec<_> = (0..6).map(|_| fixture.enter(1)).collect();
    for grant in &mut grants {
        grant.settle(0);
        assert_eq!(count_served(&mut waiters), 1);
    }
    fixture.pass(MILLI - NANO);
    assert_eq!(count_served(&mut waiters), 0);
    fixture.pass(NANO);
    assert_eq!(count_served(&mut waiters), 1);
}

#[test]
fn refund_while_a_giant_waits_fills_no_further_than_the_burst() {
    let fixture = Fixture::new(one_per_milli(5).initial(5));
    let mut grant = fixture.take(5);
    let mut giant = fixture.enter(9);
    fixture.pass(3 * MILLI);
    grant.settle(0);
    assert_eq!(fixture.level(), 5);
    fixture.pass(4 * MILLI - NANO);
    waits(&mut giant);
    fixture.pass(NANO);
    let _grant = served(&mut giant);
}

#[test]
fn refund_goes_to_the_front_of_the_queue_at_once() {
    let fixture = Fixture::new(one_per_milli(5).initial(5));
    let mut grant = fixture.take(5);
    let mut front = fixture.enter(2);
    let mut behind = fixture.enter(2);
    grant.settle(2);
    let _grant = served(&mut front);
    waits(&mut behind);
    fixture.pass(MILLI);
    let _grant = served(&mut behind);
}

#[test]
fn refund_reaches_every_quota_and_the_ceiling() {
    let builder = Limiter::builder().quota(Quota::manual(10)).quota(one_per_milli(8).initial(8));
    let fixture = Fixture::built(builder.quota(Quota::new(6, DAY).stepped()).max_in_flight(6));
    let mut grant = fixture.take(6);
    grant.settle(1);
    let after = fixture.limiter.snapshot();
    assert_eq!(after.quotas.iter().map(|quota| quota.level).collect::<Vec<_>>(), [9, 7, 5]);
    assert_eq!((after.in_flight, after.granted, after.refunded), (Some(1), 6, 5));
}

#[test]
fn settle_twice_counts_the_latest_cost_and_cost_returns_it() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(100));
    let mut grant = fixture.take(40);
    for (actual, available) in [(25, 75), (60, 40), (60, 40), (0, 100), (99, 1), (40, 60)] {
        grant.settle(actual);
        assert_eq!((grant.cost(), fixture.limiter.available()), (actual, available));
        assert_eq!(fixture.limiter.snapshot().in_flight, Some(actual));
    }
    drop(grant);
    assert_eq!((fixture.limiter.available(), fixture.limiter.snapshot().in_flight), (60, Some(0)));
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

#[test]
fn settle_above_the_grant_is_charged_at_once_as_debt() {
    let fixture = Fixture::new(one_per_milli(5).initial(5));
    let mut grant = fixture.take(1);
    grant.settle(12);
    assert_eq!((fixture.limiter.available(), fixture.limiter.deficiency(), fixture.level()), (0, 7, -7));
    assert_eq!(fixture.denied(1).retry_after, Some(8 * MILLI));
    fixture.pass(7 * MILLI);
    assert_eq!((fixture.limiter.available(), fixture.limiter.deficiency()), (0, 0));
    fixture.pass(MILLI);
    assert_eq!(fixture.limiter.available(), 1);
}

#[test]
fn settle_above_the_grant_delays_later_claims_and_no_waiter() {
    let fixture = Fixture::new(one_per_milli(5).initial(5));
    let mut grant = fixture.take(5);
    let mut already_there = [2, 1].map(|cost| fixture.enter(cost));
    grant.settle(15);
    let mut newcomer = fixture.enter(1);
    fixture.pass(2 * MILLI);
    let _grant = served(&mut already_there[0]);
    fixture.pass(MILLI);
    let _grant = served(&mut already_there[1]);
    fixture.pass(11 * MILLI - NANO);
    waits(&mut newcomer);
    fixture.pass(NANO);
    let _grant = served(&mut newcomer);
}

#[test]
fn settle_above_the_grant_stays_a_debt_though_all_claims_before_it_leave() {
    let fixture = Fixture::new(one_per_milli(5).initial(5));
    let mut grant = fixture.take(5);
    let waiters = [2, 1].map(|cost| fixture.enter(cost));
    grant.settle(15);
    let mut newcomer = fixture.enter(1);
    drop(waiters);
    assert_eq!(fixture.level(), -10);
    fixture.pass(11 * MILLI - NANO);
    waits(&mut newcomer);
    fixture.pass(NANO);
    let _grant = served(&mut newcomer);
}

#[test]
fn settle_above_the_grant_is_in_flight_until_the_grant_is_dropped() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(10));
    let mut grant = fixture.take(4);
    grant.settle(10);
    let mut waiting = fixture.enter(1);
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(10));
    drop(grant);
    let _grant = served(&mut waiting);
}

#[test]
fn settle_above_the_grant_is_in_flight_at_once_also_while_others_wait() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(20).initial(4)).max_in_flight(10));
    let mut grant = fixture.take(4);
    let mut waiting = fixture.enter(3);
    grant.settle(8);
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(8));
    fixture.pass(3 * MILLI);
    // Its tokens are there, but eleven in flight would be one too many.
    waits(&mut waiting);
    grant.settle(7);
    let _grant = served(&mut waiting);
}

#[test]
fn ceiling_gates_and_what_is_minted_meanwhile_is_kept_up_to_the_burst() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(8)).max_in_flight(2));
    fixture.pass(2 * MILLI);
    let mut held = fixture.take(2);
    let mut waiters: Vec<_> = (0..20).map(|_| fixture.enter(2)).collect();
    for (held_for, kept) in [(1, 1), (4, 5), (100, 8)] {
        fixture.pass(held_for * MILLI);
        assert_eq!(fixture.level(), kept);
    }
    // Four times two tokens pass as fast as they are released, then the rate decides again.
    for waiting in &mut waiters[..4] {
        drop(std::mem::replace(&mut held, fixture.limiter.try_acquire(0).unwrap()));
        held = served(waiting);
    }
    drop(held);
    waits(&mut waiters[4]);
    fixture.pass(2 * MILLI);
    let _grant = served(&mut waiters[4]);
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
fn ceiling_and_burst_are_two_numbers() {
    let wide = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(9)).max_in_flight(2));
    let _two = wide.take(2);
    assert_eq!((wide.limiter.available(), wide.denied(1).by), (0, Bound::InFlight));
    let narrow = Fixture::built(Limiter::builder().quota(one_per_milli(1).initial(1)).max_in_flight(3));
    let _held = [(); 3].map(|()| {
        let grant = narrow.take(1);
        narrow.pass(MILLI);
        grant
    });
    assert_eq!((narrow.level(), narrow.denied(1).by), (1, Bound::InFlight));
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
    let _grant = served(&mut waiting);
    assert_eq!(fixture.limiter.release(1), Err(ReleaseError::TooMuch { asked: 1, owed: 0 }));
}

#[test]
fn releasing_a_settled_and_forgotten_grant_takes_its_latest_cost() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(100)).max_in_flight(10));
    let mut grant = fixture.take(4);
    grant.settle(7);
    grant.forget();
    assert_eq!(fixture.limiter.release(8), Err(ReleaseError::TooMuch { asked: 8, owed: 7 }));
    fixture.limiter.release(7).unwrap();
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(0));
}

#[test]
fn releasing_without_a_ceiling_is_an_error() {
    let fixture = Fixture::new(one_per_milli(5).initial(5));
    fixture.take(4).forget();
    assert_eq!(fixture.limiter.release(4), Err(ReleaseError::NotCapped));
    assert_eq!(fixture.limiter.available(), 1);
}

#[test]
fn replenishing_fills_the_manual_quotas_if_there_are_any() {
    let rate = Quota::new(1, DAY).burst(9).initial(1);
    let fixture = Fixture::built(Limiter::builder().quota(rate).quota(Quota::manual(9).initial(1)));
    fixture.limiter.replenish(5);
    let levels: Vec<_> = fixture.limiter.snapshot().quotas.iter().map(|quota| quota.level).collect();
    assert_eq!(levels, [1, 6]);
    let fixture = Fixture::new(rate);
    fixture.limiter.replenish(5);
    assert_eq!(fixture.level(), 6);
}
