//! Servers that send wrong data, by mistake or on purpose.

use super::*;

use http::{HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use tollgate_tower::http::{Heed, ResourceLimits};

const NAMES: [&str; 19] = [
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-resource",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-output-tokens-reset",
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "date",
    "age",
    "other",
];

const ABSURD: [&str; 10] =
    ["NaN", "inf", "-inf", "-1", "-0", "1e30", "1000000000000000000000000000000", "0s", "00", "0.0"];

/// Bytes that a header can contain: texts that look like a field but are invalid, and fields with extreme values.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![0x20u8..0x7f, 0x80u8..=0xff];
    let number = prop_oneof![Just(0), any::<u64>(), 0u64..5, 1_000_000_000u64..4_000_000_000];
    let part = prop_oneof![
        Just("\"a\"".to_owned()),
        Just("b".to_owned()),
        Just("(".to_owned()),
        Just(", ".to_owned()),
        Just(";r=".to_owned()),
        Just(";t=".to_owned()),
        Just(";q=".to_owned()),
        Just(";w=".to_owned()),
        Just(";qu=\"content-bytes\"".to_owned()),
        Just(";pk=:AA==:".to_owned()),
        Just(";tollgate-burst=".to_owned()),
        number.clone().prop_map(|number| number.to_string()),
    ];
    let item = (number.clone(), number.clone(), number.clone())
        .prop_map(|(a, b, c)| format!("\"a\";r={a};t={b}, \"a\";q={a};w={b};tollgate-burst={c}"));
    // A duration of Go or an instant of RFC 3339, almost.
    let unit = prop::sample::select(vec!["h", "m", "s", "ms", "us", "ns", "d", "", ".", "-", "e", "m0"]);
    let duration = prop::collection::vec((number.clone(), unit), 0..4);
    let duration =
        duration.prop_map(|parts| parts.iter().map(|(number, unit)| format!("{number}{unit}")).collect::<String>());
    let instant = (
        0..10_000u32,
        0..14u8,
        0..33u8,
        0..25u8,
        0..62u8,
        prop::sample::select(vec!["Z", "+02:00", "-25:00", "", ".9Z"]),
    )
        .prop_map(|(year, month, day, hour, minute, zone)| {
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{minute:02}{zone}")
        });
    prop_oneof![
        duration.prop_map(String::into_bytes),
        instant.prop_map(String::into_bytes),
        prop::sample::select(&ABSURD[..]).prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(byte, 0..40),
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat().into_bytes()),
        item.prop_map(String::into_bytes),
        number.prop_map(|number| number.to_string().into_bytes()),
        Just(b"Mon, 05 Aug 2019 09:27:05 GMT".to_vec()),
        Just(b"Fri, 31 Dec 9999 23:59:59 GMT".to_vec()),
    ]
}

fn response() -> impl Strategy<Value = (StatusCode, HeaderMap)> {
    let status = prop_oneof![Just(200u16), Just(429), Just(503), 100u16..600];
    let fields = prop::collection::vec((prop::sample::select(&NAMES[..]), value()), 0..6);
    (status, fields).prop_map(|(status, fields)| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(&value).unwrap());
        }
        (StatusCode::from_u16(status).unwrap(), headers)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Whatever a server sends: no panic, no pause longer than allowed, no token too many, and every wait ends.
    #[test]
    fn nothing_makes_a_limiter_faster_or_holds_it_for_ever(
        responses in prop::collection::vec((response(), 0u64..100_000), 1..8),
        burst in 1u64..50,
        unit in prop::sample::select(vec!["requests", "tokens", "output-tokens"]),
    ) {
        let built_as = Quota::per_second(20).burst(burst);
        let (limiter, clock) = by_hand(built_as);
        let heed = Heed::default().unit(unit).at_most(10 * SECOND).jitter(SECOND).follow(0, built_as);
        let mut passed = 0;
        let mut elapsed = Duration::ZERO;
        for ((status, headers), millis) in responses {
            let before = limiter.available();
            heed.heed(&limiter, status, &headers);
            prop_assert!(limiter.available() <= before);
            let snapshot = limiter.snapshot();
            prop_assert!(snapshot.paused_for.unwrap_or_default() <= 11 * SECOND);
            let quota = snapshot.quotas[0].quota;
            prop_assert!(quota.capacity() <= burst && quota.capacity() > 0);
            let rate = |quota: Quota| quota.amount() as f64 / quota.period().as_secs_f64();
            prop_assert!(rate(quota) <= rate(built_as) && rate(quota) >= 0.1 - 1e-9);
            clock.advance(Duration::from_millis(millis));
            elapsed += Duration::from_millis(millis);
            while let Ok(_grant) = limiter.try_acquire(1) {
                passed += 1;
            }
            prop_assert!(passed as f64 <= burst as f64 + 20.0 * elapsed.as_secs_f64() + 1e-6);
        }
        // The longest pause, and the slowest rate.
        clock.advance(21 * SECOND);
        prop_assert!(limiter.try_acquire(1).is_ok());
    }

    /// A parsed response can be written, and parsed again.
    #[test]
    fn whatever_is_read_can_be_written((_, headers) in response()) {
        let told = RateLimits::read(Format::Draft11, &headers);
        let mut written = HeaderMap::new();
        told.write(Format::Draft11, &mut written);
        prop_assert_eq!(RateLimits::read(Format::Draft11, &written), told);
        RateLimits::read(Format::XRateLimit, &headers).write(Format::XRateLimit, &mut written);
    }

    /// What is read of resources is within reason, and each value that is present is either read or counted.
    #[test]
    fn what_is_read_of_resources_is_within_reason((_, headers) in response()) {
        let read = ResourceLimits::read(&headers);
        let mut values = read.ignored;
        for limit in &read.limits {
            prop_assert!(limit.limit.is_none_or(|units| (1..=999_999_999_999_999).contains(&units)));
            prop_assert!(limit.remaining.is_none_or(|units| units <= limit.limit.unwrap_or(999_999_999_999_999)));
            prop_assert!(limit.reset.is_none_or(|reset| reset <= Duration::from_secs(366 * 86_400)));
            values += limit.limit.iter().count() as u64;
            values += limit.remaining.iter().count() as u64;
            values += limit.reset.iter().count() as u64;
        }
        let is_value = |name: &&HeaderName| {
            let name = name.as_str();
            (name.starts_with("x-ratelimit-") || name.starts_with("anthropic-")) && name != "x-ratelimit-resource"
        };
        let present: usize = headers.keys().filter(is_value).map(|name| headers.get_all(name).iter().count()).sum();
        prop_assert_eq!(values, present as u64);
        // Each family on its own says the same.
        for format in [Format::OpenAi, Format::Anthropic] {
            RateLimits::read(format, &headers);
        }
    }
}
