//! The largest numbers, the smallest, and those beyond the limits.

use super::*;

#[test]
fn a_change_beyond_the_legal_changes_nothing() {
    everywhere(|builder, _| {
        let limiter = builder.quota(Quota::per_second(3).burst(7)).max_in_flight(5).build().unwrap();
        let before = limiter.snapshot();
        for quota in [Quota::per_second(u64::MAX), Quota::per_second(0), Quota::new(1, Duration::MAX)] {
            assert!(limiter.set_quota(0, quota).is_err());
        }
        assert!(limiter.set_quota(usize::MAX, Quota::per_second(1)).is_err());
        assert!(limiter.set_quota("unknown", Quota::per_second(1)).is_err());
        assert!(limiter.set_max_in_flight(u64::MAX).is_err() && limiter.set_max_in_flight(0).is_err());
        assert!(limiter.release(u64::MAX).is_err() && limiter.release(1).is_err());
        assert_eq!(limiter.snapshot(), before);
        before
    });
}

/// Every call with a cost, on an empty queue and on one with waiters.
#[test]
fn a_cost_of_everything_is_refused_by_every_verb_and_takes_nothing() {
    everywhere(|builder, _| {
        let limiter = builder.quota(Quota::per_second(3).burst(7)).build().unwrap();
        let mut queue = Queue::new(&limiter);
        for waiting in 0..2 {
            for cost in [u64::MAX, u64::MAX - 1, 1 << 63, SPAN, GIANT + 1] {
                let refused = TryAcquireError::TooLarge { cost, most: 7, by: Bound::Quota(0), quota_name: None };
                assert_eq!(limiter.try_acquire(cost).unwrap_err(), refused);
                let refused = too_large(cost, GIANT, None);
                assert_eq!(queue.try_enter(cost), Err(refused));
                assert_eq!(
                    spawn(limiter.consume(cost).within(YEAR)).poll().map(Result::unwrap_err),
                    Poll::Ready(refused)
                );
                assert_eq!(limiter.blocking_consume(cost).unwrap_err(), refused);
                let mut owned = spawn(limiter.clone().consume_owned(cost));
                assert_eq!(owned.poll().map(Result::unwrap_err), Poll::Ready(refused));
                assert_eq!(limiter.estimate(cost), None);
            }
            let snapshot = limiter.snapshot();
            assert_eq!((snapshot.granted, snapshot.waiting_tasks), (0, waiting));
            queue.enter(GIANT);
        }
        limiter.snapshot()
    });
}

#[test]
fn the_largest_burst_passes_at_once_and_not_a_token_more() {
    everywhere(|builder, clock| {
        let each_nano = Quota::new(u64::MAX, NANO).burst(MOST);
        let builder = builder.quota(Quota::per_second(1).burst(MOST)).quota(each_nano).max_in_flight(MOST);
        let limiter = builder.build().unwrap();
        let grant = limiter.try_acquire(MOST).unwrap();
        let full = denied(limiter.try_acquire(1));
        assert_eq!((full.by, full.retry_after, full.remaining), (Bound::InFlight, None, 0));
        drop(grant);
        let empty = denied(limiter.try_acquire(1));
        assert_eq!((empty.by, empty.retry_after), (Bound::Quota(0), Some(SECOND)));
        clock.advance(SECOND);
        drop(limiter.try_acquire(1).unwrap());
        assert_eq!(limiter.available(), 0);
        limiter.snapshot()
    });
}

/// Then a burst per nanosecond, whatever the rate: time is counted in whole nanoseconds.
#[test]
fn more_tokens_in_a_nanosecond_than_the_bucket_holds() {
    everywhere(|builder, clock| {
        let limiter = builder.quota(Quota::new(u64::MAX, NANO).burst(MOST).initial(0)).build().unwrap();
        let mut queue = Queue::new(&limiter);
        for _ in 0..SPAN / GIANT {
            queue.enter(GIANT);
        }
        assert_eq!(queue.try_enter(1), Err(too_large(1, 0, None)), "the rovers span no more");
        clock.advance(NANO);
        assert_eq!(queue.serve(), MOST);
        assert_eq!(
            (level(&limiter), limiter.estimate(1)),
            (0, Some(NANO * 2)),
            "one nanosecond for the waiters, one for the next"
        );
        clock.advance(NANO);
        assert_eq!((queue.serve(), queue.len()), (MOST, 0));
        clock.advance(YEAR);
        assert_eq!(limiter.available(), MOST);
        limiter.snapshot()
    });
}

