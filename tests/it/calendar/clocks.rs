//! Examples: when a period begins, while the wall clock runs, is set, or stands still.

use crate::fixture::*;
use std::time::SystemTime;

pub(super) fn at(text: &str) -> SystemTime {
    SystemTime::from(text.parse::<jiff::Timestamp>().expect("an instant"))
}

/// A limiter at 22:00 in Los Angeles, on a day that ends in two hours.
fn evening() -> (Builder, ManualClock) {
    let clock = ManualClock::new();
    clock.set_wall(at("2026-11-29T06:00:00Z"));
    let quota = Quota::per_calendar_day(10).in_time_zone("America/Los_Angeles").expect("known");
    (Limiter::builder().quota(quota).clock(clock.clone()), clock)
}

#[test]
fn a_debt_of_more_days_than_there_are_is_paid_at_no_known_instant() {
    let quota = Quota::per_calendar_day(1).in_time_zone("America/Los_Angeles").expect("known");
    let (limiter, _clock) = built(Limiter::builder().quota(quota));
    let mut grant = limiter.try_acquire(1).unwrap();
    grant.settle(u64::MAX);
    assert_eq!((limiter.estimate(1), limiter.snapshot().quotas[0].more_in), (None, None));
}

#[test]
fn a_claim_waits_for_midnight_and_is_refused_if_that_is_too_late() {
    let (builder, clock) = evening();
    let limiter = builder.build().unwrap();
    drop(limiter.try_acquire(10).unwrap());
    let late = spawn(limiter.consume(1).within(2 * HOUR - Duration::from_nanos(1))).poll();
    assert!(matches!(late, std::task::Poll::Ready(Err(ConsumeError::TooLate { .. }))));
    let mut waiting = pending(limiter.consume(4).within(2 * HOUR));
    clock.advance(2 * HOUR);
    limiter.tick();
    assert!(waiting.poll().is_ready());
    assert_eq!(limiter.available(), 6);
}

/// A clock that ran years ahead for a while does not hold the limiter back until then.
#[test]
fn a_clock_that_was_wrong_by_years_is_corrected() {
    let (builder, clock) = evening();
    let limiter = builder.build().unwrap();
    let right = clock.wall();
    clock.set_wall(at("2030-01-01T20:00:00Z"));
    clock.advance(MINUTE);
    drop(limiter.try_acquire(10).unwrap());
    clock.set_wall(right);
    clock.advance(MINUTE);
    assert_eq!(limiter.available(), 0, "the day has begun before");
    clock.advance(2 * HOUR);
    assert_eq!(limiter.available(), 10);
}

/// The machine was suspended over midnight: the limiter's own time stood still. Callers that are denied again and again find
/// the new day within a minute.
#[test]
fn a_wall_clock_that_was_set_is_noticed_by_a_call_that_was_denied_before() {
    let (builder, clock) = evening();
    let limiter = builder.build().unwrap();
    drop(limiter.try_acquire(10).unwrap());
    assert!(limiter.try_acquire(1).is_err() && limiter.try_acquire(1).is_err());
    clock.set_wall(clock.wall() + 3 * HOUR);
    clock.advance(MINUTE);
    assert!(limiter.try_acquire(1).is_ok());
}

#[test]
fn a_quota_changes_from_and_to_a_calendar() {
    let (_, clock) = evening();
    let limiter = Limiter::builder().quota(Quota::per_second(100)).clock(clock.clone()).build().unwrap();
    drop(limiter.try_acquire(100).unwrap());
    limiter.set_quota(0, Quota::per_calendar_hour(10)).unwrap();
    clock.advance(HOUR - Duration::from_nanos(1));
    assert_eq!(limiter.available(), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(limiter.available(), 10);
    let mut of_this_hour = limiter.try_acquire(8).unwrap();
    limiter.set_quota(0, Quota::per_calendar_day(4)).unwrap();
    assert_eq!(limiter.available(), 2);
    of_this_hour.settle(7);
    assert_eq!(limiter.available(), 3, "of this day too");
    limiter.set_quota(0, Quota::per_calendar_hour(4)).unwrap();
    clock.advance(HOUR);
    drop(limiter.try_acquire(2).unwrap());
    of_this_hour.settle(0);
    assert_eq!(limiter.available(), 2, "of the last hour");
    drop(limiter.try_acquire(2).unwrap());
    clock.advance(HOUR);
    limiter.set_quota(0, Quota::per_second(5)).unwrap();
    drop(limiter.try_acquire(4).unwrap());
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.available(), 5);
}
