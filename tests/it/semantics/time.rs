//! Fractions, idle time, and clocks that step back.

use super::*;

/// Advances in uneven steps, so that every reading leaves a fraction of a token, and compares with exact arithmetic.
fn exact_in_uneven_steps(quota: Quota, steps: u32, step: Duration) {
    let fixture = Fixture::new(quota.burst(1 << 61).initial(0));
    let (amount, period) = (u128::from(quota.amount()), quota.period().as_nanos());
    let mut elapsed = Duration::ZERO;
    let mut taken = 0;
    for turn in 0..steps {
        let time = step + NANO * (turn % 97);
        fixture.clock.advance(time);
        elapsed += time;
        let minted = (elapsed.as_nanos() * amount / period) as u64;
        assert_eq!(taken + fixture.limiter.available(), minted, "{quota}: after {elapsed:?}");
        let some = (minted - taken) / 3;
        let _grant = fixture.limiter.try_acquire(some).unwrap();
        taken += some;
    }
}

#[test]
fn fractions_are_exact_for_ten_years() {
    exact_in_uneven_steps(Quota::per_day(1), 40_000, Duration::from_secs(7_919));
    exact_in_uneven_steps(Quota::per_second(1_000_000_000), 3_652, DAY);
    exact_in_uneven_steps(Quota::per_second(1_000_000_000), 1_000, NANO);
    for quota in [
        Quota::per_second(3),
        Quota::per_minute(7),
        Quota::per_day(1_000_003),
        Quota::per_second(999_999_937),
        Quota::new(3, Duration::from_nanos(7)),
        Quota::new(1, 3_652 * DAY),
    ] {
        exact_in_uneven_steps(quota, 5_000, Duration::from_secs(50_021));
        exact_in_uneven_steps(quota, 5_000, NANO);
    }
}

#[test]
fn clock_that_steps_back_before_the_limiter_was_built_counts_as_no_time() {
    let fixture = Fixture::new(one_per_milli(10));
    fixture.clock.step_back(100 * DAY);
    assert_eq!(fixture.limiter.available(), 0);
    fixture.clock.advance(100 * DAY);
    assert_eq!(fixture.limiter.available(), 0);
    fixture.pass(2 * MILLI);
    assert_eq!(fixture.limiter.available(), 2);
}

/// Tokens taken without reading the clock are accounted for at the next reading: the bucket fills up again behind them.
#[test]
fn idle_after_the_fast_path_fills_the_whole_burst() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(100).initial(100)).stride(30));
    for _ in 0..100 {
        let _grant = fixture.limiter.try_acquire(1).unwrap();
    }
    for _ in 0..3 {
        fixture.pass(Duration::from_secs(1));
    }
    assert_eq!(fixture.limiter.available(), 100);
}
