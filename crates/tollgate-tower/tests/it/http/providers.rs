//! The fields of OpenAI, Anthropic and GitHub: as their documentation and their servers show them, and out of reason.

use super::*;

use std::time::UNIX_EPOCH;
use tollgate_tower::http::ResourceLimit;

const OK: StatusCode = StatusCode::OK;
const DAY: Duration = Duration::from_secs(86_400);

type Observed = (Option<u64>, Option<u64>, Option<Duration>);

fn observed(limit: &ResourceLimit) -> Observed {
    (limit.limit, limit.remaining, limit.reset)
}

fn read(fields: &[(&str, &str)]) -> ResourceLimits {
    ResourceLimits::read(&headers(fields))
}

/// The reset that a text means, in a response of this date.
fn reset(text: &str) -> Option<Duration> {
    let date = ("date", "Thu, 21 Aug 2025 12:40:00 GMT");
    read(&[date, ("x-ratelimit-reset-requests", text)]).get("requests").and_then(|limit| limit.reset)
}

/// The fields of OpenAI for one resource.
fn openai<'a>(limit: &'a str, remaining: &'a str, reset: &'a str) -> [(&'static str, &'a str); 3] {
    let names = ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];
    [(names[0], limit), (names[1], remaining), (names[2], reset)]
}

fn advice(fields: &[(&str, &str)], unit: &str) -> Advice {
    let formats = [Format::Draft11, Format::OpenAi, Format::Anthropic, Format::XRateLimit];
    Advice::read(OK, &headers(fields), &formats, &Unit::from(unit))
}

/// The sample of OpenAI's documentation.
#[test]
fn the_fields_of_openai_are_read() {
    let read = read(&[
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]);
    assert_eq!(read.limits.iter().map(|limit| &*limit.resource).collect::<Vec<_>>(), ["requests", "tokens"]);
    assert_eq!(observed(&read.limits[0]), (Some(60), Some(59), Some(SECOND)));
    assert_eq!(observed(&read.limits[1]), (Some(150_000), Some(149_984), Some(360 * SECOND)));
    assert_eq!(read.ignored, 0);
}

/// A response of Anthropic's server: a full bucket resets in the past.
#[test]
fn the_fields_of_anthropic_are_read() {
    let read = read(&[
        ("date", "Thu, 21 Aug 2025 12:41:00 GMT"),
        ("anthropic-ratelimit-input-tokens-limit", "80000"),
        ("anthropic-ratelimit-input-tokens-remaining", "79000"),
        ("anthropic-ratelimit-input-tokens-reset", "2025-08-21T12:41:01Z"),
        ("anthropic-ratelimit-output-tokens-limit", "16000"),
        ("anthropic-ratelimit-output-tokens-remaining", "16000"),
        ("anthropic-ratelimit-output-tokens-reset", "2025-08-21T12:40:59Z"),
        ("anthropic-ratelimit-requests-limit", "1000"),
        ("anthropic-ratelimit-requests-remaining", "999"),
        ("anthropic-ratelimit-requests-reset", "2025-08-21T12:41:00Z"),
        ("anthropic-ratelimit-unified-status", "allowed"),
        ("anthropic-organization-id", "36562039"),
    ]);
    let limit = |resource: &str| observed(read.get(resource).unwrap());
    assert_eq!(limit("input-tokens"), (Some(80_000), Some(79_000), Some(SECOND)));
    assert_eq!(limit("output-tokens"), (Some(16_000), Some(16_000), Some(Duration::ZERO)));
    assert_eq!(limit("requests"), (Some(1_000), Some(999), Some(Duration::ZERO)));
    assert_eq!((read.limits.len(), read.ignored), (3, 0));
}

#[test]
fn the_fields_of_github_are_read() {
    let date = "Mon, 01 Jul 2013 17:27:06 GMT";
    let fields = [
        ("date", date),
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "4987"),
        ("x-ratelimit-reset", "1372700873"),
        ("x-ratelimit-used", "13"),
        ("x-ratelimit-resource", "core"),
    ];
    let now = httpdate::parse_http_date(date).unwrap().duration_since(UNIX_EPOCH).unwrap();
    let reset = Duration::from_secs(1_372_700_873) - now;
    assert_eq!(observed(read(&fields).get("core").unwrap()), (Some(5_000), Some(4_987), Some(reset)));
    // Other servers name no resource.
    assert_eq!(observed(read(&fields[..5]).get("requests").unwrap()), (Some(5_000), Some(4_987), Some(reset)));
    assert_eq!(RateLimits::read(Format::XRateLimit, &headers(&fields)).limits[0].name.as_ref(), "core");
}

