//! Seed 002, seastar's shared token bucket: the statements of its document, and its two unit tests.
//!
//! | call | answer |
//! |---|---|
//! | `at 200ms`, `pass 1ms`: `replenish` with this time | |
//! | `grab 4 9`, `release 2` | |
//! | `lacks`: the deficiency of each grab | the numbers |
//! | `passed`: the grabs with a deficiency of 0 | how many |

use super::On::{Bucket, Capped};
use super::{SECOND, numbers, play, scripts, span};
use crate::fixture::*;

pub(super) fn bucket(quota: Quota) -> tollgate::Bucket {
    tollgate::Bucket::new(quota, Duration::ZERO).unwrap()
}

pub(super) fn capped(quota: Quota, cap: u64) -> tollgate::Bucket<tollgate::Capped> {
    tollgate::Bucket::capped(quota, cap, Duration::ZERO).unwrap()
}

pub(super) fn run(quota: Quota, script: &str) {
    // Time begins when the bucket does, at any number.
    for start in [Duration::ZERO, SECOND * 1_000] {
        let bucket = tollgate::Bucket::new(quota, start).unwrap();
        calls(script, start, &bucket, |_| unreachable!("no cap"));
    }
}

pub(super) fn run_capped(quota: Quota, cap: u64, script: &str) {
    let bucket = capped(quota, cap);
    calls(script, Duration::ZERO, &bucket, |tokens| bucket.release(tokens));
}

fn calls<C>(script: &str, start: Duration, bucket: &tollgate::Bucket<C>, release: impl Fn(u64)) {
    let (mut now, mut tickets) = (Duration::ZERO, Vec::new());
    play(script, |verb, value| {
        let lacks = tickets.iter().map(|ticket| bucket.deficiency(*ticket));
        match verb {
            "lacks" => return Some(lacks.map(|lacks| lacks.to_string()).collect::<Vec<_>>().join(" ")),
            "passed" => return Some(lacks.filter(|lacks| *lacks == 0).count().to_string()),
            "grab" => tickets.extend(numbers(value).map(|cost| bucket.grab(cost))),
            "release" => numbers(value).for_each(&release),
            "at" | "pass" => {
                now = if verb == "at" { span(value) } else { now + span(value) };
                bucket.replenish(start + now);
            }
            _ => panic!("`{verb}` is no call"),
        }
        Some(String::new())
    });
}

