//! Seed 001, the 120-line bucket: its five tests, made exact by a manual clock, and the edge cases that its authors ran
//! into. Its test of a hundred threads is in `races.rs`.

use super::On::{Each, From};
use super::{NANO, SECOND, scripts};
use crate::fixture::*;

/// The last 100 ms before a clock of 32 bits wraps that counts in this many nanoseconds.
fn before_the_wrap_of(unit: u64) -> Duration {
    Duration::from_nanos((1 << 32) * unit) - Duration::from_millis(100)
}

const WRAP: &str = "
    try 20 -> 0 left
    at 99ms; available -> 0; at 100ms; available -> 1; at 1050ms; available -> 10; try 10 -> 0 left
    at 1100ms; ones 2 -> 1 granted, 1 denied";

scripts! {
    rate_enforcement_at_twice_the_rate_denies_half: Each(Quota::per_second(100).burst(1).initial(0)), "
        1000 times: pass 5ms; ones 1 -> 0 granted, 1 denied; pass 5ms; ones 1 -> 1 granted, 0 denied
        requests -> 2000; granted -> 1000";

    /// Half a token comes for each one taken: the burst lasts for twice as many requests.
    rate_enforcement_from_a_full_bucket: Each(Quota::per_second(100)), "
        199 times: ones 1 -> 1 granted, 0 denied; pass 5ms
        500 times: ones 1 -> 0 granted, 1 denied; pass 5ms; ones 1 -> 1 granted, 0 denied; pass 5ms";

    burst_capacity: Each(Quota::per_second(1).burst(1000)), "
        ones 1001 -> 1000 granted, 1 denied";

    refill_correctness: Each(Quota::per_second(10).burst(100)), "
        try 100 -> 0 left; pass  100ms; available ->  1; try  1 -> 0 left
        pass 300ms; available -> 3; try 3 -> 0 left; pass 5s-1ns; available -> 49; pass 1ns; available -> 50; try 50 -> 0 left
        pass 10s; available -> 100; ones 101 -> 100 granted, 1 denied";

    clock_wrap_of_nanoseconds: From(before_the_wrap_of(1), Quota::per_second(10).burst(20)), WRAP;
    clock_wrap_of_microseconds: From(before_the_wrap_of(1_000), Quota::per_second(10).burst(20)), WRAP;
    clock_wrap_of_milliseconds: From(before_the_wrap_of(1_000_000), Quota::per_second(10).burst(20)), WRAP;

    /// By the age of the limiter, and not by its clock: after 71 minutes and after 49.7 days.
    clock_wrap_of_the_age: Each(Quota::per_second(10).burst(20)), "
        at    4294967296us; try 20 -> 0 left; pass 1050ms; available -> 10; try 10 -> 0 left; pass 50ms; ones 2 -> 1 granted, 1 denied
        at 4294967296000us; try 20 -> 0 left; pass 1050ms; available -> 10; try 10 -> 0 left; pass 50ms; ones 2 -> 1 granted, 1 denied";

    /// The last token ever comes in the last nanosecond. The wait is the usual one, as if time continued.
    clock_at_the_end_of_time: From(Duration::from_nanos(u64::MAX) - SECOND / 10, Quota::per_second(10).burst(20)), "
        try 20 -> 0 left; pass 100ms; available -> 1
        10 times: pass 1s; available -> 1
        ones 2 -> 1 granted, 1 denied; estimate 1 -> 100ms";

    /// Another thread read the clock before.
    clock_drift_across_cores: Each(Quota::per_second(10)), "
        try 10 -> 0 left; pass 250ms; tick; available -> 2
        back 200ms; tick; available -> 2; pass 200ms; tick; available -> 2; pass 50ms; ones 4 -> 3 granted, 1 denied";

    burst_at_startup_can_be_empty: Each(Quota::per_second(100).initial(0)), "
        ones 1000 -> 0 granted, 1000 denied
        at 10ms-1ns; ones 1 -> 0 granted, 1 denied; at 10ms; ones 2 -> 1 granted, 1 denied; pass 3600s; available -> 100";

    rounded_down_to_zero: Each(Quota::new(1, SECOND * 60).initial(0)), "
        599 times: pass 100ms; ones 1 -> 0 granted, 1 denied
        pass 100ms; ones 1 -> 1 granted, 0 denied
        599 times: pass 100ms; ones 1 -> 0 granted, 1 denied
        pass 100ms; ones 1 -> 1 granted, 0 denied";
}

/// Asked for at each look, no fraction of a token is lost at any rate.
#[test]
fn rounded_down_to_zero_at_other_rates() {
    for (amount, period, look) in [(7, SECOND * 60, SECOND / 10), (3, NANO * 10, NANO), (1_000_003, SECOND, NANO * 77)]
    {
        let due = |looks: u128| looks * look.as_nanos() * u128::from(amount) / period.as_nanos();
        let script = |looks| {
            let minted = due(looks) - due(looks - 1);
            format!("pass {}ns; available -> {minted}; try {minted} -> 0 left\n", look.as_nanos())
        };
        let quota = Quota::new(amount, period).burst(1_000_000).initial(0);
        Each(quota).run(&(1..=2_000).map(script).collect::<String>());
    }
}
