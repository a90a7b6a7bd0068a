//! Servers that send wrong data, by mistake or on purpose.

use super::*;

use http::{HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use tollgate_tower::http::Heed;

const NAMES: [&str; 9] = [
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "date",
    "age",
    "other",
];

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
    prop_oneof![
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
    ) {
        let built_as = Quota::per_second(20).burst(burst);
        let (limiter, clock) = by_hand(built_as);
        let heed = Heed::default().at_most(10 * SECOND).jitter(SECOND).follow(0, built_as);
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
}
