//! One key of a keyed limiter with a learned rate.

use crate::fixture::*;
use tollgate::adaptive::AdaptiveError;

#[test]
fn one_key_is_driven_and_the_others_are_not() {
    let clock = ManualClock::new();
    let hosts: KeyedLimiter<&str> =
        KeyedLimiter::builder().quota(Quota::per_second(7)).clock(clock.clone()).build().unwrap();
    let adaptive = Adaptive::between("1/s", "100/s").start("10/s").drive_key(&hosts, "api").unwrap();
    assert_eq!(hosts.quotas(&"api"), Quotas::from(adaptive.snapshot().rate));
    assert_eq!(hosts.quotas(&"other"), Quotas::from(Quota::per_second(7)));
    adaptive.attempt(1, true).throttled(None);
    assert_eq!(hosts.quotas(&"api"), Quotas::from(adaptive.snapshot().rate));
    assert!(adaptive.tokens_per_second() < 10.0);
    // Of several pauses for one event the longest counts.
    let attempts = [30, 10].map(|seconds| (seconds, adaptive.attempt(1, true)));
    let waits = attempts.map(|(seconds, attempt)| {
        attempt.throttled(Duration::from_secs(seconds));
        hosts.estimate(&"api", 1).unwrap().as_secs_f64()
    });
    assert!((29.0..=31.0).contains(&waits[0]) && waits[1] == waits[0], "{waits:?}");
    assert_eq!(hosts.estimate(&"other", 1), Some(Duration::ZERO));
}

#[test]
fn a_driven_key_keeps_its_other_quotas() {
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).quota_named("day", Quota::per_day(1_000));
    let hosts = builder.clock(ManualClock::new()).build().unwrap();
    let day = || (hosts.quotas(&"api").name(1).map(str::to_owned), hosts.quotas(&"api").get(1));
    let before = day();
    let adaptive = Adaptive::between("1/s", "100/s").start("20/s").drive_key(&hosts, "api").unwrap();
    assert_eq!(day(), before);
    adaptive.attempt(1, true).throttled(None);
    assert_eq!((hosts.quotas(&"api").get(0), day()), (Some(adaptive.snapshot().rate), before));
    assert!(hosts.try_acquire(&"api", 1_001).is_err());
}

#[test]
fn each_of_many_keys_learns_its_own_rate_and_one_too_many_is_an_error() {
    const KEYS: u64 = 300;
    let builder = KeyedLimiter::builder().quota(Quota::per_second(7)).max_keys(KEYS);
    let hosts = builder.clock(ManualClock::new()).build().unwrap();
    let drive = |key: u64| Adaptive::between("1/s", "100/s").start("20/s").drive_key(&hosts, key);
    let driven: Vec<_> = (0..KEYS).map(|key| drive(key).unwrap()).collect();
    let error = drive(KEYS).unwrap_err();
    assert!(matches!(error, AdaptiveError::Limiter(ConfigError::TooManyKeys { .. })), "{error}");
    for (key, adaptive) in (0..KEYS).zip(&driven) {
        (0..key % 4).for_each(|_| adaptive.attempt(1, true).throttled(None));
        assert_eq!(hosts.quotas(&key), Quotas::from(adaptive.snapshot().rate));
        assert_eq!(adaptive.tokens_per_second(), 20.0 / f64::from(1 << (key % 4)));
    }
    // A key that has lost its quota gets it back with the next change.
    hosts.reset_quota_for(&0);
    driven[0].attempt(1, true).throttled(None);
    assert_eq!(hosts.quotas(&0), Quotas::from(driven[0].snapshot().rate));
}
