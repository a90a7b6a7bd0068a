//! Heads of responses as real servers send them, in `tests/heads`, and what a client must do with each.

use super::*;

/// The tokens of the limiter before the response. It is not refilled.
const LEVEL: u64 = 5_000;

/// A head, the pause that follows in milliseconds, and the tokens that are left.
const HEADS: [(&str, u64, u64); 15] = [
    // A secondary limit: units are left, and no time is named.
    (include_str!("../../heads/01-github-secondary-core-403.http"), 60_000, 4_290),
    (include_str!("../../heads/02-github-secondary-search-403.http"), 60_000, 14),
    (include_str!("../../heads/03-dockerhub-api-429-unix-retry-after.http"), 60_000, 0),
    (include_str!("../../heads/04-dockerhub-pull-200-w-left.http"), 0, 76),
    // No reset is known: until the server has one more of 100 in 21,600 s.
    (include_str!("../../heads/05-dockerhub-pull-200-w-none-left.http"), 216_000, 0),
    (include_str!("../../heads/06-shopify-429-retry-after-decimal.http"), 2_000, LEVEL),
    (include_str!("../../heads/07-spacetraders-429-retry-after-below-1.http"), 503, LEVEL),
    (include_str!("../../heads/08-reddit-200-floats-none-left.http"), 541_000, 0),
    (include_str!("../../heads/09-reddit-200-two-values.http"), 541_000, 0),
    (include_str!("../../heads/10-discord-200-fractional-epoch-none-left.http"), 6_727, 0),
    (include_str!("../../heads/11-okta-429-x-rate-limit.http"), 60_000, 0),
    (include_str!("../../heads/12-gitlab-200-ratelimit-none-left.http"), 47_000, 0),
    (include_str!("../../heads/18-pubg-200-epoch-nanoseconds.http"), 30_000, 0),
    // The fallback pause. The refusal takes no tokens.
    (include_str!("../../heads/19-503-without-any-field.http"), 60_000, LEVEL),
    (include_str!("../../heads/20-envoy-200-list-limit.http"), 21_000, 0),
];

/// Splits a head into its status and its fields.
fn parsed(head: &str) -> (StatusCode, HeaderMap) {
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
    let fields: Vec<_> = fields.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
    (status, headers(&fields.iter().map(|(name, value)| (&**name, *value)).collect::<Vec<_>>()))
}

/// Follows a head with a limiter that is not refilled. Returns the pause, and the tokens that are left after it.
fn followed(heed: &Heed, status: StatusCode, fields: &HeaderMap) -> (Duration, u64) {
    let (limiter, clock) = by_hand(Quota::manual(LEVEL));
    heed.heed(&limiter, status, fields);
    let pause = limiter.snapshot().paused_for.unwrap_or_default();
    clock.advance(pause);
    (pause, limiter.available())
}

/// For GitHub's secondary limit.
fn heed() -> Heed {
    Heed::default().fallback(60 * SECOND).refusals(|status, headers| {
        matches!(status.as_u16(), 429 | 503) || status == 403 && headers.contains_key("x-ratelimit-limit")
    })
}

