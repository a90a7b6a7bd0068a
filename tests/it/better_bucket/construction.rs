//! Invalid configurations: each error names the value and the correction.

use super::{MOST, NANO, limiter, takes};
use std::time::Duration;
use tollgate::{ConfigError, Limiter, Quota};

/// The error of a limiter with `quota` as its second quota.
fn error(quota: Quota) -> ConfigError {
    Limiter::builder().quota(Quota::per_second(1)).quota(quota).build().unwrap_err()
}

/// Asserts that the message contains each of `parts`.
fn says(error: &ConfigError, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "`{message}` does not name {part}");
    }
}

#[test]
fn neither_a_quota_nor_a_cap_is_refused() {
    let error = Limiter::builder().max_waiting(5).build().unwrap_err();
    assert_eq!(error, ConfigError::NoQuota);
    says(&error, &["Quota::per_second", "max_in_flight"]);
}

#[test]
fn an_amount_of_zero_is_refused() {
    let error = error(Quota::per_second(0).burst(5));
    assert_eq!(error, ConfigError::ZeroAmount { quota: 1, quota_name: None });
    says(&error, &["quota 1", "amount of 0", "Quota::manual"]);
}

#[test]
fn a_period_of_zero_or_of_ages_is_refused() {
    let ages = Duration::from_nanos(u64::MAX) + NANO;
    for (period, named) in [(Duration::ZERO, "0ns"), (ages, "18446744073.709551616s"), (Duration::MAX, "584 years")] {
        let error = error(Quota::new(5, period));
        assert_eq!(error, ConfigError::BadPeriod { quota: 1, quota_name: None, period });
        says(&error, &["quota 1", named]);
    }
    assert!(Limiter::new(Quota::new(1, Duration::from_nanos(u64::MAX))).is_ok());
    assert!(Limiter::new(Quota::new(1, NANO)).is_ok());
}

#[test]
fn a_burst_of_zero_or_beyond_what_rovers_can_span_is_refused() {
    let bursts = [Quota::per_second(1).burst(0), Quota::manual(0), Quota::per_second(1).burst(MOST + 1)];
    let unnamed = [Quota::per_second(MOST + 1), Quota::manual(u64::MAX)];
    for quota in bursts.into_iter().chain(unnamed) {
        let burst = quota.capacity();
        let error = error(quota);
        assert_eq!(error, ConfigError::BadBurst { quota: 1, quota_name: None, burst, most: MOST });
        says(&error, &["quota 1", &burst.to_string(), &MOST.to_string()]);
    }
    assert!(Limiter::new(Quota::per_second(1).burst(MOST)).is_ok());
    assert!(Limiter::new(Quota::per_second(1).burst(1)).is_ok());
}

#[test]
fn a_step_that_does_not_fit_its_bucket_is_refused() {
    let error = error(Quota::per_second(12).burst(7).stepped());
    assert_eq!(error, ConfigError::StepAboveBurst { quota: 1, quota_name: None, amount: 12, burst: 7 });
    says(&error, &["quota 1", "12", "7"]);
    assert!(Limiter::new(Quota::per_second(12).burst(12).stepped()).is_ok());
    assert!(Limiter::new(Quota::per_second(12).burst(7)).is_ok(), "a continuous quota mints token by token");
}

#[test]
fn more_at_the_start_than_the_bucket_holds_is_refused() {
    for (quota, burst) in [(Quota::per_second(7), 7), (Quota::per_second(1).burst(7), 7), (Quota::manual(3), 3)] {
        let error = error(quota.initial(41));
        assert_eq!(error, ConfigError::InitialAboveBurst { quota: 1, quota_name: None, initial: 41, burst });
        says(&error, &["quota 1", "41", &burst.to_string()]);
        assert!(Limiter::new(quota.initial(burst)).is_ok());
    }
}

#[test]
fn two_quotas_of_one_name_are_refused() {
    let builder = Limiter::builder().quota_named("api", Quota::per_second(1)).quota(Quota::per_hour(9));
    let error = builder.clone().quota_named("api", Quota::per_day(5)).build().unwrap_err();
    assert_eq!(error, ConfigError::DuplicateName { name: "api".to_owned() });
    says(&error, &["`api`"]);
    assert!(builder.quota_named("API", Quota::per_day(5)).quota(Quota::per_day(5)).build().is_ok());
}

#[test]
fn a_cap_of_zero_or_beyond_what_rovers_can_span_is_refused() {
    for cap in [0, MOST + 1, u64::MAX] {
        let error = Limiter::builder().quota(Quota::per_second(1)).max_in_flight(cap).build().unwrap_err();
        assert_eq!(error, ConfigError::BadMaxInFlight { cap, most: MOST });
        says(&error, &["max_in_flight", &cap.to_string(), &MOST.to_string()]);
    }
    let limiter = Limiter::builder().quota(Quota::per_second(1)).max_in_flight(MOST).build().unwrap();
    assert_eq!(limiter.set_max_in_flight(0), Err(ConfigError::BadMaxInFlight { cap: 0, most: MOST }));
    assert_eq!(limiter.set_max_in_flight(1), Ok(()));
}

#[test]
fn a_change_of_what_is_not_there_is_refused() {
    let limiter = Limiter::builder().quota_named("api", Quota::per_second(1)).build().unwrap();
    for (error, which) in [
        (limiter.set_quota(1, Quota::per_second(5)).unwrap_err(), "1"),
        (limiter.set_quota("apt", Quota::per_second(5)).unwrap_err(), "`apt`"),
    ] {
        assert_eq!(error, ConfigError::UnknownQuota { which: which.to_owned(), count: 1 });
        says(&error, &["quota", which, "has 1"]);
    }
    let error = limiter.set_max_in_flight(5).unwrap_err();
    assert_eq!(error, ConfigError::NotCapped);
    says(&error, &["max_in_flight"]);
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let (limiter, _clock) = limiter(Quota::per_second(10));
    assert!(takes(&limiter, 4));
    let before = limiter.snapshot();
    assert_eq!(limiter.set_quota(0, Quota::per_second(0)), Err(ConfigError::ZeroAmount { quota: 0, quota_name: None }));
    assert!(limiter.set_quota(0, Quota::per_second(5).initial(6)).is_err());
    assert!(limiter.set_quota(7, Quota::per_second(5)).is_err());
    assert_eq!(limiter.snapshot(), before);
}
