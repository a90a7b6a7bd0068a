//! Seed 004, the token bucket course: its five tests and its bonus points. The race is in `races.rs`.

use super::On::Each;
use super::On::Keys;
use super::scripts;
use crate::fixture::*;

scripts! {
    full_bucket_allows_capacity: Each(Quota::per_second(5).burst(10)), "
        ones 9 -> 9 granted, 0 denied; try 1 -> 0 left; try 1 -> denied, 0 left, retry in 200ms";

    /// The wait for the next token and not for a full bucket.
    denial_carries_retry_after: Each(Quota::per_second(4).burst(10)), "
        try 10 -> 0 left; try 1 -> denied, 0 left, retry in 250ms
        at 240ms; try 1 -> denied, 0 left, retry in 10ms; at 250ms; try 1 -> 0 left";

    /// A third of a second in whole nanoseconds, rounded up, so that one retry is enough.
    denial_carries_a_retry_after_that_is_neither_early_nor_late: Each(Quota::per_second(3).burst(7)), "
        try 7 -> 0 left
        try 1 -> denied, 0 left, retry in 333.333334ms; pass 333333333ns; try 1 -> denied, 0 left, retry in 1ns
        pass 1ns; try 1 -> 0 left
        try 1 -> denied, 0 left, retry in 333.333333ms; pass 333333332ns; try 1 -> denied, 0 left, retry in 1ns
        pass 1ns; try 1 -> 0 left; at 1s-1ns; try 1 -> denied, 0 left, retry in 1ns; at 1s; try 1 -> 0 left";

    refill_restores_tokens: Each(Quota::per_second(5).burst(10)), "
        try 10 -> 0 left
        20 times: pass 200ms; try 1 -> 0 left; try 1 -> denied, 0 left, retry in 200ms";

    /// The course's own trap: a bucket that drops fractions would never refill.
    refill_of_half_a_token_between_calls_is_not_lost: Each(Quota::per_second(10)), "
        try 10 -> 0 left
        50 times: pass 50ms; try 1 -> denied, 0 left, retry in 50ms; pass 50ms; try 1 -> 0 left";

    bonus_a_call_may_cost_more_than_one_token: Each(Quota::per_second(10).burst(25)), "
        try 26 -> at most 25; try 10 -> 15 left; try 10 -> 5 left
        try 10 -> denied, 5 left, retry in 500ms; try 5 -> 0 left; try 0 -> 0 left
        at 999ms; try 10 -> denied, 9 left, retry in 1ms; at 1s; try 10 -> 0 left";
}

scripts! {
    per_key_isolated: Keys(Quota::per_second(1).burst(3)), "
        ones 4 -> 3 granted, 1 denied
        key b; try 1 -> 2 left; try 1 -> 1 left; try 1 -> 0 left
        pass 1s; key a; ones 2 -> 1 granted, 1 denied; key b; ones 2 -> 1 granted, 1 denied";
}

#[test]
fn bonus_churning_identifiers_do_not_grow_the_map_beyond_max_keys() {
    let clock = tollgate::ManualClock::new();
    let builder = tollgate::KeyedLimiter::builder().quota(Quota::per_second(1).burst(2)).clock(clock.clone());
    let keyed: tollgate::KeyedLimiter<u32> = builder.max_keys(100).build().unwrap();
    for key in 0..10_000 {
        assert!(keyed.try_acquire(&key, 1).is_ok(), "key {key}");
        clock.advance(crate::fixture::MILLI * 10);
        assert!(keyed.snapshot().keys <= 100);
    }
}