#[test]
fn each_head_of_a_real_server_pauses_and_takes_what_it_says() {
    let mut wrong = Vec::new();
    for (head, millis, left) in HEADS {
        let (status, fields) = parsed(head);
        let (seen, expected) = (followed(&heed(), status, &fields), (Duration::from_millis(millis), left));
        let ignored = ResourceLimits::read(&fields).ignored;
        if seen != expected || ignored > 0 {
            wrong.push(format!("{seen:?} instead of {expected:?}, {ignored} values ignored:\n{head}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_window_beside_the_limit_is_followed() {
    for (index, quota) in [(3, Quota::new(100, 21_600 * SECOND)), (14, Quota::per_minute(10))] {
        let (limiter, _clock) = by_hand(Quota::per_second(5));
        let (status, fields) = parsed(HEADS[index].0);
        Heed::default().follow(0, Quota::per_second(5)).heed(&limiter, status, &fields);
        assert_eq!(limiter.snapshot().quotas[0].quota, quota.burst(5));
    }
}

#[test]
fn one_reader_reads_the_times_of_all_fields() {
    let date = ("date", "Thu, 21 Aug 2025 12:40:00 GMT");
    const TEXTS: [(f64, &str); 17] = [
        // Zero, below zero, and in the past.
        (0.0, "0|0s|-7|-0.5|-7s|1755779999|1372700873|2025-08-21T12:39:59Z|1970-01-01T00:00:00Z|2000-02-29T00:00:00Z"),
        (
            60.0,
            "60|60.000|60s|1755780060|2025-08-21T12:41:00Z|2025-08-21 12:41:00 UTC|2025-08-21T14:41:00+0200|\
             Thu, 21 Aug 2025 12:41:00 GMT|Thu, 21 Aug 2025 12:41:00 UTC|Thu, 21 Aug 2025 12:41:00 +0000|\
             Thursday, 21-Aug-25 12:41:00 GMT|Thu Aug 21 12:41:00 2025|\x20060\x20",
        ),
        (60.25, "1755780060.25|1755780060250|1755780060250000|1755780060250000000"),
        (60.5, "1m0.5s|2025-08-21 12:41:00.5 +0000"),
        (59.25, "2025-08-21t14:40:59.25+02:00"),
        (59.0, "2025-08-21 02:40:59-10:00"),
        (86_400.0, "1d|2025-08-22T12:40:00Z"),
        (360.0, "6m0s"),
        (3_723.5, "1h2m3.5s"),
        (179.56, "2m59.56s"),
        (33_011.382_867, "33011.382867"),
        (0.503, "0.503"),
        (0.5, ".5"),
        (0.02, "20ms"),
        (0.007_66, "7.66ms"),
        (0.000_12, "120us"),
        (0.000_000_009, "9ns"),
    ];
    for (seconds, text) in TEXTS.iter().flat_map(|(seconds, texts)| texts.split('|').map(move |text| (*seconds, text)))
    {
        for (remaining, reset, status) in [
            ("", "retry-after", 429),
            ("x-ratelimit-remaining", "x-ratelimit-reset", 200),
            ("x-ratelimit-remaining", "x-ratelimit-reset-after", 200),
            ("x-rate-limit-remaining", "x-rate-limit-reset", 200),
            ("ratelimit-remaining", "ratelimit-reset", 200),
            ("ratelimit-remaining", "ratelimit-reset-after", 200),
            ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests", 200),
            ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset", 200),
        ] {
            let mut fields = headers(&[date, (reset, text)]);
            if !remaining.is_empty() {
                fields.insert(remaining, "0".parse().unwrap());
            }
            let heed = Heed::default().at_most(2 * 86_400 * SECOND);
            let (pause, _) = followed(&heed, StatusCode::from_u16(status).unwrap(), &fields);
            assert_eq!(pause, Duration::from_secs_f64(seconds), "{reset}: {text}");
        }
    }
}

#[test]
fn a_clock_that_is_wrong_by_an_hour_does_not_matter() {
    // An hour behind the client's, and an hour ahead.
    for ahead in [-3_600, 3_600] {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let theirs = now.checked_add_signed(ahead).unwrap();
        let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(theirs));
        let reset = (theirs + 30).to_string();
        let fields = headers(&[("date", &date), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &reset)]);
        assert_eq!(followed(&Heed::default(), StatusCode::OK, &fields), (30 * SECOND, 0));
        // What remains until the reset needs no clock.
        let fields = headers(&[
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset-after", "30.0"),
            ("x-ratelimit-reset", &reset),
        ]);
        assert_eq!(followed(&Heed::default(), StatusCode::OK, &fields), (30 * SECOND, 0));
    }
}

#[test]
fn the_limit_that_is_used_up_counts() {
    let resources = [
        ("x-ratelimit-remaining-requests", "50"),
        ("x-ratelimit-reset-requests", "10s"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "30s"),
    ];
    let lists = [
        ("ratelimit-policy", r#""calls";q=60;w=60, "tokens";q=1000;qu="tokens";w=60"#),
        ("ratelimit", r#""calls";r=50;t=10, "tokens";r=0;t=30"#),
    ];
    let spellings = [
        ("x-ratelimit-remaining", "50"),
        ("x-ratelimit-reset", "10"),
        ("ratelimit-remaining", "0"),
        ("ratelimit-reset", "30"),
    ];
    for (fields, left) in [(&resources[..], 50), (&lists, 50), (&spellings, 0)] {
        for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
            assert_eq!(followed(&Heed::default(), status, &headers(fields)), (30 * SECOND, left), "{fields:?}");
        }
    }
    // A limiter for each unit pauses for its own.
    let requests = Heed::default().unit("requests");
    assert_eq!(followed(&requests, StatusCode::OK, &headers(&resources)), (Duration::ZERO, 50));
    let tokens = Heed::default().unit("tokens");
    assert_eq!(followed(&tokens, StatusCode::OK, &headers(&lists)), (30 * SECOND, 0));
}

/// For example by the client's clock, if the response has no date.
#[test]
fn a_refusal_whose_reset_has_passed_pauses_by_the_fallback() {
    let fields = headers(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1755779999")]);
    assert_eq!(followed(&Heed::default(), StatusCode::OK, &fields), (Duration::ZERO, 0));
    assert_eq!(followed(&heed(), StatusCode::TOO_MANY_REQUESTS, &fields), (60 * SECOND, 0));
}

#[test]
fn less_than_nothing_left_of_a_limit_is_nothing() {
    let overdrawn = [("x-ratelimit-remaining", "-3"), ("x-ratelimit-reset", "20"), ("x-ratelimit-limit", "60")];
    assert_eq!(followed(&Heed::default(), StatusCode::OK, &headers(&overdrawn)), (20 * SECOND, 0));
    // Without a limit it means that there is none.
    assert_eq!(followed(&Heed::default(), StatusCode::OK, &headers(&overdrawn[..2])), (Duration::ZERO, LEVEL));
    // On a refusal the reset counts if it is not known how much is left.
    let refused = StatusCode::TOO_MANY_REQUESTS;
    assert_eq!(followed(&Heed::default(), refused, &headers(&overdrawn[..2])), (20 * SECOND, LEVEL));
}

#[test]
fn the_rate_is_learned_only_if_asked_for() {
    let fastest = Quota::per_second(50);
    let learned = |heed: Heed, fields: &[(&str, &str)]| {
        let (limiter, _clock) = by_hand(fastest);
        heed.heed(&limiter, StatusCode::OK, &headers(fields));
        limiter.snapshot().quotas[0].quota
    };
    let follow = || Heed::default().follow(0, fastest);
    let first = [("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "4"), ("x-ratelimit-reset-after", "4.000")];
    assert_eq!(learned(follow().learn(), &first), Quota::new(5, 5 * SECOND).burst(4));
    assert_eq!(learned(follow(), &first), fastest);
    assert_eq!(learned(Heed::default().learn(), &first), fastest, "no quota follows");
    // Never faster than the fastest; nothing follows from what is used up, or not known.
    let hour = [("ratelimit-limit", "60"), ("ratelimit-remaining", "45"), ("ratelimit-reset", "45")];
    assert_eq!(learned(follow().learn(), &hour), Quota::per_minute(60).burst(50));
    let rich = [("ratelimit-limit", "9000"), ("ratelimit-remaining", "9000"), ("ratelimit-reset", "1")];
    assert_eq!(learned(follow().learn(), &rich), fastest);
    let used_up = [("ratelimit-limit", "60"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "45")];
    assert_eq!(learned(follow().learn(), &used_up), fastest);
    assert_eq!(learned(follow().learn(), &hour[..2]), fastest);
    // A window that was sent goes before.
    let window = [("ratelimit-limit", "60;w=120"), ("ratelimit-remaining", "45"), ("ratelimit-reset", "45")];
    assert_eq!(learned(follow().learn(), &window), Quota::new(60, 120 * SECOND).burst(50));
}
