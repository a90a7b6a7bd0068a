//! Windows that slide: what comes back when, what is refused, and where they are not possible.

use super::*;

fn sliding(amount: u64) -> Quota {
    Quota::new(amount, 320 * NANO).sliding()
}

#[test]
fn a_claim_for_more_than_the_amount_is_refused() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(100)).quota(sliding(7)).quota(sliding(5)));
    let refused = too_large(6, 5, Bound::Quota(2));
    assert_eq!(assert_ready_err!(spawn(fixture.limiter.consume(6)).poll()), refused);
    assert_eq!(assert_ready_err!(spawn(fixture.limiter.consume(6).within(DAY)).poll()), refused);
    assert_eq!(fixture.limiter.estimate(6), None);
    let at_once = TryAcquireError::TooLarge { cost: 6, most: 5, by: Bound::Quota(2), quota_name: None };
    assert_eq!(fixture.limiter.try_acquire(6).unwrap_err(), at_once);
}

#[test]
fn a_claim_that_waits_when_the_amount_falls_below_it_is_granted_alone() {
    let fixture = Fixture::new(sliding(9));
    let _first = fixture.take(2);
    fixture.pass(100 * NANO);
    let _second = fixture.take(2);
    let mut waiting = [fixture.enter(8), fixture.enter(1)];
    fixture.limiter.set_quota(0, sliding(3)).unwrap();
    fixture.pass(319 * NANO);
    waits(&mut waiting[0]);
    fixture.pass(NANO);
    let _alone = served(&mut waiting[0]);
    fixture.pass(319 * NANO);
    waits(&mut waiting[1]);
    fixture.pass(NANO);
    let _next = served(&mut waiting[1]);
}

/// The token was granted at 100, and comes back at 420.
#[test]
fn a_clock_that_steps_back_brings_no_token_back_early() {
    let fixture = Fixture::new(sliding(1));
    fixture.pass(100 * NANO);
    fixture.clock.step_back(50 * NANO);
    let _grant = fixture.take(1);
    fixture.pass(369 * NANO);
    assert_eq!(fixture.limiter.available(), 0);
    fixture.pass(NANO);
    assert_eq!(fixture.limiter.available(), 1);
}

#[test]
fn tokens_come_back_after_a_period_however_often_the_period_changes() {
    let fixture = Fixture::new(Quota::new(100, 320 * SECOND).sliding());
    fixture.pass(SECOND);
    // Counts as made after ten seconds: a 32nd of the period.
    let _grant = fixture.take(100);
    for second in 1..334 {
        assert!(second > 330 || fixture.limiter.available() == 0, "after {second} s");
        let quota = Quota::new(100, (320 + second % 5) * SECOND).sliding();
        fixture.limiter.set_quota(0, quota).unwrap();
        fixture.pass(SECOND);
    }
    assert_eq!(fixture.limiter.available(), 100);
}

/// Tokens that would come back after the end of time come back one new period after the change.
#[test]
fn a_window_as_long_as_all_time_that_becomes_short_counts_its_grants() {
    for amount in [9, 100] {
        let fixture = Fixture::new(Quota::new(amount, Duration::from_nanos(u64::MAX)).sliding());
        fixture.pass(100 * SECOND);
        let _grant = fixture.take(amount);
        fixture.limiter.set_quota(0, Quota::per_minute(amount).sliding()).unwrap();
        fixture.pass(MINUTE - NANO);
        assert_eq!(fixture.limiter.available(), 0);
        fixture.pass(NANO);
        assert_eq!(fixture.limiter.available(), amount);
    }
}

#[test]
fn a_sliding_quota_is_refused_where_no_window_is_counted() {
    let quota = sliding(9);
    let error = |setting| ConfigError::from(QuotaError::SlidingUnsupported { setting });
    assert_eq!(Limiter::builder().quota(quota).classes().build().unwrap_err(), error("classes"));
    assert_eq!(Bucket::new(quota, Duration::ZERO).unwrap_err(), error("Bucket"));
    let classes = Limiter::builder().quota(one_per_milli(9)).classes().build().unwrap();
    assert_eq!(classes.set_quota(0, quota).unwrap_err(), error("classes"));
    for (part, share) in
        [("floor", tollgate::Share::weight(1).floor(quota)), ("ceiling", tollgate::Share::weight(1).ceiling(quota))]
    {
        let reason = QuotaError::SlidingUnsupported { setting: part };
        let refused = classes.class("batch", share).unwrap_err();
        assert_eq!(refused, ConfigError::BadShare { class: "batch".to_owned(), part, reason });
    }
    let burst = Limiter::builder().quota_named("minute", quota.burst(9)).build().unwrap_err();
    assert_eq!(
        burst,
        ConfigError::BadQuota {
            quota: 0,
            quota_name: Some("minute"),
            reason: QuotaError::SlidingBurst { burst: 9, amount: 9 }
        }
    );
    for text in [burst.to_string(), error("classes").to_string()] {
        assert!(text.contains("is sliding"), "{text}");
    }
}

#[test]
fn neither_a_parent_nor_a_store_counts_windows() {
    let error = |setting| ConfigError::from(QuotaError::SlidingUnsupported { setting });
    let builder = || KeyedLimiter::<u64>::builder().quota(Quota::per_second(9));
    let parent = Limiter::new(sliding(9)).unwrap();
    assert_eq!(builder().parent(&parent).build().unwrap_err(), error("parent"));
    let parent = Limiter::new(one_per_milli(9)).unwrap();
    let _keys = builder().parent(&parent).build().unwrap();
    assert_eq!(parent.set_quota(0, sliding(9)).unwrap_err(), error("parent"));
    let shared = Limiter::builder().quota(sliding(9)).distributed(MemoryStore::new()).build();
    assert_eq!(shared.unwrap_err(), error("distributed"));
}
