//! Servers that send wrong data, by mistake or on purpose.

use super::*;

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

/// Names of fields, apart by spaces.
const NAMES: &str = "\
    retry-after retry-after-ms x-ratelimit-limit-requests x-ratelimit-remaining-requests \
    x-ratelimit-reset-requests x-ratelimit-reset-tokens x-ratelimit-resource anthropic-ratelimit-requests-limit \
    anthropic-ratelimit-requests-remaining anthropic-ratelimit-requests-reset \
    anthropic-ratelimit-output-tokens-reset ratelimit ratelimit-policy x-ratelimit-limit x-ratelimit-remaining \
    x-ratelimit-reset x-ratelimit-reset-after x-rate-limit-remaining x-rate-limit-reset ratelimit-limit \
    ratelimit-remaining ratelimit-reset date age other";

/// Values, apart by bars.
const ABSURD: &str = "NaN|inf|-inf|-1|-0|1e30|1000000000000000000000000000000|0s|00|0.0|2, 0|10, 10;w=60|5;w=0";

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
        prop::sample::select(ABSURD.split('|').collect::<Vec<_>>()).prop_map(|text| text.as_bytes().to_vec()),
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
    let fields =
        prop::collection::vec((prop::sample::select(NAMES.split_whitespace().collect::<Vec<_>>()), value()), 0..6);
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

    #[test]
    fn nothing_makes_a_limiter_faster_or_holds_it_for_ever(
        responses in prop::collection::vec((response(), 0u64..100_000), 1..8),
        burst in 1u64..50,
        unit in prop::sample::select(vec!["requests", "tokens", "output-tokens"]),
    ) {
        checks::follow(responses.iter().map(|((status, headers), millis)| (*status, headers, *millis)), unit, burst);
    }

    #[test]
    fn what_is_read_is_within_reason_and_each_value_is_read_or_counted((status, headers) in response()) {
        checks::read(status, &headers, "requests");
    }
}