#[test]
fn a_reset_that_is_no_time_or_far_away_is_ignored() {
    // No times; longer than a year, and longer than any number; no dates.
    const NONE: &str = "|\x20|+5|--5|NaN|nan|inf|Infinity|1e30|1e3|soon|5 s|5x|s|ms|.|.s|1..5s|1.5.5s|6m0|6m-1s|m6s|0x10|１２|\
        \u{b5}s|5\u{b5}s|1,000|9000h|31622401|367d|999999999h|99999999999999999999h|99999999999999999999|\
        1000000000000000000000000000000|1000000000000000000000000000000s|18446744073709551615|99999999999999d99999999999999d|2026-08-23T00:00:00Z|\
        9999-12-31T23:59:60Z|2025-02-29T00:00:00Z|2025-13-01T00:00:00Z|2025-00-01T00:00:00Z|2025-04-31T00:00:00Z|\
        1900-02-29T00:00:00Z|2025-08-21T24:00:00Z|2025-08-21T12:60:00Z|2025-08-21T12:40:61Z|2025-08-21T12:40:59|2025-08-21|\
        2025-8-21T12:40:59Z|2025-08-21T12:40:59+2:00|2025-08-21T12:40:59+24:00|2025-08-21T12:40:59Zulu|\
        2025-08-21T12:40:59.Z.5|-025-08-21T12:40:59Z|1969-12-31T23:59:59Z|Mon, 32 Aug 2019 09:27:05 GMT";
    for text in NONE.split('|') {
        let field = [("date", "Thu, 21 Aug 2025 12:40:00 GMT")];
        let mut fields = headers(&field);
        fields.append("x-ratelimit-reset-requests", http::HeaderValue::from_bytes(text.as_bytes()).unwrap());
        let read = ResourceLimits::read(&fields);
        assert_eq!((read.get("requests"), read.ignored), (None, 1), "{text:?}");
        let mut fields = headers(&field);
        fields.append("retry-after", http::HeaderValue::from_bytes(text.as_bytes()).unwrap());
        let read = Advice::read(StatusCode::TOO_MANY_REQUESTS, &fields, &[], &Unit::Requests);
        assert_eq!((read.wait, read.ignored), (None, 1), "{text:?}");
    }
    assert_eq!(reset("31622400"), Some(366 * DAY));
}

