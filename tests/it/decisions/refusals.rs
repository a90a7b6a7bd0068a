//! The wait that a refusal or an estimate tells, beyond what the random histories of the oracle compare.

use super::*;

#[test]
fn the_hint_is_exact_where_its_numbers_fill_more_than_64_bits() {
    let day = Duration::from_secs(86_400);
    let quota = Quota::new(1_000_000_007, day).burst(1 << 40).initial(0);
    let fixture = Fixture::new(quota);
    let hint = |fixture: &Fixture| fixture.denied(3_000_000_000).retry_after.unwrap().as_nanos();
    let wait = (3_000_000_000 * day.as_nanos()).div_ceil(1_000_000_007);
    assert_eq!(hint(&fixture), wait);
    // A part of a token is there, but no whole one.
    fixture.clock.advance(Duration::from_nanos(50_000));
    assert_eq!(hint(&fixture), wait - 50_000);
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

#[test]
fn estimate_is_none_where_no_wait_can_be_known() {
    let capped = Fixture::built(Limiter::builder().quota(one_per_milli(9)).max_in_flight(5));
    assert_eq!(capped.limiter.estimate(6), None, "it can never be granted");
    assert_eq!(Fixture::new(one_per_milli(9)).limiter.estimate((1 << 48) + 1), None);
    let manual = Fixture::new(Quota::manual(9).initial(2));
    assert_eq!((manual.limiter.estimate(2), manual.limiter.estimate(3)), (Some(Duration::ZERO), None));
    let closed = Fixture::new(one_per_milli(9));
    closed.limiter.close();
    assert_eq!(closed.limiter.estimate(1), None);
}
