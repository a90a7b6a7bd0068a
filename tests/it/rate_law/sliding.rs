//! How much of its amount a sliding window grants. `oracle_histories` checks its law in random histories.

use crate::fixture::*;

/// A saturated limiter grants at least 31 of 32 parts of its amount in each period.
#[test]
fn a_saturated_window_grants_nearly_its_whole_amount() {
    for (amount, period) in
        [(1, 1_000), (33, 1_000), (34, 1_000), (60, 60_000_000_007), (1_000_003, 86_400_000_000_000)]
    {
        let quota = Quota::new(amount, Duration::from_nanos(period)).sliding();
        for cost in [1, amount.div_ceil(7), amount] {
            let (limiter, clock) = built(Limiter::builder().quota(quota));
            let step = period / 977 + 1;
            let mut granted = 0;
            for _ in 0..(50 * period).div_ceil(step) {
                let available = limiter.available() / cost * cost;
                granted += available;
                if available > 0 {
                    drop(limiter.try_acquire(available).unwrap());
                }
                clock.advance(Duration::from_nanos(step));
            }
            let least = u128::from(amount / cost * cost) * 50 * 31 / 32;
            assert!(u128::from(granted) >= least, "{granted} of {least} by {quota} in claims of {cost}");
        }
    }
}
