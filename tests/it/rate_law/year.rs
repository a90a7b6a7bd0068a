//! A year of traffic compared with the closed form, to the token.

use crate::fixture::*;

const HOUR: u64 = 3_600_000_000_000;
const YEAR: u64 = 365 * 24 * HOUR;

/// Each busy time begins with a full bucket and ends when the remaining claims are cancelled: it is granted the burst
/// and the rate since its first nanosecond.
#[test]
fn a_year_of_busy_and_quiet_times_grants_a_burst_and_the_rate_in_each() {
    const AMOUNT: u64 = 700;
    let quota = Quota::new(AMOUNT, Duration::from_nanos(HOUR)).burst(25);
    let (limiter, clock) = built(Limiter::builder().quota(quota));
    let mut random = fastrand::Rng::with_seed(11);
    let (mut now, mut passed, mut allowed) = (0, 0, 0);
    while now < YEAR {
        // 25 tokens take 129 seconds.
        let calm = 130_000_000_000 + random.u64(..3 * HOUR);
        let rush = random.u64(..HOUR / 4);
        clock.advance(Duration::from_nanos(calm));
        // Every other time, no call has been made since the bucket became full.
        assert!(calm.is_multiple_of(2) || limiter.available() == 25);
        let mut waiters: VecDeque<_> = (0..200).map(|_| spawn(limiter.consume(1 + random.u64(..5)))).collect();
        passed += (0..25).filter(|_| limiter.try_acquire(1).is_ok()).count() as u64;
        waiters.iter_mut().for_each(|claim| assert!(claim.poll().is_pending()));
        for step in [rush / 3, rush - rush / 3] {
            tick_after(&clock, &limiter, Duration::from_nanos(step));
            while let Some(mut claim) = waiters.pop_front_if(|claim| claim.is_woken()) {
                assert!(matches!(claim.poll(), Poll::Ready(Ok(grant)) if { passed += grant.cost(); true }));
            }
        }
        drop(waiters);
        passed += (0..25).filter(|_| limiter.try_acquire(1).is_ok()).count() as u64;
        allowed += 25 + rush * AMOUNT / HOUR;
        now += calm + rush;
        assert_eq!(passed, allowed, "in the busy time that ended at {now}");
    }
}

/// Real tasks wait on tokio's paused clock, and the replenisher serves them: timers are late by a millisecond, and that
/// costs nothing.
#[tokio::test(start_paused = true)]
async fn a_year_of_waiting_tasks_grants_the_burst_and_the_rate_to_the_token() {
    // Never a whole number of milliseconds.
    let quota = Quota::new(20_011, Duration::from_nanos(YEAR + 13)).burst(9);
    let limiter = Limiter::new(quota).unwrap();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for cost in [1, 2, 3, 5, 9, 14] {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            loop {
                drop(limiter.clone().consume_owned(cost).await.unwrap());
            }
        });
    }
    for week in 1..=52 {
        let at = Duration::from_nanos(YEAR / 52 * week);
        sleep_until(start + at).await;
        limiter.tick();
        let snapshot = limiter.snapshot();
        let passed = i128::from(snapshot.granted) + i128::from(snapshot.quotas[0].level);
        assert_eq!(passed, 9 + start.elapsed().as_nanos() as i128 * 20_011 / i128::from(YEAR + 13), "in week {week}");
        assert!(snapshot.lateness < Duration::from_millis(2), "{:?}", snapshot.lateness);
    }
}