#[test]
fn a_claim_above_the_most_is_refused_whether_the_fast_path_is_open_or_not() {
    for stride in [0, 1 << 50] {
        let limiter = Limiter::builder().quota(Quota::per_second(1).burst(MOST)).stride(stride).build().unwrap();
        drop(limiter.try_acquire(1).unwrap());
        let answer = spawn(limiter.consume(GIANT + 1)).poll().map(|answer| answer.map(|grant| grant.cost()));
        let refused = too_large(GIANT + 1, GIANT, None);
        assert_eq!(answer, Poll::Ready(Err(refused)), "with a stride of {stride}");
    }
}

#[test]
fn replenishing_everything_fills_to_the_burst_or_for_the_front() {
    everywhere(|builder, _| {
        let limiter = builder.quota(Quota::manual(10).initial(0)).build().unwrap();
        for _ in 0..3 {
            limiter.replenish(u64::MAX);
            assert_eq!(limiter.available(), 10);
        }
        drop(limiter.try_acquire(10).unwrap());
        let mut queue = Queue::new(&limiter);
        [GIANT, 7, 7].into_iter().for_each(|cost| queue.enter(cost));
        limiter.replenish(u64::MAX);
        assert_eq!(queue.serve(), GIANT, "the tokens that the first waiter lacks, and none for the next");
        limiter.replenish(u64::MAX);
        assert_eq!((queue.serve(), level(&limiter)), (7, 3));
        limiter.replenish(u64::MAX);
        assert_eq!((queue.serve(), level(&limiter)), (7, 3));
        limiter.snapshot()
    });
}

/// A larger cost never has a shorter estimate, and no cost is too large for `estimate`.
#[test]
fn everything_can_be_estimated() {
    let costs = [0, 1, 9, 10, 11, GIANT - 1, GIANT, GIANT + 1, MOST, SPAN, 1 << 63, u64::MAX];
    let quotas: [&[Quota]; 5] = [
        &[Quota::per_second(10)],
        &[Quota::new(1, YEAR * 100).burst(10), Quota::new(u64::MAX, NANO).burst(MOST)],
        &[Quota::new(7, Duration::from_nanos(u64::MAX)).stepped(), Quota::per_second(10)],
        &[Quota::manual(10), Quota::per_second(10)],
        &[Quota::new(MOST, NANO).stepped(), Quota::new(1, NANO).burst(1)],
    ];
    for quotas in quotas {
        everywhere(|builder, _| {
            let limiter = quotas.iter().fold(builder, |builder, quota| builder.quota(*quota)).build().unwrap();
            let mut queue = Queue::new(&limiter);
            let mut noted = Vec::new();
            for round in 0..4 {
                let waits = costs.map(|cost| limiter.estimate(cost));
                let known: Vec<Duration> = waits.into_iter().map_while(|wait| wait).collect();
                assert!(known.is_sorted(), "{waits:?}");
                assert!(waits[known.len()..].iter().all(Option::is_none), "{waits:?}");
                noted.push(waits);
                match round {
                    0 => drop(limiter.try_acquire(1).unwrap()),
                    1 => [GIANT, GIANT, 1].into_iter().for_each(|cost| queue.enter(cost)),
                    _ => limiter.pause_for(Duration::MAX),
                }
            }
            noted
        });
    }
}

/// The caller counts its releases. A caller that does not has a larger cap, and its bucket is still a bucket.
#[test]
fn a_bucket_with_releases_that_were_never_granted_keeps_its_rate() {
    for wrong in
        [1, MOST - 1, MOST, MOST + 1, SPAN - 1, SPAN, SPAN + 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX]
    {
        for times in [1, 2, 3, 9] {
            let bucket = Bucket::capped(Quota::new(1, NANO).burst(5), 2, Duration::ZERO).unwrap();
            let mut granted = 0;
            let mut waiting = VecDeque::new();
            for nanos in 0..60 {
                (0..times).for_each(|_| bucket.release(wrong));
                waiting.push_back(bucket.grab(1));
                waiting.push_back(bucket.grab(1));
                bucket.replenish(Duration::from_nanos(nanos));
                while waiting.pop_front_if(|ticket| bucket.deficiency(*ticket) == 0).is_some() {
                    granted += 1;
                }
            }
            // The releases are read with the second grab at the earliest.
            assert!((60..=64).contains(&granted), "{granted} granted after {times} times {wrong}");
        }
    }
}