scripts! {
    /// The example of the document: `yield` while there is a deficiency, then dispatch.
    dispatch_loop_with_a_timer: Bucket(Quota::per_second(10).burst(4)), "
        grab 3; lacks -> 0
        grab 2; lacks -> 0 1; at 60ms; lacks -> 0 1; at 120ms; lacks -> 0 1; at 160ms; lacks -> 0 0
        grab 4; lacks -> 0 0 4; at 360ms; lacks -> 0 0 2; at 560ms; lacks -> 0 0 0";

    /// So the next grab passes only when the first completes.
    dispatch_loop_capped_with_the_serving_rate: Capped(Quota::per_second(10).burst(4), 3), "
        grab 3 1; lacks -> 0 1; at 1s; lacks -> 0 1; release 3; at 1s; lacks -> 0 0";

    grab_within_the_bucket_is_granted_at_once: Bucket(Quota::per_second(10)), "grab 4 6; lacks -> 0 0";

    grab_a_lot_overruns_the_head_which_catches_up: Bucket(Quota::per_second(10)), "
        grab 4 9; at 0s; lacks -> 0 3; at 99ms; lacks -> 0 3; at 100ms; lacks -> 0 2; at 199ms; lacks -> 0 2
        at 250ms; lacks -> 0 1; at 299ms; lacks -> 0 1; at 300ms; lacks -> 0 0";

    grabs_line_up_in_the_order_of_their_tickets: Bucket(Quota::per_second(10).initial(0)), "
        grab 3 1 5; lacks -> 3 4 9; at 300ms; lacks -> 0 1 6; at 900ms; lacks -> 0 0 0";

    /// A grab of nothing lines up too.
    grab_of_nothing: Bucket(Quota::per_second(10).initial(0)), "grab 0; lacks -> 0; grab 1 0; lacks -> 0 1 1";

    limit_is_the_most_that_accumulates: Bucket(Quota::per_second(10).burst(25).initial(0)), "
        at 3600s; grab 25 1; lacks -> 0 1";

    replenish_mints_what_accumulated_and_keeps_the_fraction: Bucket(Quota::new(1, SECOND * 60).initial(0)), "
        grab 2
        599 times: pass 100ms; lacks -> 2
        600 times: pass 100ms; lacks -> 1
        pass 100ms; lacks -> 0";

    replenish_with_the_same_time_or_an_earlier_one_mints_nothing: Bucket(Quota::per_second(10).initial(0)), "
        grab 10; at 500ms; lacks -> 5; at 500ms; lacks -> 5; at 100ms; lacks -> 5; at 499ms; lacks -> 5; at 500ms; lacks -> 5
        at 600ms; lacks -> 4";

    replenish_at_the_end_of_time: Bucket(Quota::per_second(10).initial(0)), "grab 11; at 0s; at 584y; lacks -> 0";

    /// When the bucket was drained is unknown: it may have been full all the second. Then the rate.
    replenish_of_a_bucket_that_may_have_been_full_mints_nothing: Bucket(Quota::per_second(10)), "
        at 0s; grab 10; at 1s; grab 10; lacks -> 0 10; at 1300ms; lacks -> 0 7";

    stepped: Bucket(Quota::per_second(10).stepped().initial(0)), "
        grab 20; at 999ms; lacks -> 20; at 1s; lacks -> 10; at 1999ms; lacks -> 10; at 2s; lacks -> 0";

    seastar_test_basic_non_capped_loop: Bucket(Quota::per_second(1).initial(0)), "
        grab 1; at 1s-1ns; lacks -> 1; at 1s; lacks -> 0; grab 1; at 2s-1ns; lacks -> 0 1; at 2s; lacks -> 0 0";

    /// Time does not help while the first is not released. Then the second passes at once: it was minted long ago.
    seastar_test_basic_capped_loop: Capped(Quota::per_second(1).initial(0), 1), "
        grab 1; lacks -> 1; at 1s; lacks -> 0
        grab 1; at 2s; lacks -> 0 1; at 1000000s; lacks -> 0 1; release 1; at 1000000s; lacks -> 0 0";

    /// In the instant of 100 s a burst of five passes, as fast as tokens are released. The sixth waits for its token.
    ceiling_keeps_what_is_minted_meanwhile_up_to_the_burst: Capped(Quota::per_second(10).burst(5), 2), "
        grab 1 1 1 1 1 1 1 1 1 1
        at 0s; passed -> 2; at 1s; passed -> 2; at 100s; passed -> 2
        release 2; at 100s; passed -> 4; release 2; at 100s; passed -> 6; release 1; at 100s; passed -> 7
        release 1; at 100s; passed -> 7; at 100100ms; passed -> 8; at 200s; passed -> 8";

    /// A token each millisecond. For 20 of each 30 ms nothing is released, and the burst keeps what the closed ceiling
    /// holds back. Seastar loses it: a third of the rate.
    ceiling_in_front_of_something_that_stalls_still_reaches_its_rate: Capped(Quota::per_second(1_000).burst(15).initial(0), 10),
        format!("grab {}
            pass 1ms
            8 times: release 1; pass 1ms
            20 times: pass 1ms
            ", "1 ".repeat(400)) + &(0..10).map(|round| format!("
            passed -> {}; release 10; pass 1ms; passed -> {}
            release 10; pass 1ms; release 3; pass 1ms; passed -> {}
            7 times: release 1; pass 1ms
            20 times: pass 1ms
            ", 18 + round * 30, 28 + round * 30, 32 + round * 30)).collect::<String>();

    cap_and_burst_are_two_numbers_and_the_burst_is_smaller: Capped(Quota::per_second(10).burst(3), 100), "
        at 1000s; grab 1 1 1 1 1 1 1; at 1000s; passed -> 3";

    cap_and_burst_are_two_numbers_and_the_cap_is_smaller: Capped(Quota::per_second(10).burst(100), 3), "
        at 1000s; grab 1 1 1 1 1 1 1; at 1000s; passed -> 3";

    claims_larger_than_the_burst_are_saved_up_for_under_a_cap: Capped(Quota::per_second(10).burst(3), 10), "
        grab 10 10 10; at 0s; passed -> 0
        at 699ms;  passed -> 0; at 700ms;  passed -> 1; release 10; at 700ms
        at 1699ms; passed -> 1; at 1700ms; passed -> 2; release 10; at 1700ms
        at 2699ms; passed -> 2; at 2700ms; passed -> 3";

    /// No claim lies across the ceiling: all are granted, and the bucket behind them fills up.
    claims_that_end_at_the_ceiling_leave_a_bucket_that_fills_up: Capped(Quota::per_second(10).burst(4), 4), "
        grab 4; at 0s; lacks -> 0; at 1s; release 4; grab 4; at 1s; lacks -> 0 0";

    /// A claim is granted when its last token is there. Half of the second claim is below the ceiling all the time, but
    /// it is not granted, so it makes no space: at 100 s a burst of ten may pass and not fifteen. No claim is stranded.
    a_claim_across_the_ceiling_lets_no_more_than_the_burst_pass: Capped(Quota::per_second(10), 10), "
        grab 5 10; at 0s; lacks -> 0 5; at 100s; lacks -> 0 5
        release 5; at 100s; grab 5; release 10; at 100s; passed -> 1
        at 110s; lacks -> 0 0 0";
}

#[test]
fn a_cap_of_zero_and_a_quota_of_nothing_are_refused() {
    let (second, zero) = (Quota::per_second(1), ConfigError::from(QuotaError::ZeroAmount));
    assert_eq!(tollgate::Bucket::new(Quota::per_second(0), SECOND).unwrap_err(), zero);
    assert_eq!(tollgate::Bucket::capped(Quota::per_second(0), 1, SECOND).unwrap_err(), zero);
    let error = tollgate::Bucket::capped(second, 0, SECOND).unwrap_err();
    assert!(matches!(error, ConfigError::BadMaxInFlight { cap: 0, .. }), "{error:?}");
}
