//! Seed 003, the TokenBucket of chronos: Balanced is a plain quota, Strict is `.stepped()`, `fillDuration = 0` is
//! `Quota::manual`; `tryConsume` and `getAvailableCapacity` are `try_acquire` and `available`.
//!
//! The table of the old algorithm has the numbers of Scenario 1. That algorithm differs in the time that it saved up
//! while full: the comparison examples show that a limiter saves none.

use super::On::Each;
use super::{SECOND, scripts};
use crate::fixture::*;

scripts! {
    /// With the sums of the consumption summary: 15, 11 and 10 tokens in the three seconds.
    scenario_1_timeline: Each(Quota::new(10, SECOND)), "
        available -> 10; at    0ms; minted -> 0; available -> 10; try  7 -> 3 left; updated -> 0ns
        available ->  3; at  200ms; minted -> 2; available ->  5; try  5 -> 0 left; updated -> 200ms
        available ->  0; at  650ms; minted -> 4; available ->  4; try  3 -> 1 left; updated -> 600ms; granted -> 15
        available ->  1; at 1200ms; minted -> 6; available ->  7; try  6 -> 1 left; updated -> 1.2s
        available ->  1; at 1800ms; minted -> 6; available ->  7; try  5 -> 2 left; updated -> 1.8s;  granted -> 26
        available ->  2; at 2100ms; minted -> 3; available ->  5; try 10 -> denied, 5 left, retry in 500ms; updated -> 2.1s
        available ->  5; at 2600ms; minted -> 5; available -> 10; try 10 -> 0 left; updated -> 2.6s;  granted -> 36";

    comparison_sub_token_leftover_time: Each(Quota::new(10, SECOND)), "
        at 1000ms; try 6 -> 4 left; updated -> 1s
        at 1075ms; available -> 4; updated -> 1s
        at 1100ms-1ns; available -> 4
        at 1100ms; try 5 -> 0 left";

    /// The old algorithm kept 100 ms of it and would mint at 2.6 s.
    comparison_long_idle_while_full: Each(Quota::new(5, SECOND)), "
        357 times: pass 7ms; available -> 5
        at 2500ms; try 5 -> 0 left; updated -> 2.5s
        at 2600ms; try 1 -> denied, 0 left, retry in 100ms
        at 2700ms-1ns; try 1 -> denied, 0 left, retry in 1ns; at 2700ms; try 1 -> 0 left";

    /// Three tokens are due and two fit. The old algorithm kept 100 ms: a token at once.
    comparison_overfull_update: Each(Quota::new(10, SECOND).initial(8)), "
        available -> 8; at 300ms; minted -> 2; available -> 10; try 10 -> 0 left; updated -> 300ms
        at 400ms-1ns; try 1 -> denied, 0 left, retry in 1ns; at 400ms; try 1 -> 0 left";

    /// The update just fits, and the bucket was full for the last 50 ms.
    comparison_overfull_by_less_than_a_token: Each(Quota::new(10, SECOND).initial(8)), "
        at 250ms; try 10 -> 0 left; updated -> 250ms; try 1 -> denied, 0 left, retry in 100ms";

    comparison_filled_in_this_very_moment_keeps_the_fraction: Each(Quota::new(10, SECOND).initial(8)), "
        at 200ms; try 10 -> 0 left; updated -> 200ms";

    /// Tokens are due at 3 1/3, 6 2/3 and 10 ns. Taking one at once does not delay the next.
    taken_in_the_nanosecond_of_its_token_it_keeps_the_rate: Each(Quota::new(3, NANO * 10).burst(1).initial(0)), "
        at  3ns; ones 1 -> 0 granted, 1 denied; at  4ns; ones 1 -> 1 granted, 0 denied
        at  6ns; ones 1 -> 0 granted, 1 denied; at  7ns; ones 1 -> 1 granted, 0 denied
        at  9ns; ones 1 -> 0 granted, 1 denied; at 10ns; ones 1 -> 1 granted, 0 denied
        at 13ns; ones 1 -> 0 granted, 1 denied; at 14ns; ones 1 -> 1 granted, 0 denied";

    high_rate_single_token_requests: Each(Quota::new(10, MILLI * 10)), "
        available -> 10; at  0ms; minted ->  0; available -> 10; ones 12 -> 10 granted, 2 denied; updated -> 0ns
        available ->  0; at  5ms; minted ->  5; available ->  5; ones  7 -> 5 granted, 2 denied;  updated -> 5ms
        available ->  0; at 10ms; minted ->  5; available ->  5; ones 15 -> 5 granted, 10 denied; updated -> 10ms
        available ->  0; at 12ms; minted ->  2; available ->  2; ones  3 -> 2 granted, 1 denied;  updated -> 12ms
        available ->  0; at 20ms; minted ->  8; available ->  8; ones 25 -> 8 granted, 17 denied; updated -> 20ms
        available ->  0; at 30ms; minted -> 10; available -> 10; ones  9 -> 9 granted, 0 denied;  updated -> 30ms
        available ->  1; at 31ms; minted ->  1; available ->  2; ones  3 -> 2 granted, 1 denied;  updated -> 31ms
        available ->  0; at 40ms; minted ->  9; available ->  9; ones 20 -> 9 granted, 11 denied; updated -> 40ms
        available -> 0; requests -> 94; granted -> 50";

    /// The batches of 0 ms and 5 ms. What would be rejected waits, for the millisecond of its token.
    high_rate_requests_in_excess_are_queued_by_consume: Each(Quota::new(10, MILLI * 10)), "
        consume 1 1 1 1 1 1 1 1 1 1 1 1 -> 10; served -> none
        at 1ms; served -> 10; at 2ms; served -> 11
        at 5ms; consume 1 1 1 1 1 1 1 -> 3
        at 6ms; served -> 15; at 7ms; served -> 16; at 8ms; served -> 17; at 9ms; served -> 18; at 10ms; available -> 1";

    strict_nothing_before_the_boundary_and_all_of_it_there: Each(Quota::new(10, SECOND).stepped()), "
        try 10 -> 0 left
        try  1 -> denied, 0 left, retry in 1s
        at 1ms;    available -> 0; try 10 -> denied, 0 left, retry in 999ms
        at 500ms;  available -> 0; try  1 -> denied, 0 left, retry in 500ms
        at 1s-1ns; available -> 0; try  1 -> denied, 0 left, retry in 1ns
        at 1s;     available -> 10; try 10 -> 0 left";

    strict_a_budget_partly_used_jumps_to_capacity: Each(Quota::new(10, SECOND).stepped()), "
        at  300ms; available -> 10; try  7 -> 3 left
        at  999ms; available ->  3; try  1 -> 2 left
        at 1000ms; available -> 10; try  4 -> 6 left
        at 1700ms; available ->  6; try  6 -> 0 left
        at 3400ms; available -> 10; try  5 -> 5 left
        at 4000ms; available -> 10; try 10 -> 0 left";

    strict_several_boundaries_at_once_add_up: Each(Quota::new(3, SECOND).stepped().burst(10).initial(0)), "
        at 2500ms; available -> 6; at 3s; available -> 9; at 9s; available -> 10";

    /// Emptied at a different moment of each period, also after idle periods.
    strict_boundaries_never_drift: Each(Quota::new(10, SECOND).stepped()), (0..50).map(|period| format!("
        at {}ms; try 10 -> 0 left
        at {end}s-1ns; ones 1 -> 0 granted, 1 denied; at {end}s; available -> 10", period * 3_019, end = period * 3 + 1)).collect::<String>();

    strict_boundaries_are_not_moved_by_a_replenish: Each(Quota::new(10, SECOND).stepped()), (0..50).map(|period| format!("
        at {period}s; try 10 -> 0 left
        at {}ms; replenish {}; available -> {hand}; try {hand} -> 0 left
        at {}s-1ns; ones 1 -> 0 granted, 1 denied", period * 1_019, 1 + period % 2 * 99, period + 1, hand = 1 + period % 2 * 9)).collect::<String>();

    strict_consumers_wait_for_the_boundary_in_order: Each(Quota::new(10, SECOND).stepped().initial(0)), "
        consume 7 2 6 -> 0; estimate 1 -> 2s; at 1s-1ns; served -> none; at 1s; served -> 0 1; at 2s; served -> 2";

    manual_only_time_mints_nothing: Each(Quota::manual(10)), "
        try 10 -> 0 left; pass 100y; available -> 0; try 1 -> denied, 0 left, retry in never; estimate 1 -> never";

    manual_only_replenish_is_capped_at_capacity: Each(Quota::manual(10).initial(3)), "
        replenish 4; available -> 7; replenish 4; available -> 10; replenish 18446744073709551615; replenish 0
        try 10 -> 0 left; ones 1 -> 0 granted, 1 denied";

    /// Three tokens would do for the second claim, which must not overtake.
    manual_only_replenish_wakes_pending_consumers_in_order: Each(Quota::manual(10).initial(0)), "
        consume 4 1 3 -> 0
        replenish 3; woken -> none; replenish 1; woken -> 0; replenish 2; woken -> 0 1; replenish 2; served -> 0 1 2
        available -> 0";

    try_consume_takes_all_or_nothing: Each(Quota::new(10, SECOND)), "
        try 6 -> 4 left; try 5 -> denied, 4 left, retry in 100ms; try 4 -> 0 left
        at 100ms; ones 2 -> 1 granted, 1 denied";

    try_consume_from_full_starts_the_refill_at_that_moment: Each(Quota::new(10, SECOND)), "
        at 1ms;   try 1 -> 9 left; updated -> 1ms
        at 299ms; try 1 -> 9 left; updated -> 299ms
        at 12345ms; ones 1000 -> 10 granted, 990 denied; updated -> 12.345s";

    consume_completes_when_the_tokens_have_accrued: Each(Quota::new(10, SECOND)), "
        consume 10 5 3 25 -> 1; at 500ms-1ns; served -> none; at 500ms; served -> 1; at 800ms; served -> 2
        at 3300ms-1ns; served -> none; at 3300ms; served -> 3; available -> 0";

    /// With one token left, the last claim lacks one, and a new one lacks two.
    consume_is_woken_earlier_by_a_replenish: Each(Quota::new(10, SECOND).initial(0)), "
        consume 2 2 2 -> 0; replenish 5; woken -> 0 1; estimate 1 -> 200ms; at 100ms; served -> 0 1 2";

    consume_can_be_cancelled: Each(Quota::new(10, SECOND).initial(0)), "
        consume 1 8 1 -> 0; cancel 1; at 100ms; served -> 0; at 200ms; served -> 2; available -> 0";

    consume_cancelled_after_its_tokens_came_gives_them_back: Each(Quota::new(10, SECOND).initial(0)), "
        consume 5 -> 0; at 500ms; woken -> 0; available -> 0; cancel 0; available -> 5";

    replenish_adds_up_to_capacity_and_keeps_the_fraction: Each(Quota::new(10, SECOND).initial(0)), "
        at 250ms; replenish 3; available -> 5; updated -> 200ms; replenish 100; available -> 10
        at 900ms; try 10 -> 0 left; updated -> 900ms";
}
