//! Thousands of claims larger than any bucket, cancelled in every order.

use super::*;

const TENTH: Duration = Duration::from_millis(100);

/// An empty bucket of 10 tokens that gets 10 each second. The cap, if there is one, never delays a claim, but takes
/// part in the computation.
fn drained(builder: Builder, capped: bool) -> Limiter {
    let builder = if capped { builder.max_in_flight(MOST) } else { builder };
    builder.quota(Quota::per_second(10).initial(0)).build().unwrap()
}

fn giant(limiter: &Limiter) -> Option<Spawn<Consume<'_>>> {
    let claim = pending(limiter.consume(GIANT));
    Some(claim)
}

/// The numbers below `count` in a shuffled order.
type Order = fn(count: usize) -> Vec<usize>;

const ORDERS: [Order; 4] = [
    |count| (0..count).collect(),
    |count| (0..count).rev().collect(),
    |count| (0..count).step_by(2).chain((1..count).step_by(2).rev()).collect(),
    // 7919 is a prime and divides no count used here.
    |count| (0..count).map(|place| place * 7_919 % count).collect(),
];

#[test]
fn small_claims_between_thousands_of_giants_that_leave_are_served_to_the_nanosecond() {
    const PAIRS: usize = 1_000;
    for (order, capped) in ORDERS.into_iter().zip([false, true, true, false]) {
        everywhere(|builder, clock| {
            let limiter = drained(builder, capped);
            let mut queue = Queue::new(&limiter);
            let enter = |_| {
                queue.enter(1);
                [giant(&limiter), giant(&limiter)]
            };
            let mut giants: Vec<_> = (0..PAIRS).flat_map(enter).collect();
            assert_eq!(limiter.deficiency(), (2 * GIANT + 1) * PAIRS as u64);
            order(2 * PAIRS).into_iter().for_each(|index| giants[index] = None);
            assert_eq!(limiter.deficiency(), PAIRS as u64);
            for _ in 0..10 {
                clock.advance(TENTH - NANO);
                assert_eq!(queue.serve(), 0);
                clock.advance(NANO);
                assert_eq!(queue.serve(), 1);
            }
            clock.advance(TENTH * (PAIRS as u32 - 10) - NANO);
            assert_eq!((queue.serve(), queue.len()), (PAIRS as u64 - 11, 1));
            clock.advance(NANO);
            assert_eq!((queue.serve(), level(&limiter)), (1, 0));
            limiter.snapshot()
        });
    }
}

#[test]
fn giants_that_leave_behind_a_waiter_give_their_part_of_the_span_back_at_once() {
    everywhere(|builder, clock| {
        let limiter = drained(builder, true);
        let mut queue = Queue::new(&limiter);
        queue.enter(1);
        let most_giants = SPAN / GIANT - 1;
        let mut giants: Vec<_> = (0..most_giants).map(|_| giant(&limiter)).collect();
        let refused = too_large(GIANT, GIANT - 1, None);
        assert_eq!(queue.try_enter(GIANT), Err(refused));
        giants.clear();
        giants.push(giant(&limiter));
        drop(giants);
        queue.enter(1);
        clock.advance(TENTH);
        assert_eq!(queue.serve(), 1);
        clock.advance(TENTH);
        assert_eq!((queue.serve(), limiter.available(), limiter.deficiency()), (1, 0, 0));
        limiter.snapshot()
    });
}

#[test]
fn more_giants_come_and_go_than_there_are_positions() {
    const EACH: u64 = 8_000;
    let clock = ManualClock::new();
    let limiter = drained(Limiter::builder().clock(clock.clone()), true);
    let rounds = u64::MAX / (GIANT * EACH) + 2;
    for round in 1..=rounds {
        let mut queue = Queue::new(&limiter);
        queue.enter(1);
        drop((0..EACH).map(|_| giant(&limiter)).collect::<Vec<_>>());
        clock.advance(TENTH);
        assert_eq!(queue.serve(), 1);
        let snapshot = limiter.snapshot();
        assert_eq!((snapshot.granted, snapshot.in_flight, snapshot.quotas[0].level), (round, Some(0), 0));
    }
}

/// The giants are granted in the nanosecond of their arrival and dropped before they see it: their tokens go back, up
/// to the burst.
#[test]
fn giants_dropped_after_they_were_granted_give_everything_back() {
    const COUNT: u64 = 1_000;
    everywhere(|builder, clock| {
        let quota = Quota::new(u64::MAX, NANO).burst(MOST).initial(0);
        let limiter = builder.quota(quota).max_in_flight(MOST).build().unwrap();
        let mut giants: Vec<_> = (0..COUNT).map(|_| giant(&limiter)).collect();
        tick_after(clock, &limiter, NANO);
        assert_eq!(limiter.snapshot().in_flight, Some(COUNT * GIANT));
        for waiting in giants.iter_mut().skip(1).step_by(2) {
            assert_eq!(waiting.take().unwrap().poll().map(|answer| answer.unwrap().cost()), Poll::Ready(GIANT));
        }
        drop(giants);
        let snapshot = limiter.snapshot();
        assert_eq!((snapshot.in_flight, snapshot.refunded), (Some(0), COUNT / 2 * GIANT));
        assert_eq!(limiter.available(), MOST - COUNT / 2 * GIANT);
        snapshot
    });
}

/// A grant that is settled up thousands of times has more tokens in flight than any cap allows. When it is dropped, or
/// forgotten and released at once, the next waiter is served.
#[test]
fn more_tokens_than_any_cap_are_released_at_once_and_the_waiter_is_served() {
    to_its_end(|| {
        for charges in [8_191, 8_192, 16_383, 16_384, 16_385, 20_000, 24_576, 40_000] {
            for cap in [1, MOST] {
                everywhere_near(|builder, clock| {
                    let quota = Quota::new(u64::MAX, NANO).burst(MOST);
                    let limiter = builder.quota(quota).max_in_flight(cap).build().unwrap();
                    let mut grant = limiter.try_acquire(1).unwrap();
                    // These fill the cap. The others wait behind the waiter.
                    let fill = cap / GIANT;
                    (0..fill).for_each(|_| grant.settle(u64::MAX));
                    let mut queue = Queue::new(&limiter);
                    queue.enter(1);
                    (0..charges).for_each(|_| grant.settle(u64::MAX));
                    let flies = grant.cost();
                    assert!(flies == 1 + (fill + charges) * GIANT || (SPAN..cap + SPAN).contains(&flies), "{flies}");
                    limiter.set_max_in_flight(1).unwrap();
                    assert_eq!(limiter.snapshot().in_flight, Some(flies));
                    // Enough for the debts, so that only the cap delays the waiter.
                    clock.advance(NANO);
                    if charges % 2 == 0 {
                        drop(grant);
                    } else {
                        grant.forget();
                        assert!(limiter.release(flies + 1).is_err());
                        limiter.release(flies).unwrap();
                    }
                    let snapshot = limiter.snapshot();
                    assert_eq!((snapshot.waiting_tasks, snapshot.in_flight), (0, Some(1)));
                    assert_eq!(queue.granted().len(), 1);
                });
            }
        }
    });
}
