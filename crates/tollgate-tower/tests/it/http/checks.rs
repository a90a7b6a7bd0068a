//! What holds whatever a server sends. The test `hostile` and the fuzz target `header_fields` call it.

use http::{HeaderMap, StatusCode};
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota};
use tollgate_tower::http::{Advice, Format, Heed, RateLimits, ResourceLimits, Unit};

const SECOND: Duration = Duration::from_secs(1);
const FORMATS: [Format; 4] = [Format::Draft11, Format::OpenAi, Format::Anthropic, Format::XRateLimit];
/// The largest number that is read, and the most items.
const MOST: u64 = 999_999_999_999_999;
const MOST_ITEMS: usize = 32;

/// A client's limiter follows these responses, and then waits for so many milliseconds each: there is no panic, no pause
/// longer than allowed, and no token too many, and every wait ends.
///
/// # Panics
///
/// Panics if that is not so.
pub fn follow<'r>(responses: impl IntoIterator<Item = (StatusCode, &'r HeaderMap, u64)>, unit: &str, burst: u64) {
    let (built_as, clock) = (Quota::per_second(20).burst(burst), ManualClock::new());
    let limiter = Limiter::builder().quota(built_as).clock(clock.clone()).build().unwrap();
    let heed = Heed::default().unit(unit).at_most(10 * SECOND).jitter(SECOND).follow(0, built_as).learn();
    let (mut passed, mut elapsed) = (0, Duration::ZERO);
    for (status, headers, millis) in responses {
        let before = limiter.available();
        heed.heed(&limiter, status, headers);
        assert!(limiter.available() <= before);
        let snapshot = limiter.snapshot();
        assert!(snapshot.paused_for.unwrap_or_default() <= 11 * SECOND);
        let quota = snapshot.quotas[0].quota;
        assert!(quota.capacity() <= burst && quota.capacity() > 0);
        let rate = |quota: Quota| quota.amount() as f64 / quota.period().as_secs_f64();
        assert!(rate(quota) <= rate(built_as) && rate(quota) >= 0.1 - 1e-9);
        let wait = Duration::from_millis(millis);
        clock.advance(wait);
        elapsed += wait;
        while let Ok(_grant) = limiter.try_acquire(1) {
            passed += 1;
        }
        assert!(f64::from(passed) <= burst as f64 + 20.0 * elapsed.as_secs_f64() + 1e-6);
    }
    // The longest pause, and the slowest rate.
    clock.advance(21 * SECOND);
    assert!(limiter.try_acquire(1).is_ok());
}

/// What is read of the fields is within reason, each value of a resource is either read or counted, and what is read of
/// the structured fields can be written and read again.
///
/// # Panics
///
/// Panics if that is not so.
pub fn read(status: StatusCode, headers: &HeaderMap, unit: &str) {
    let advice = Advice::read(status, headers, &FORMATS, &Unit::from(unit));
    assert!(advice.policy.is_none_or(|policy| policy.window.is_some() && policy.quota <= MOST));
    for format in FORMATS {
        let read = RateLimits::read(format, headers);
        assert!(read.policies.len() <= MOST_ITEMS && read.limits.len() <= MOST_ITEMS);
        let mut written = HeaderMap::new();
        read.write(format, &mut written);
        if matches!(format, Format::Draft11) {
            assert_eq!(RateLimits::read(format, &written), read);
        }
    }
    let read = ResourceLimits::read(headers);
    let mut values = read.ignored;
    assert!(read.limits.len() <= MOST_ITEMS);
    for limit in &read.limits {
        assert!(limit.limit.is_none_or(|units| (1..=MOST).contains(&units)));
        assert!(limit.remaining.is_none_or(|units| units <= limit.limit.unwrap_or(MOST)));
        assert!(limit.reset.is_none_or(|reset| reset <= Duration::from_secs(366 * 86_400)));
        let has = [limit.limit.is_some(), limit.remaining.is_some(), limit.reset.is_some()];
        values += has.into_iter().map(u64::from).sum::<u64>();
    }
    let is_value = |name: &str| {
        let prefixes = ["x-ratelimit-", "x-rate-limit-", "ratelimit-", "anthropic-"];
        let others = ["x-ratelimit-resource", "ratelimit-policy"];
        prefixes.into_iter().any(|prefix| name.starts_with(prefix)) && !others.contains(&name)
    };
    let names = || headers.keys().flat_map(|name| headers.get_all(name).iter().map(|_| name.as_str()));
    let all = names().filter(|name| is_value(name)).count() as u64;
    // A `reset-after` replaces a `reset`.
    let replacing = names().filter(|name| name.ends_with("reset-after")).count() as u64;
    assert!(values <= all && values + replacing >= all, "{values} of {all}");
}