#[test]
fn numbers_out_of_reason_are_ignored_and_counted() {
    for text in ["", "-1", "-0", "NaN", "1e30", "1000000000000000", "1000000000000000000000000000000", "1.5.5", "6 0"] {
        let fields = [("x-ratelimit-limit-tokens", text), ("x-ratelimit-remaining-tokens", text)];
        assert_eq!((read(&fields).limits.len(), read(&fields).ignored), (0, 2), "{text:?}");
    }
    assert_eq!((read(&[("x-ratelimit-limit-tokens", "0")]).limits.len(), 1), (0, 1));
    // The largest number that is read; more remaining than the limit; a field that is sent twice.
    let largest = read(&openai("999999999999999", "0", "1s"));
    assert_eq!(
        (observed(&largest.limits[0]), largest.ignored),
        ((Some(999_999_999_999_999), Some(0), Some(SECOND)), 0)
    );
    let contradictory = read(&openai("10", "11", "1s"));
    assert_eq!((observed(&contradictory.limits[0]), contradictory.ignored), ((Some(10), None, Some(SECOND)), 1));
    let twice = read(&[&openai("10", "5", "1s")[..], &openai("20", "6", "2s")[..]].concat());
    assert_eq!((observed(&twice.limits[0]), twice.ignored), ((Some(10), Some(5), Some(SECOND)), 3));
    // Names that are almost right are other fields.
    let others = "x-ratelimit-limit- x-ratelimit-used x-ratelimits-limit anthropic-ratelimit-limit ratelimit-limits \
                  x-rate-limit-limit-tokens";
    let others: Vec<_> = others.split(' ').map(|name| (name, "5")).collect();
    assert_eq!(read(&others), ResourceLimits::default());
    // More resources than any server has.
    let names: Vec<String> = (0..100).map(|number| format!("x-ratelimit-limit-resource{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (&**name, "5")).collect();
    assert_eq!((read(&many).limits.len(), read(&many).ignored), (32, 68));
}

#[test]
fn ignored_values_of_all_fields_are_counted_together() {
    let limiter = by_hand(Quota::per_second(10)).0;
    let heed = Heed::default();
    let heed_of_a_clone = heed.clone().unit("tokens").at_most(SECOND).follow(0, Quota::per_second(10));
    let refused = StatusCode::TOO_MANY_REQUESTS;
    heed.heed(&limiter, refused, &headers(&[("retry-after", "soon")]));
    heed_of_a_clone.heed(&limiter, OK, &headers(&openai("-1", "-1", "0")));
    heed.heed(&limiter, OK, &headers(&[("ratelimit", r#""a";r=-1, "b";r=x"#), ("ratelimit-policy", ",")]));
    heed.heed(&limiter, OK, &headers(&[("x-ratelimit-remaining", "many"), ("x-ratelimit-reset", "never")]));
    assert_eq!((heed.ignored(), heed_of_a_clone.ignored()), (8, 8));
    // Values that are absent, and values of another unit, are not.
    heed.heed(&limiter, OK, &headers(&openai("10", "5", "1s")));
    assert_eq!(heed.ignored(), 8);
}

#[test]
fn retry_after_goes_before_the_reset_and_may_be_in_milliseconds() {
    let fields = [&openai("1000", "0", "6m0s")[..], &[("retry-after", "2"), ("retry-after-ms", "1250")]].concat();
    let read = |fields: &[(&str, &str)]| {
        let formats = [Format::OpenAi];
        let read = Advice::read(StatusCode::TOO_MANY_REQUESTS, &headers(fields), &formats, &Unit::from("tokens"));
        (read.wait, read.next_unit)
    };
    assert_eq!(read(&fields), (Some(1_250 * MILLI), None));
    assert_eq!(read(&fields[..4]), (Some(2 * SECOND), None));
    let malformed = [fields[3], ("retry-after-ms", "soon")];
    assert_eq!(read(&malformed), (Some(2 * SECOND), None));
}

#[test]
fn a_malformed_time_to_wait_is_counted_in_each_field() {
    for (fields, ignored) in [
        (&[("retry-after-ms", "1s")][..], 1),
        (&[("retry-after-ms", "NaN"), ("retry-after", "2")], 1),
        (&[("retry-after-ms", "1e30"), ("retry-after", "soon")], 2),
        (&[("retry-after-ms", "5"), ("retry-after", "not read")], 0),
    ] {
        let read = Advice::read(StatusCode::TOO_MANY_REQUESTS, &headers(fields), &[], &Unit::Requests);
        assert_eq!(read.ignored, ignored, "{fields:?}");
        assert_eq!(Advice::read(OK, &headers(fields), &[], &Unit::Requests).ignored, 0, "not a refusal");
    }
}

#[test]
fn each_limiter_follows_its_own_resource() {
    let fastest = Quota::per_minute(1_000_000).burst(1_000);
    let limiters = [(); 3].map(|()| by_hand(Quota::per_minute(60).burst(1)).0);
    let units = ["requests", "input-tokens", "output-tokens"];
    let fields = [
        ("date", "Thu, 21 Aug 2025 12:41:00 GMT"),
        ("anthropic-ratelimit-requests-limit", "1000"),
        ("anthropic-ratelimit-requests-remaining", "999"),
        ("anthropic-ratelimit-input-tokens-limit", "80000"),
        ("anthropic-ratelimit-output-tokens-limit", "16000"),
        ("anthropic-ratelimit-output-tokens-remaining", "0"),
        ("anthropic-ratelimit-output-tokens-reset", "2025-08-21T12:42:00Z"),
    ];
    for (limiter, unit) in limiters.iter().zip(units) {
        Heed::default().unit(unit).follow(0, fastest).heed(limiter, OK, &headers(&fields));
    }
    let quota = |limiter: &Limiter| limiter.snapshot().quotas[0].quota;
    assert_eq!(quota(&limiters[0]), Quota::per_minute(1_000).burst(999));
    assert_eq!(quota(&limiters[1]), Quota::per_minute(80_000).burst(1_000));
    assert_eq!(quota(&limiters[2]), Quota::per_minute(16_000).burst(1_000));
    let paused = |limiter: &Limiter| limiter.snapshot().paused_for;
    assert_eq!([0, 1].map(|index| paused(&limiters[index])), [None, None]);
    // It refills as the server does, and so waits for the next token only: a 16,000th of a minute.
    assert_eq!((paused(&limiters[2]), limiters[2].available()), (Some(Duration::from_micros(3_750)), 0));
}

/// OpenAI sends no window. A bucket of 60 in a minute of which 1 is used is full again in a second.
#[test]
fn the_window_follows_from_the_reset() {
    let window = |limit: &str, remaining: &str, reset: &str| {
        advice(&openai(limit, remaining, reset), "tokens").policy.and_then(|policy| policy.window)
    };
    assert_eq!(window("60", "59", "1s"), Some(60));
    assert_eq!(window("160000", "159976", "9ms"), Some(60));
    assert_eq!(window("5000", "4999", "12ms"), Some(60));
    assert_eq!(window("5000", "0", "1m0s"), Some(60));
    assert_eq!(window("200", "199", "7m12s"), Some(86_400));
    assert_eq!(window("14400", "14370", "2m59.56s"), Some(86_400));
    assert_eq!(window("100", "50", "30m0s"), Some(3_600));
    // Nothing fits, nothing was used, or something is missing: unknown.
    assert_eq!(window("150000", "149984", "6m0s"), None);
    assert_eq!(window("60", "60", "0s"), None);
    assert_eq!(window("60", "60", "1s"), None);
    assert_eq!(window("60", "59", "0s"), None);
    assert_eq!(window("999999999999999", "999999999999998", "366d"), None);
    assert_eq!(advice(&openai("60", "59", "1s")[..2], "tokens").policy, None);
}

#[test]
fn rate_limits_of_each_resource_are_read_and_never_written() {
    let fields = headers(&openai("60", "59", "1s"));
    let read = RateLimits::read(Format::OpenAi, &fields);
    assert_eq!((read.policies[0].quota, &read.policies[0].unit), (60, &Unit::from("tokens")));
    assert_eq!((read.limits[0].available, read.limits[0].window), (59, Some(1)));
    let mut written = HeaderMap::new();
    read.write(Format::OpenAi, &mut written);
    read.write(Format::Anthropic, &mut written);
    assert!(written.is_empty());
}
