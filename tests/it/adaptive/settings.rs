//! Settings: which are accepted, and the errors for the others.

use crate::fixture::*;
use tollgate::adaptive::AdaptiveError;

#[test]
fn bounds_are_quotas_or_their_text() {
    let text = Adaptive::between("1/s", "5000/s, burst 20").build().unwrap().snapshot();
    let quotas = Adaptive::between(Quota::per_second(1), Quota::per_second(5_000).burst(20)).build().unwrap();
    assert_eq!(text, quotas.snapshot());
    assert_eq!((text.slowest, text.rate.capacity()), (Quota::per_second(1), 20));
}

#[test]
fn bounds_may_be_one_rate_in_two_forms() {
    // As numbers of tokens per second the first is the larger one, by the last bit.
    let api = Adaptive::between("1/300ms", "3/900ms").build().unwrap();
    api.attempt(1, true).throttled(None);
    assert_eq!(api.snapshot().rate, Quota::new(1, Duration::from_millis(300)).burst(1));
}

#[test]
fn text_that_is_no_rate_is_an_error_that_names_it() {
    let numbers = ["NaN/s", "-1/s", "inf/s", "1e30/s", "1000000000000000000000000000000/s", "1.5/s", "", "/", "10"];
    for text in numbers {
        let error = Adaptive::between("1/s", text).build().unwrap_err();
        assert!(matches!(error, AdaptiveError::Parse(_)), "{text}: {error:?}");
        assert!(Adaptive::between(text, "1/s").build().is_err());
        assert!(Adaptive::between("1/s", "10/s").start(text).build().is_err());
    }
}

#[test]
fn bounds_that_make_no_sense_are_typed_errors() {
    let error = |slowest: &str, fastest: &str| Adaptive::between(slowest, fastest).build().unwrap_err();
    assert!(matches!(error("5/s", "4/s"), AdaptiveError::Crossed { .. }));
    assert!(matches!(error("5/s", "299/min"), AdaptiveError::Crossed { .. }), "compared as rates");
    assert!(matches!(error("manual 5", "4/s"), AdaptiveError::NotContinuous { which: "slowest", .. }));
    assert!(matches!(error("1/s", "4/s, stepped"), AdaptiveError::NotContinuous { which: "fastest", .. }));
    let zero = AdaptiveError::BadQuota { which: "slowest", error: QuotaError::ZeroAmount };
    assert_eq!(error("0/s", "4/s"), zero);
    assert!(std::error::Error::source(&zero).is_some_and(|source| source.is::<QuotaError>()));
    assert!(matches!(error("1/0s", "4/s"), AdaptiveError::BadQuota { .. }));
    assert_eq!(error("5/s", "4/s").to_string(), "the slowest rate `5/s` is above the fastest `4/s`: swap them");
}

#[test]
fn settings_out_of_range_are_typed_errors() {
    let settings = || Adaptive::between("1/s", "10/s");
    assert!(matches!(settings().start("11/s").build(), Err(AdaptiveError::StartOutside { .. })));
    assert!(matches!(settings().start("59/min").build(), Err(AdaptiveError::StartOutside { .. })));
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(settings().increase_per_second(value).build(), Err(AdaptiveError::BadIncrease { .. })));
    }
    for value in [0.0, -1.0, 0.99, 1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(settings().decrease(value).build(), Err(AdaptiveError::BadDecrease { .. })));
    }
    assert!(matches!(settings().settle(Duration::MAX).build(), Err(AdaptiveError::BadSettle { .. })));
    assert!(matches!(settings().burst(0).build(), Err(AdaptiveError::BadQuota { .. })));
    assert!(settings().settle(Duration::ZERO).increase_per_second(1e300).decrease(0.01).build().is_ok());
}

#[test]
fn a_setting_that_is_made_twice_is_a_typed_error() {
    let settings = || Adaptive::between("1/s", "10/s");
    let twice = [
        ("start", settings().start("2/s").start("3/s")),
        ("increase_per_second", settings().increase_per_second(1.0).increase_per_second(2.0)),
        ("decrease", settings().decrease(0.5).decrease(0.6)),
        ("settle", settings().settle(Duration::ZERO).settle(Duration::from_secs(1))),
        ("burst", settings().burst(1).burst(2)),
        ("seed", settings().seed(1).seed(1)),
        ("longest_pause", settings().longest_pause(Duration::ZERO).longest_pause(Duration::ZERO)),
    ];
    for (setting, builder) in twice {
        assert_eq!(builder.build().unwrap_err(), AdaptiveError::Limiter(ConfigError::SetTwice { setting }));
    }
    let written_out = Adaptive::between("1/s", "10/s, burst 20").burst(5).build().unwrap();
    assert_eq!(written_out.snapshot().rate.capacity(), 5, "the builder decides before the text");
}

#[test]
fn the_widest_bounds_are_accepted() {
    let slowest = Quota::new(1, Duration::from_secs(100 * 365 * 86_400));
    let fastest = Quota::new(u64::MAX, Duration::from_nanos(1)).burst(1);
    let adaptive = Adaptive::between(slowest, fastest).build().unwrap();
    assert_eq!(adaptive.snapshot().rate, slowest.burst(1), "the rate is exactly the bound");
    let adaptive = Adaptive::between(slowest, fastest).start(fastest).build().unwrap();
    adaptive.attempt(u64::MAX, true).throttled(Duration::MAX);
    adaptive.attempt(u64::MAX, true).succeeded();
    assert!(adaptive.tokens_per_second() < 2e28);
}

#[test]
fn driving_changes_the_first_quota_only() {
    let limiter =
        Limiter::builder().quota(Quota::per_second(9)).quota_named("minute", Quota::per_minute(60)).build().unwrap();
    let adaptive = Adaptive::between("1/s", "10/s").start("5/s").drive(&limiter).unwrap();
    let quotas = limiter.snapshot().quotas;
    assert_eq!(quotas[0].quota, adaptive.snapshot().rate);
    assert_eq!(quotas[1].quota, Quota::per_minute(60));
}
