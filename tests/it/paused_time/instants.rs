//! The instants at which waiters are granted.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_idle_day_and_an_idle_year_are_worth_a_burst() {
    let limiter = Limiter::new(Quota::per_second(1_000).burst(20)).unwrap();
    for idle in [DAY, 365 * DAY] {
        let _drained = limiter.consume(20).await.unwrap();
        sleep(idle).await;
        let start = Instant::now();
        for n in 1..=30_u32 {
            let _grant = limiter.consume(1).await.unwrap();
            assert_eq!(Instant::now(), start + n.saturating_sub(20) * MILLI);
        }
        sleep(DAY).await;
    }
}

/// Far beyond the range of a tokio timer.
#[tokio::test(start_paused = true)]
async fn a_wait_of_ten_years_ends_on_its_day() {
    let limiter = Limiter::new(Quota::per_day(1).initial(0)).unwrap();
    let start = Instant::now();
    let (first, second) = (enter(&limiter, 3_652).await, enter(&limiter, 1).await);
    assert_eq!(first.await.unwrap().0, start + 3_652 * DAY);
    assert_eq!(second.await.unwrap().0, start + 3_653 * DAY);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_waits_does_not_drift() {
    let limiter = Limiter::new(Quota::per_second(3).burst(1).initial(0)).unwrap();
    let start = Instant::now();
    for n in 1..=3_000_u64 {
        let _grant = limiter.consume(1).await.unwrap();
        let due = Duration::from_nanos((n * 1_000_000_000).div_ceil(3));
        let late = start.elapsed().checked_sub(due).expect("the claim was granted early");
        assert!(late < MILLI, "claim {n} was {late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn claims_due_between_two_timer_ticks_are_granted_with_the_next() {
    let limiter = Limiter::new(Quota::per_second(1_000_000).burst(1).initial(0)).unwrap();
    let start = Instant::now();
    let mut waiters = vec![];
    for _ in 0..5_000 {
        waiters.push(enter(&limiter, 1).await);
    }
    assert_eq!(Instant::now(), start);
    for (place, waiting) in (1..).zip(waiters) {
        let late = waiting.await.unwrap().0 - start - Duration::from_micros(place);
        assert!(late < MILLI, "claim {place} was {late:?} late");
    }
    assert_eq!(start.elapsed(), 5 * MILLI);
}

// ---- changes while a driver sleeps ----

/// 100 tokens are in flight from 100 ms on, and a claim for 80 waits. Some time later there is a change, and the claim is
/// granted at this instant.
#[tokio::test(start_paused = true)]
async fn each_change_lets_the_front_pass_at_its_new_instant() {
    type Change = fn(&tollgate::Limiter, &mut Option<Grant<'_>>);
    const FASTER: Quota = Quota::per_second(10_000).burst(1_000);
    const SLOWER: Quota = Quota::per_second(100).burst(1_000);
    let changes: [(&str, u32, u32, Change); 8] = [
        ("a refund of all that is missing", 10, 110, |_, held| held.as_mut().unwrap().settle(30)),
        ("a refund of a part", 10, 140, |_, held| held.as_mut().unwrap().settle(60)),
        ("a faster rate", 10, 117, |limiter, _| limiter.set_quota(0, FASTER).unwrap()),
        ("a slower rate", 10, 810, |limiter, _| limiter.set_quota(0, SLOWER).unwrap()),
        ("a pause", 10, 310, |limiter, _| limiter.pause_for(200 * MILLI)),
        ("a release, long after the tokens came", 500, 600, |_, held| *held = None),
        ("a replenish of a part", 10, 150, |limiter, _| limiter.replenish(30)),
        ("a replenish of all", 10, 110, |limiter, _| limiter.replenish(70)),
    ];
    for (name, later, due, change) in changes {
        let (limiter, start) = thousand_a_second(Limiter::builder().max_in_flight(if later > 10 { 150 } else { 200 }));
        let mut held = Some(limiter.consume(100).await.unwrap());
        let waiting = enter(&limiter, 80).await;
        sleep(later * MILLI).await;
        change(&limiter, &mut held);
        assert_eq!(waiting.await.unwrap().0, start + due * MILLI, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_a_claim_costs_the_others_nothing() {
    let (limiter, start) = thousand_a_second(Limiter::builder());
    let mut waiters = vec![];
    for _ in 0..10 {
        let cancelled = limiter.clone().consume_owned(500);
        tokio::spawn(tokio::time::timeout(5 * MILLI, cancelled));
        waiters.push(enter(&limiter, 10).await);
    }
    for (place, waiting) in (1..).zip(waiters) {
        assert_eq!(waiting.await.unwrap().0, start + place * 10 * MILLI);
    }
}

#[tokio::test(start_paused = true)]
async fn another_clock_that_moves_by_itself_is_served_at_its_instants() {
    let base = Instant::now();
    sleep(7 * MILLI).await;
    let (limiter, start) = thousand_a_second(Limiter::builder().clock(ClockFn::moving(move || base.elapsed())));
    for n in 1..=10_u32 {
        let _grant = limiter.consume(5).await.unwrap();
        assert_eq!(Instant::now(), start + 5 * n * MILLI);
    }
}

/// Ticks are counted from the start of the runtime, and instants from the start of the limiter.
#[tokio::test(start_paused = true)]
async fn a_claim_due_between_two_timer_ticks_is_granted_with_the_next() {
    tokio::time::advance(Duration::from_micros(370)).await;
    let (limiter, start) = thousand_a_second(Limiter::builder());
    for turn in 1..=10 {
        let _grant = limiter.consume(1).await.unwrap();
        assert_eq!(start.elapsed(), turn * MILLI);
    }
}
