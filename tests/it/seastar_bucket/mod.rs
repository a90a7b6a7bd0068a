//! Seed 002, seastar's shared token bucket: the statements of its document about `grab`, `replenish`, `deficiency` and
//! `release`, its two unit tests, and its weaknesses: racing replenishers, and a ceiling that loses the tokens it holds
//! back.
//!
//! Time is a number here. Threads move it themselves, and each assertion holds however slow they are.

mod histories;
mod threads;

use std::time::Duration;
use tollgate::{Bucket, Capped, ConfigError, Quota, Ticket};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn bucket(quota: Quota) -> Bucket {
    Bucket::new(quota, Duration::ZERO).unwrap()
}

fn capped(quota: Quota, max_in_flight: u64) -> Bucket<Capped> {
    Bucket::capped(quota, max_in_flight, Duration::ZERO).unwrap()
}

// ---- the document: rovers --------------------------------------------------------------------------------------------

#[test]
fn a_grab_within_the_bucket_is_granted_at_once() {
    let bucket = bucket(Quota::per_second(10));
    let (first, second) = (bucket.grab(4), bucket.grab(6));
    assert_eq!((bucket.deficiency(first), bucket.deficiency(second)), (0, 0));
}

#[test]
fn a_grab_beyond_the_bucket_overruns_the_head_and_waits_until_it_has_caught_up() {
    let bucket = bucket(Quota::per_second(10));
    let first = bucket.grab(4);
    let overrun = bucket.grab(9);
    bucket.replenish(Duration::ZERO);
    assert_eq!((bucket.deficiency(first), bucket.deficiency(overrun)), (0, 3));
    for (at, lacking) in [(99, 3), (100, 2), (199, 2), (250, 1), (299, 1), (300, 0), (1_000, 0)] {
        bucket.replenish(ms(at));
        assert_eq!(bucket.deficiency(overrun), lacking, "at {at} ms");
    }
}

#[test]
fn grabs_that_overrun_wait_in_the_order_of_their_tickets() {
    let bucket = bucket(Quota::per_second(10).initial(0));
    let tickets: Vec<Ticket> = [3, 1, 5].map(|cost| bucket.grab(cost)).into();
    let lacking = |bucket: &Bucket| -> Vec<u64> { tickets.iter().map(|&ticket| bucket.deficiency(ticket)).collect() };
    assert_eq!(lacking(&bucket), [3, 4, 9]);
    bucket.replenish(ms(300));
    assert_eq!(lacking(&bucket), [0, 1, 6]);
    bucket.replenish(ms(900));
    assert_eq!(lacking(&bucket), [0, 0, 0]);
}

#[test]
fn the_limit_is_the_most_that_an_idle_bucket_accumulates() {
    let bucket = bucket(Quota::per_second(10).burst(25).initial(0));
    bucket.replenish(secs(3_600));
    let (full, beyond) = (bucket.grab(25), bucket.grab(1));
    assert_eq!((bucket.deficiency(full), bucket.deficiency(beyond)), (0, 1));
}

#[test]
fn replenishing_mints_what_accumulated_since_the_last_time_and_keeps_the_fraction() {
    let bucket = bucket(Quota::new(1, secs(60)).initial(0));
    let hour = bucket.grab(60);
    for tick in 1..36_000 {
        bucket.replenish(ms(tick * 100));
        assert_eq!(bucket.deficiency(hour), 60 - tick / 600, "at tick {tick}");
    }
    bucket.replenish(ms(3_600_000));
    assert_eq!(bucket.deficiency(hour), 0);
}

#[test]
fn the_same_time_twice_or_an_earlier_one_mints_nothing() {
    let bucket = bucket(Quota::per_second(10).initial(0));
    let ticket = bucket.grab(10);
    for at in [500, 500, 100, 0, 499, 500] {
        bucket.replenish(ms(at));
        assert_eq!(bucket.deficiency(ticket), 5, "replenished at {at} ms");
    }
    bucket.replenish(ms(600));
    assert_eq!(bucket.deficiency(ticket), 4, "the latest time is remembered");
}

#[test]
fn time_begins_when_the_bucket_does() {
    let bucket = Bucket::new(Quota::per_second(10).initial(0), secs(1_000)).unwrap();
    let ticket = bucket.grab(3);
    bucket.replenish(secs(1_000));
    assert_eq!(bucket.deficiency(ticket), 3);
    bucket.replenish(secs(1_000) + ms(200));
    assert_eq!(bucket.deficiency(ticket), 1);
}

