//! Refusals of `try_acquire`: the wait, the remaining tokens, and the bound that refused.

use super::*;

#[test]
fn one_quota_tells_the_exact_wait_and_what_is_left() {
    let fixture = Fixture::new(Quota::new(1, 3 * MILLI).burst(10).initial(4));
    assert_eq!(fixture.refusal(7), (Bound::Quota(0), 4, Some(9)));
    fixture.clock.advance(MILLI);
    assert_eq!(fixture.refusal(7), (Bound::Quota(0), 4, Some(8)));
    assert_eq!(fixture.heed(7), 8 * MILLI);
}

#[test]
fn the_hint_is_neither_early_nor_late_where_a_token_takes_no_whole_nanoseconds() {
    for quota in [Quota::per_second(3), Quota::per_second(999_999_937), Quota::new(7, Duration::from_secs(11))] {
        let fixture = Fixture::new(quota.burst(100).initial(0));
        for cost in [1, 2, 3, 50, 100] {
            fixture.heed(cost);
        }
    }
}

#[test]
fn a_stepped_quota_tells_the_end_of_a_period() {
    let fixture = Fixture::new(Quota::new(4, 10 * MILLI).burst(12).stepped().initial(3));
    fixture.clock.advance(MILLI);
    assert_eq!(fixture.refusal(4), (Bound::Quota(0), 3, Some(9)));
    assert_eq!(fixture.refusal(8), (Bound::Quota(0), 3, Some(19)));
    assert_eq!(fixture.heed(12), 29 * MILLI);
}

#[test]
fn a_manual_quota_can_tell_no_time() {
    let fixture = Fixture::new(Quota::manual(10).initial(3));
    assert_eq!(fixture.refusal(4), (Bound::Quota(0), 3, None));
}

#[test]
fn of_several_quotas_the_one_with_the_longest_wait_is_named() {
    let slow = Quota::new(1, 10 * MILLI).burst(20).initial(15);
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(20).initial(6)).quota(slow));
    // The remaining tokens are the minimum over all quotas.
    assert_eq!(fixture.refusal(8), (Bound::Quota(0), 6, Some(2)));
    assert_eq!(fixture.refusal(15), (Bound::Quota(0), 6, Some(9)));
    assert_eq!(fixture.refusal(16), (Bound::Quota(0), 6, Some(10)), "a tie goes to the first");
    assert_eq!(fixture.refusal(17), (Bound::Quota(1), 6, Some(20)));
}

#[test]
fn a_tie_of_a_pause_and_a_quota_goes_to_the_quota() {
    let fixture = Fixture::new(one_per_milli(9));
    fixture.limiter.pause_for(5 * MILLI);
    assert_eq!(fixture.refusal(5), (Bound::Quota(0), 0, Some(5)));
    assert_eq!(fixture.refusal(4), (Bound::Pause, 0, Some(5)));
}

#[test]
fn the_hint_is_exact_where_its_numbers_fill_more_than_64_bits() {
    let day = Duration::from_secs(86_400);
    let quota = Quota::new(1_000_000_007, day).burst(1 << 40).initial(0);
    let fixture = Fixture::new(quota);
    let hint = |fixture: &Fixture| match fixture.limiter.try_acquire(3_000_000_000) {
        Err(TryAcquireError::Denied(denied)) => denied.retry_after.unwrap().as_nanos(),
        other => panic!("{other:?}"),
    };
    let wait = (3_000_000_000 * day.as_nanos()).div_ceil(1_000_000_007);
    assert_eq!(hint(&fixture), wait);
    // A part of a token is there, but no whole one.
    fixture.clock.advance(Duration::from_nanos(50_000));
    assert_eq!(hint(&fixture), wait - 50_000);
}

#[test]
fn of_several_quotas_one_that_no_clock_can_fill_is_named_before_any_other() {
    let slow = Quota::new(1, Duration::from_secs(86_400)).burst(20).initial(0);
    let fixture = Fixture::built(Limiter::builder().quota(slow).quota(Quota::manual(20).initial(5)));
    assert_eq!(fixture.refusal(5), (Bound::Quota(0), 0, Some(5 * 86_400_000)));
    assert_eq!(fixture.refusal(6), (Bound::Quota(1), 0, None));
}

#[test]
fn several_quotas_give_all_or_nothing() {
    let builder = Limiter::builder().quota(one_per_milli(9).initial(9)).quota(Quota::manual(9).initial(2));
    let fixture = Fixture::built(builder.max_in_flight(9));
    let levels = || fixture.limiter.snapshot().quotas.iter().map(|quota| quota.level).collect::<Vec<_>>();
    fixture.denied(3);
    assert_eq!((levels(), fixture.limiter.snapshot().in_flight), (vec![9, 2], Some(0)));
    let waiting = fixture.enter(3);
    assert_eq!((levels(), fixture.limiter.snapshot().in_flight), (vec![9, 2], Some(0)));
    drop(waiting);
    assert_eq!((levels(), fixture.limiter.snapshot().in_flight), (vec![9, 2], Some(0)));
    let _grant = fixture.take(2);
    assert_eq!((levels(), fixture.limiter.snapshot().in_flight), (vec![7, 0], Some(2)));
}

