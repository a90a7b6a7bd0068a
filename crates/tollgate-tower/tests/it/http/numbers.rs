//! The values of q, w, r and t for a limiter, on a manual clock.

use super::*;

fn plain(limiter: &Limiter) -> [String; 2] {
    rate_limit_fields(limiter, &Terms::default())
}

#[test]
fn the_issue_s_own_example() {
    let quota = Quota::per_minute(100).stepped();
    let (limiter, clock) = built(Limiter::builder().quota_named("burst", quota));
    clock.advance(30 * SECOND);
    take(&limiter, 50);
    assert_eq!(plain(&limiter), [r#""burst";q=100;w=60"#, r#""burst";r=50;t=30"#]);
}

#[test]
fn the_window_lasts_until_one_more_token_rounded_up() {
    let (limiter, clock) = by_hand(Quota::new(1, 10 * SECOND).burst(3));
    let policy = r#""default";q=1;w=10;tollgate-burst=3"#;
    // Full: if a token is taken now, the next one takes 10 s.
    assert_eq!(plain(&limiter), [policy, r#""default";r=3;t=10"#]);
    take(&limiter, 3);
    assert_eq!(plain(&limiter), [policy, r#""default";r=0;t=10"#]);
    clock.advance(MILLI);
    assert_eq!(plain(&limiter), [policy, r#""default";r=0;t=10"#]);
    clock.advance(999 * MILLI);
    assert_eq!(plain(&limiter), [policy, r#""default";r=0;t=9"#]);
    clock.advance(9 * SECOND - Duration::from_nanos(1));
    assert_eq!(plain(&limiter), [policy, r#""default";r=0;t=1"#]);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(plain(&limiter), [policy, r#""default";r=1;t=10"#]);
}

#[test]
fn each_quota_is_reported_by_itself() {
    let builder = Limiter::builder().quota_named("second", Quota::per_second(10).burst(20));
    let (limiter, clock) = built(builder.quota(Quota::per_hour(100)).quota(Quota::per_day(1_000).stepped()));
    take(&limiter, 20);
    clock.advance(SECOND);
    let [policy, limit] = plain(&limiter);
    assert_eq!(policy, r#""second";q=10;w=1;tollgate-burst=20, "default-1";q=100;w=3600, "default-2";q=1000;w=86400"#);
    assert_eq!(limit, r#""second";r=10;t=1, "default-1";r=80;t=35, "default-2";r=980;t=86399"#);
}

/// The wall clock shows the beginning of 1971 in UTC, when it is 16:00 in Los Angeles.
#[test]
fn calendar_and_sliding_quotas_are_reported_until_their_tokens_come() {
    let day = Quota::per_calendar_day(10).in_time_zone("America/Los_Angeles").unwrap();
    let quotas = Limiter::builder().quota_named("day", day).quota_named("hour", Quota::per_hour(12).sliding());
    let (limiter, clock) = built(quotas);
    take(&limiter, 4);
    clock.advance(600 * SECOND);
    let policy = r#""day";q=10;w=86400, "hour";q=12;w=3600"#;
    assert_eq!(plain(&limiter), [policy, r#""day";r=6;t=28200, "hour";r=8;t=3000"#]);
    take(&limiter, 6);
    assert_eq!(plain(&limiter), [policy, r#""day";r=0;t=28200, "hour";r=2;t=3000"#]);
    let limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
    let refused = limiter.try_acquire(1).unwrap_err();
    assert_eq!(tollgate_tower::http::Refusal::new(refused, &limits).retry_after, Some(28_200), "at midnight");
    clock.advance(28_200 * SECOND);
    assert_eq!(plain(&limiter), [policy, r#""day";r=10;t=86400, "hour";r=12"#]);
}

#[test]
fn a_period_of_fractional_seconds_is_reported_exactly_or_rounded_up() {
    let policy = |quota: Quota| {
        let policy = tollgate_tower::http::QuotaPolicy::of("x", &quota);
        (policy.quota, policy.window.unwrap())
    };
    assert_eq!(policy(Quota::new(100, 100 * MILLI)), (1_000, 1));
    assert_eq!(policy(Quota::new(3, 1_500 * MILLI)), (6, 3));
    assert_eq!(policy(Quota::new(1, 1_010 * MILLI)), (100, 101));
    assert_eq!(policy(Quota::new(1, Duration::from_nanos(1))), (1_000_000_000, 1));
    // Only a part of the reported quota can be taken at once.
    let burst = |quota: Quota| tollgate_tower::http::QuotaPolicy::of("x", &quota).burst;
    assert_eq!(burst(Quota::new(1, 700 * MILLI)), Some(1));
    assert_eq!((burst(Quota::new(7, 700 * MILLI).burst(70)), burst(Quota::manual(3))), (None, None));
    // The exact fraction would need a window of ten years.
    assert_eq!(policy(Quota::new(1, Duration::from_nanos(333_333_333))), (3, 1));
    assert_eq!(policy(Quota::new(10, Duration::from_nanos(1_000_000_001))), (19, 2));
    assert_eq!(policy(Quota::new(1, Duration::from_nanos(u64::MAX))), (1, 18_446_744_074));
    // No field has more than 15 digits.
    assert_eq!(policy(Quota::new(u64::MAX, Duration::from_nanos(1))), (999_999_999_999_999, 1));
    assert_eq!(policy(Quota::new(u64::MAX, Duration::from_nanos(u64::MAX))).0, 999_999_999_999_999);
}

#[test]
fn waits_that_no_clock_can_tell_are_not_reported() {
    let (limiter, _clock) = by_hand(Quota::manual(7));
    take(&limiter, 5);
    assert_eq!(plain(&limiter), [r#""default";q=7"#, r#""default";r=2"#]);
}

#[test]
fn tokens_claimed_by_waiters_are_not_reported_as_available() {
    let (limiter, clock) = by_hand(Quota::per_second(1).burst(5));
    take(&limiter, 2);
    let mut waiting = tokio_test::task::spawn(limiter.consume(5));
    assert!(waiting.poll().is_pending());
    // Two more for the waiter, and one.
    assert_eq!(plain(&limiter)[1], r#""default";r=0;t=3"#);
    clock.advance(1_500 * MILLI);
    assert_eq!(plain(&limiter)[1], r#""default";r=0;t=2"#);
    drop(waiting);
    assert_eq!(plain(&limiter)[1], r#""default";r=4;t=1"#);
}

#[test]
fn a_paused_or_closed_limiter_reports_no_tokens() {
    let (limiter, clock) = by_hand(Quota::per_minute(60));
    limiter.pause_for(1_500 * MILLI);
    assert_eq!(plain(&limiter)[1], r#""default";r=0;t=2"#);
    clock.advance(1_500 * MILLI);
    assert_eq!(plain(&limiter)[1], r#""default";r=60;t=1"#);
    limiter.close();
    assert_eq!(plain(&limiter)[1], r#""default";r=0"#);
}

#[test]
fn the_in_flight_cap_is_reported_on_request() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(10)).max_in_flight(5));
    let _grant = limiter.try_acquire(2).unwrap();
    assert_eq!(plain(&limiter)[1], r#""default";r=8;t=1"#);
    let [policy, limit] = rate_limit_fields(&limiter, &Terms::default().in_flight());
    assert_eq!(policy, r#""default";q=10;w=1, "in-flight";q=5;qu="concurrent-requests""#);
    assert_eq!(limit, r#""default";r=8;t=1, "in-flight";r=3"#);
}

#[test]
fn terms_are_reported() {
    let (limiter, _clock) = by_hand(Quota::per_second(65_535));
    let terms = Terms::default().name("upload").unit(tollgate_tower::http::Unit::ContentBytes);
    assert_eq!(
        rate_limit_fields(&limiter, &terms),
        [r#""upload";q=65535;qu="content-bytes";w=1"#, r#""upload";r=65535;t=1"#]
    );
}