#[test]
fn a_grab_of_nothing_is_granted_when_all_before_it_are() {
    let bucket = bucket(Quota::per_second(10).initial(0));
    let nothing = bucket.grab(0);
    assert_eq!(bucket.deficiency(nothing), 0);
    let something = bucket.grab(1);
    assert_eq!((bucket.deficiency(something), bucket.deficiency(bucket.grab(0))), (1, 1));
}

/// The instant between two replenishes at which a full bucket was drained is unknown. Counted from the first of them,
/// the bucket would have minted while it was full, and two bursts would be granted at once.
#[test]
fn a_full_bucket_drained_between_two_replenishes_gets_nothing_for_the_time_it_may_have_been_full() {
    let bucket = bucket(Quota::per_second(10));
    bucket.replenish(ms(0));
    let burst = bucket.grab(10); // at 1 s, for example
    bucket.replenish(secs(1));
    let next = bucket.grab(10);
    assert_eq!((bucket.deficiency(burst), bucket.deficiency(next)), (0, 10));
    bucket.replenish(ms(1_300));
    assert_eq!(bucket.deficiency(next), 7, "the rate from then on");
}

#[test]
fn a_stepped_bucket_is_replenished_at_the_ends_of_periods_only() {
    let bucket = bucket(Quota::per_second(10).stepped().initial(0));
    let ticket = bucket.grab(20);
    for (at, lacking) in [(999, 20), (1_000, 10), (1_700, 10), (1_999, 10), (2_000, 0)] {
        bucket.replenish(ms(at));
        assert_eq!(bucket.deficiency(ticket), lacking, "at {at} ms");
    }
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let zero = Quota::per_second(0);
    assert_eq!(Bucket::new(zero, Duration::ZERO).unwrap_err(), ConfigError::ZeroAmount { quota: 0, quota_name: None });
    assert_eq!(
        Bucket::capped(zero, 1, Duration::ZERO).unwrap_err(),
        ConfigError::ZeroAmount { quota: 0, quota_name: None }
    );
    let error = Bucket::capped(Quota::per_second(1), 0, Duration::ZERO).unwrap_err();
    assert!(matches!(error, ConfigError::BadMaxInFlight { cap: 0, .. }), "{error:?}");
}

// ---- seastar's own two tests -----------------------------------------------------------------------------------------

#[test]
fn seastar_basic_non_capped_loop() {
    let bucket = bucket(Quota::per_second(1).initial(0));
    for turn in 1..=2 {
        let ticket = bucket.grab(1);
        bucket.replenish(secs(turn) - nanos(1));
        assert_eq!(bucket.deficiency(ticket), 1, "turn {turn}: not before its second is over");
        bucket.replenish(secs(turn));
        assert_eq!(bucket.deficiency(ticket), 0, "turn {turn}");
    }
}

#[test]
fn seastar_basic_capped_loop() {
    let bucket = capped(Quota::per_second(1).initial(0), 1);
    let first = bucket.grab(1);
    assert_eq!(bucket.deficiency(first), 1);
    bucket.replenish(secs(1));
    assert_eq!(bucket.deficiency(first), 0);

    let second = bucket.grab(1);
    for at in [1, 2, 10, 1_000_000] {
        bucket.replenish(secs(at));
        assert_eq!(bucket.deficiency(second), 1, "at {at} s: time does not help while the first is not released");
    }
    bucket.release(1);
    bucket.replenish(secs(1_000_000));
    assert_eq!(bucket.deficiency(second), 0, "at once: its token was minted long ago");
}

// ---- the ceiling -----------------------------------------------------------------------------------------------------

#[test]
fn the_ceiling_gates_and_what_is_minted_meanwhile_is_kept_up_to_the_burst() {
    let bucket = capped(Quota::per_second(10).burst(5), 2);
    let tickets: Vec<Ticket> = (0..10).map(|_| bucket.grab(1)).collect();
    let granted = || tickets.iter().filter(|&&ticket| bucket.deficiency(ticket) == 0).count();

    for at in [ms(0), ms(100), secs(1), secs(100)] {
        bucket.replenish(at);
        assert_eq!(granted(), 2, "at {at:?}: two are in flight, and that is the cap");
    }
    // A burst of five is granted in this instant, as fast as tokens are released; the sixth waits for its token.
    for (released, passed) in [(2, 4), (2, 6), (1, 7), (1, 7)] {
        bucket.release(released);
        bucket.replenish(secs(100));
        assert_eq!(granted(), passed, "released {released}");
    }
    bucket.replenish(secs(100) + ms(100));
    assert_eq!(granted(), 8, "the rate from then on");
    bucket.replenish(secs(200));
    assert_eq!(granted(), 8, "six are released, two are in flight");
}