#[test]
fn the_ceiling_can_tell_no_time_and_is_named_before_any_quota() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(6)).max_in_flight(5));
    let _held = fixture.take(3);
    assert_eq!(fixture.refusal(3), (Bound::InFlight, 2, None));
    assert_eq!(fixture.refusal(5), (Bound::InFlight, 2, None));
    let manual = Fixture::built(Limiter::builder().quota(Quota::manual(9).initial(3)).max_in_flight(5));
    let _held = manual.take(3);
    assert_eq!(manual.refusal(3), (Bound::InFlight, 0, None), "the ceiling before a manual quota");
    assert_eq!(manual.refusal(2), (Bound::Quota(0), 0, None), "the cost fits below the ceiling");
}

#[test]
fn a_pause_is_named_while_it_is_what_lasts_longest() {
    let fixture = Fixture::new(one_per_milli(9).initial(2));
    fixture.limiter.pause_for(5 * MILLI);
    assert_eq!(fixture.refusal(1), (Bound::Pause, 0, Some(5)));
    assert_eq!(fixture.refusal(6), (Bound::Pause, 0, Some(5)));
    assert_eq!(fixture.refusal(8), (Bound::Quota(0), 0, Some(6)));
    assert_eq!(fixture.heed(1), 5 * MILLI);
}

#[test]
fn during_a_pause_what_no_clock_can_tell_is_named_first() {
    let fixture = Fixture::built(Limiter::builder().quota(Quota::manual(9).initial(4)).max_in_flight(5));
    let _held = fixture.take(2);
    fixture.limiter.pause_for(5 * MILLI);
    assert_eq!(fixture.refusal(2), (Bound::Pause, 0, Some(5)));
    assert_eq!(fixture.refusal(3), (Bound::Quota(0), 0, None));
    assert_eq!(fixture.refusal(4), (Bound::InFlight, 0, None));
}

#[test]
fn the_queue_is_named_while_claims_wait_and_the_wait_includes_them_all() {
    let fixture = Fixture::new(one_per_milli(9).initial(9));
    let _burst = fixture.take(7);
    let _waiters = [fixture.enter(4), fixture.enter(5)];
    assert_eq!(fixture.refusal(1), (Bound::Queue, 0, Some(8)));
    assert_eq!(fixture.heed(3), 10 * MILLI);
}

#[test]
fn the_wait_for_a_paused_queue_with_several_quotas_is_exact() {
    let stepped = Quota::new(4, 10 * MILLI).burst(8).stepped().initial(0);
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(9)).quota(stepped));
    let _waiters = [3, 6, 2].map(|cost| fixture.enter(cost));
    fixture.limiter.pause_for(25 * MILLI);
    let denied = fixture.denied(5);
    assert_eq!((denied.by, denied.remaining), (Bound::Queue, 0));
    fixture.heed(5);
}

#[test]
fn the_queue_has_no_wait_while_the_ceiling_or_a_manual_quota_delays_it() {
    let fixture = Fixture::new(Quota::manual(9).initial(1));
    let _waiters = fixture.enter(2);
    assert_eq!(fixture.refusal(1), (Bound::Queue, 0, None));
    let capped = Fixture::built(Limiter::builder().quota(one_per_milli(9).initial(9)).max_in_flight(5));
    let _held = capped.take(4);
    let _waiters = capped.enter(2);
    assert_eq!(capped.refusal(1), (Bound::Queue, 0, None));
}

#[test]
fn a_debt_is_part_of_the_wait() {
    let fixture = Fixture::new(one_per_milli(9).initial(5));
    let mut grant = fixture.take(5);
    grant.settle(9);
    assert_eq!(fixture.refusal(2), (Bound::Quota(0), 0, Some(6)));
    assert_eq!(fixture.heed(2), 6 * MILLI);
}

#[test]
fn a_hint_taken_while_the_clock_stands_back_is_for_that_clock() {
    let fixture = Fixture::new(one_per_milli(9));
    fixture.clock.advance(4 * MILLI);
    fixture.limiter.tick();
    fixture.clock.step_back(3 * MILLI);
    assert_eq!(fixture.heed(6), 5 * MILLI);
}

#[test]
fn remaining_is_the_least_of_all_quotas_and_the_ceiling() {
    let builder = Limiter::builder().quota(Quota::manual(9).initial(6)).quota(one_per_milli(9).initial(8));
    let fixture = Fixture::built(builder.max_in_flight(9));
    assert_eq!(fixture.denied(7).remaining, 6);
    let _some = fixture.take(3);
    assert_eq!((fixture.denied(7).remaining, fixture.limiter.available()), (3, 3));
    fixture.limiter.set_max_in_flight(4).unwrap();
    assert_eq!((fixture.denied(4).remaining, fixture.limiter.available()), (1, 1));
    fixture.limiter.set_max_in_flight(2).unwrap();
    assert_eq!((fixture.denied(2).remaining, fixture.limiter.available()), (0, 0));
}

#[test]
fn a_grant_tells_what_remains_behind_it() {
    let fixture = Fixture::new(one_per_milli(9).initial(9));
    let first = fixture.limiter.try_acquire(2).unwrap();
    let second = fixture.take(3);
    assert_eq!((first.remaining(), second.remaining()), (7, 4));
    let mut waiting = fixture.enter(6);
    fixture.clock.advance(5 * MILLI);
    fixture.limiter.tick();
    let third = assert_ready_ok!(waiting.poll());
    assert_eq!(fixture.limiter.available(), 3);
    assert_eq!([first, second, third].map(|grant| grant.remaining()), [7, 4, 0], "as of the instant it was granted");
}
