//! Quotas, caps and costs that change between extremes while claims wait.

use super::*;

/// Quotas that differ as much as possible.
fn extremes() -> [Quota; 8] {
    [
        Quota::per_second(1),
        Quota::new(u64::MAX, NANO).burst(MOST),
        Quota::new(1, Duration::from_nanos(u64::MAX)).burst(1),
        Quota::new(MOST, YEAR).burst(MOST).stepped(),
        Quota::manual(1),
        Quota::per_second(1_000_000_000).burst(1),
        Quota::manual(MOST),
        Quota::new(u64::MAX - 1, Duration::from_nanos(u64::MAX)).burst(3),
    ]
}

#[test]
fn a_storm_of_extreme_quotas_strands_no_claim() {
    let passing = [Duration::ZERO, NANO, SECOND, Duration::from_nanos(999_999_999), YEAR / 30];
    everywhere(|builder, clock| {
        let limiter = builder.quota(Quota::per_second(1)).quota(Quota::per_second(2)).build().unwrap();
        let mut queue = Queue::new(&limiter);
        let mut noted = Vec::new();
        for round in 0..1_000 {
            let quota = extremes()[round * 5 % 8];
            limiter.set_quota(round % 2, quota).unwrap();
            let _ = queue.try_enter([1, 2, GIANT, 3, 1_000][round % 5]);
            clock.advance(passing[round * 3 % 5]);
            let front_most = GIANT as i64;
            let snapshot = limiter.snapshot();
            for quota in &snapshot.quotas {
                assert!(quota.level <= front_most.max(quota.quota.capacity() as i64), "{quota:?}");
            }
            queue.granted();
            noted.push((snapshot, limiter.estimate(GIANT), limiter.estimate(1)));
            if round % 7 == 0 && queue.len() > 3 {
                queue.cancel(round % 3);
                queue.granted();
            }
        }
        [0, 1].iter().for_each(|index| limiter.set_quota(*index, Quota::new(GIANT, SECOND)).unwrap());
        queue.outlast(clock, SECOND, 1_000);
        noted
    });
}

#[test]
fn a_grant_settled_to_the_maximum_repeatedly_owes_at_most_the_rover_span() {
    everywhere(|builder, _| {
        let limiter = builder.quota(Quota::manual(100)).build().unwrap();
        let mut grant = limiter.try_acquire(40).unwrap();
        for _ in 0..SPAN / GIANT + 10 {
            grant.settle(u64::MAX);
        }
        let owed = grant.cost() - 100;
        assert!((SPAN - GIANT..=SPAN).contains(&owed), "{owed}");
        assert_eq!((limiter.deficiency(), limiter.available()), (owed, 0));
        let mut queue = Queue::new(&limiter);
        assert_eq!(queue.try_enter(1), Err(too_large(1, 0, None)));
        assert!(limiter.try_acquire(1).is_err());
        limiter.replenish(3);
        queue.enter(2);
        grant.settle(0);
        assert_eq!((queue.serve(), grant.cost(), limiter.available()), (2, 0, 98));
        limiter.snapshot()
    });
}

#[test]
fn a_grant_settled_to_the_maximum_under_a_cap_is_in_flight_and_released_as_a_whole() {
    everywhere(|builder, clock| {
        let builder = builder.quota(Quota::new(u64::MAX, NANO).burst(MOST)).max_in_flight(100);
        let limiter = builder.build().unwrap();
        for round in 0..3 {
            let mut grants = [limiter.try_acquire(40).unwrap(), limiter.try_acquire(40).unwrap()];
            for grant in &mut grants {
                (0..100).for_each(|_| grant.settle(u64::MAX));
            }
            let in_flight = grants.iter().map(Grant::cost).sum();
            assert_eq!(in_flight, 80 + 200 * GIANT);
            assert_eq!(limiter.snapshot().in_flight, Some(in_flight));
            let denied = denied(limiter.try_acquire(1));
            assert_eq!((denied.by, denied.retry_after), (Bound::InFlight, None));
            let mut queue = Queue::new(&limiter);
            queue.enter(100);
            clock.advance(SECOND);
            let [first, second] = grants;
            if round == 1 {
                first.forget();
                limiter.release(in_flight / 2).unwrap();
            } else {
                drop(first);
            }
            assert_eq!(queue.serve(), 0);
            drop(second);
            assert_eq!(queue.granted().len(), 1);
            assert_eq!((limiter.available(), limiter.snapshot().in_flight), (100, Some(0)));
        }
        limiter.snapshot()
    });
}

/// Debts of giants lie between the claims in the queue, some of which are cancelled. Tokens that are settled down again
/// come back up to the burst.
#[test]
fn debts_of_giants_between_waiters_strand_no_claim() {
    for capped in [false, true] {
        everywhere(|builder, clock| {
            let builder = if capped { builder.max_in_flight(MOST) } else { builder };
            let limiter = builder.quota(Quota::per_second(10)).build().unwrap();
            let mut grant = limiter.try_acquire(10).unwrap();
            let mut queue = Queue::new(&limiter);
            for round in 1..=300 {
                queue.enter(1 + round % 10);
                let owed = grant.cost();
                grant.settle(u64::MAX);
                assert_eq!(grant.cost(), owed + GIANT);
            }
            let waiting = limiter.snapshot().waiting_tokens;
            assert_eq!(limiter.deficiency(), 300 * GIANT + waiting);
            (0..100).for_each(|place| queue.cancel(place * 2));
            clock.advance(YEAR);
            assert_eq!(queue.serve(), 0, "the front was cancelled, and the debt behind it is due first");
            grant.settle(5);
            assert_eq!(queue.serve(), 3, "a burst came back; the next debt is larger");
            limiter.set_quota(0, Quota::new(GIANT, SECOND).burst(10)).unwrap();
            let left = limiter.snapshot().waiting_tokens;
            assert_eq!(queue.outlast(clock, SECOND, 400), left);
            drop(grant);
            clock.advance(SECOND);
            assert_eq!((level(&limiter), limiter.deficiency()), (10, 0));
            assert_eq!(limiter.snapshot().in_flight, capped.then_some(0));
            limiter.snapshot()
        });
    }
}

/// Settles up and down by giants, past more positions than `u64` has, while time pays the debts.
#[test]
fn a_grant_settled_up_and_down_repeatedly_keeps_exact_counts() {
    let quota = Quota::new(u64::MAX, NANO).burst(MOST);
    let (limiter, clock) = built(Limiter::builder().quota(quota).max_in_flight(MOST));
    let mut grant = limiter.try_acquire(5).unwrap();
    for round in 0..u64::MAX / GIANT + 1_000 {
        let before = grant.cost();
        grant.settle(u64::MAX);
        assert_eq!(grant.cost(), before + GIANT);
        clock.advance(NANO);
        grant.settle(round % 7);
        assert_eq!(limiter.snapshot().in_flight, Some(round % 7));
    }
    drop(grant);
    clock.advance(NANO);
    assert_eq!((limiter.available(), limiter.snapshot().in_flight), (MOST, Some(0)));
}