#[test]
fn a_capped_bucket_in_front_of_something_that_stalls_still_reaches_its_rate() {
    // A token each millisecond; in 20 of each 30 ms nothing is released. Soon ten are in flight, and then the burst
    // keeps what the closed ceiling holds back. In seastar these tokens are lost, which costs a third of the rate.
    let bucket = capped(Quota::per_second(1_000).burst(15).initial(0), 10);
    let tickets: Vec<Ticket> = (0..2_000).map(|_| bucket.grab(1)).collect();
    let (mut granted, mut landed) = (0, 0);
    for at in 1..=1_000 {
        if at % 30 < 10 {
            bucket.release(granted - landed);
            landed = granted;
        }
        bucket.replenish(ms(at));
        granted = tickets.iter().take_while(|&&ticket| bucket.deficiency(ticket) == 0).count() as u64;
    }
    assert_eq!(granted, 1_000);
}

#[test]
fn the_cap_and_the_burst_are_two_numbers() {
    for (burst, cap, pass) in [(3, 100, 3), (100, 3, 3), (100, 100, 50)] {
        let bucket = capped(Quota::per_second(10).burst(burst), cap);
        bucket.replenish(secs(1_000));
        let tickets: Vec<Ticket> = (0..50).map(|_| bucket.grab(1)).collect();
        bucket.replenish(secs(1_000));
        let granted = tickets.iter().filter(|&&ticket| bucket.deficiency(ticket) == 0).count();
        assert_eq!(granted, pass, "burst {burst}, cap {cap}");
    }
}

#[test]
fn claims_larger_than_the_burst_are_saved_up_for_under_a_cap_too() {
    let bucket = capped(Quota::per_second(10).burst(3), 10);
    let tickets: Vec<Ticket> = (0..3).map(|_| bucket.grab(10)).collect();
    for (at, granted) in [(0, 0), (699, 0), (700, 1), (1_699, 1), (1_700, 2), (2_699, 2), (2_700, 3)] {
        bucket.replenish(ms(at));
        let there = tickets.iter().filter(|&&ticket| bucket.deficiency(ticket) == 0).count();
        assert_eq!(there, granted, "at {at} ms");
        if [700, 1_700].contains(&at) {
            bucket.release(10); // released at once
            bucket.replenish(ms(at));
        }
    }
}

/// No claim lies across a ceiling at which another one ends: all of them are granted, and the bucket behind them fills
/// up.
#[test]
fn claims_that_end_at_the_ceiling_leave_a_bucket_that_fills_up() {
    let bucket = capped(Quota::per_second(10).burst(4), 4);
    let first = bucket.grab(4);
    bucket.replenish(ms(0));
    assert_eq!(bucket.deficiency(first), 0);
    bucket.replenish(secs(1));
    bucket.release(4);
    let second = bucket.grab(4);
    bucket.replenish(secs(1));
    assert_eq!(bucket.deficiency(second), 0, "a burst was minted while the first was in flight");
}

/// Counted in claims: a claim is granted when its last token is there. The first half of the second claim here lies
/// below the ceiling all the time. But it is not granted, so it must not allow minting beyond the burst.
#[test]
fn a_claim_across_the_ceiling_does_not_let_more_than_the_burst_pass_at_once() {
    let bucket = capped(Quota::per_second(10), 10);
    let (small, astride) = (bucket.grab(5), bucket.grab(10));
    bucket.replenish(ms(0));
    assert_eq!((bucket.deficiency(small), bucket.deficiency(astride)), (0, 5));
    bucket.replenish(secs(100));
    assert_eq!(bucket.deficiency(astride), 5, "the small claim is still in flight");

    // All of this at 100 s, when a burst of ten may be granted.
    bucket.release(5);
    bucket.replenish(secs(100));
    let more = bucket.grab(5);
    if bucket.deficiency(astride) == 0 {
        bucket.release(10);
        bucket.replenish(secs(100));
        assert!(bucket.deficiency(more) > 0, "fifteen tokens at one instant from a burst of ten");
    }
    bucket.replenish(secs(110));
    assert_eq!(
        bucket.deficiency(astride),
        0,
        "a closed ceiling may cost a part of the burst, but no claim is stranded"
    );
}
