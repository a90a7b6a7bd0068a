//! Seed 000, better-bucket: its adversarial suite and its construction errors. Its three properties are those of
//! `oracle_histories`, its stress test is in `races.rs`, its allocation audit in `tests/alloc.rs`, and its loom models
//! are in `tests/loom`.

use super::On::Each;
use super::{MOST, NANO, SECOND, YEAR, scripts};
use crate::fixture::*;

scripts! {
    hostile_requests_are_refused_and_take_nothing: Each(Quota::per_second(10)), [11, 1 << 32, 1 << 48, u64::MAX / 2, u64::MAX]
        .map(|cost| format!("try {cost} -> at most 10; replenish {cost}; available -> 10\n")).concat() + "try 10 -> 0 left";

    /// In the sixteenth turn, more tokens were granted than 64 bits can count.
    a_rate_that_is_near_infinite_does_not_wrap: Each(Quota::new(u64::MAX, NANO).burst(MOST).initial(0)), format!("
        available -> 0
        20 times: pass 1ns; available -> {MOST}; try {MOST} -> 0 left; pass 10y; try {MOST} -> 0 left; available -> 0");

    a_product_of_rate_and_time_beyond_64_bits_does_not_wrap: Each(Quota::new(1 << 63, NANO).burst(MOST).initial(0)), format!("
        pass 2ns; available -> {MOST}");

    /// 600 tokens in 584 years: one in 355 days.
    a_rate_that_is_near_zero_is_kept: Each(Quota::new(600, Duration::from_nanos(u64::MAX)).burst(1_000).initial(0)),
        (1..=2_000).map(|looks| {
            let due = looks * 8_640_000_000_000_000 * 600 / u128::from(u64::MAX);
            format!("pass 100d; available -> {due}\n")
        }).collect::<String>();

    a_wait_beyond_the_end_of_time_is_not_foretold: Each(Quota::new(1, YEAR * 100).burst(10).initial(0)), "
        estimate 5 -> 15768000000s; try 5 -> denied, 0 left, retry in 15768000000s
        estimate 6 -> never;        try 6 -> denied, 0 left, retry in never
        pass 300y;                  try 5 -> denied, 3 left, retry in 6307200000s; try 6 -> denied, 3 left, retry in never";

    zero_time_brings_nothing: Each(Quota::per_second(1_000_000_000).burst(10)), "
        try 10 -> 0 left
        1000 times: pass 0ns; ones 1 -> 0 granted, 1 denied";

    multi_year_advances_fill_the_bucket_once: Each(Quota::per_day(10)), "
        5 times: ones 11 -> 10 granted, 1 denied; pass 100y; available -> 10";

    multi_year_advances_fill_a_stepped_bucket_once: Each(Quota::per_day(10).stepped()), "
        5 times: ones 11 -> 10 granted, 1 denied; pass 100y; available -> 10";

    /// 2^32 milliseconds are 49.7 days.
    idle_for_49_days_the_bucket_is_full_and_no_more: Each(Quota::per_second(10)), "
        pass 4294967296ms-1ms; ones 11 -> 10 granted, 1 denied
        pass 4294967296ms;     ones 11 -> 10 granted, 1 denied
        pass 4294967297ms;     ones 11 -> 10 granted, 1 denied; pass 100ms; ones 2 -> 1 granted, 1 denied";

    /// Slow enough that the bucket never fills. better-bucket mints too little here.
    idle_for_49_days_and_a_century_each_token_is_counted: Each(Quota::per_minute(7).burst(1 << 40).initial(0)), "
        at 4294967296ms; available -> 501079; pass 4294967296ms; available -> 1002159; at 100y; available -> 367920000";
}

/// The capacity boundary matrix.
#[test]
fn at_the_boundaries_of_each_capacity_what_fits_fits() {
    let words = [1 << 16, 1 << 32, 4_294_967, MOST];
    let near = words.into_iter().flat_map(|at: u64| [at - 1, at, (at + 1).min(MOST)]);
    for capacity in [1, 2, 3, 63, 64, 65].into_iter().chain(near) {
        Each(Quota::per_second(1).burst(capacity)).run(&format!(
            "try {} -> at most {capacity}; try {} -> 1 left; try 1 -> 0 left; try 1 -> denied, 0 left, retry in 1s",
            capacity + 1,
            capacity - 1
        ));
    }
}

#[test]
fn construction_rejects_nonsensical_configurations() {
    let second = Quota::per_second(12);
    let ages = Duration::from_nanos(u64::MAX) + NANO;
    for (refused, reason) in [
        (Quota::per_second(0), QuotaError::ZeroAmount),
        (Quota::new(5, Duration::ZERO), QuotaError::BadPeriod { period: Duration::ZERO }),
        (Quota::new(5, ages), QuotaError::BadPeriod { period: ages }),
        (Quota::manual(0), QuotaError::BadBurst { burst: 0, most: MOST }),
        (second.burst(MOST + 1), QuotaError::BadBurst { burst: MOST + 1, most: MOST }),
        (second.burst(7).stepped(), QuotaError::StepAboveBurst { amount: 12, burst: 7 }),
        (second.initial(41), QuotaError::InitialAboveBurst { initial: 41, burst: 12 }),
    ] {
        let builder = Limiter::builder().quota(Quota::new(1, SECOND)).quota(refused);
        assert_eq!(builder.build().unwrap_err(), ConfigError::BadQuota { quota: 1, quota_name: None, reason });
    }
    for legal in [second.burst(MOST), second.burst(1), second.stepped(), second.initial(12), Quota::new(1, ages - NANO)]
    {
        assert!(Limiter::new(legal).is_ok(), "{legal}");
    }
}
