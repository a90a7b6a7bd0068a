//! The syntax of the fields: RFC 9651 as an independent parser reads it, and the examples of the draft.

use super::*;

use proptest::prelude::*;
use sfv::{BareItem, Integer, List, ListEntry, Parser};
use tollgate_tower::http::{QuotaPolicy, ServiceLimit};

/// The items of a field as sfv parses them: names, and parameters in their order.
fn items(field: &str) -> Vec<(String, Vec<(String, BareItem)>)> {
    let list: List = Parser::new(field).parse().unwrap_or_else(|error| panic!("{field}: {error}"));
    let item = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("{field}: an inner list") };
        let parameters = item.params.iter().map(|(key, value)| (key.as_str().to_owned(), value.clone()));
        (item.bare_item.as_string().expect("a string").as_str().to_owned(), parameters.collect())
    };
    list.iter().map(item).collect()
}

fn number(number: i64) -> BareItem {
    BareItem::Integer(Integer::try_from(number).unwrap())
}

#[test]
fn an_independent_parser_reads_the_same_values() {
    let builder =
        Limiter::builder().quota_named("a \"b\" \\ c", Quota::per_second(3)).quota_named("größe", Quota::manual(2));
    let (limiter, _clock) = built(builder);
    let mut limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
    limits.set_partition_key(*b"\0user\xff");
    let mut headers = HeaderMap::new();
    limits.write(Format::Draft11, &mut headers);
    let key = || ("pk".to_owned(), BareItem::ByteSequence(b"\0user\xff".to_vec()));
    let of = |key: &str, value| (key.to_owned(), number(value));
    assert_eq!(
        items(&field(&headers, "ratelimit-policy")),
        [
            ("a \"b\" \\ c".to_owned(), vec![of("q", 3), of("w", 1), key()]),
            // A string of RFC 9651 is ASCII.
            ("gr\\u{f6}\\u{df}e".to_owned(), vec![of("q", 2), key()]),
        ]
    );
    assert_eq!(
        items(&field(&headers, "ratelimit"))[0],
        ("a \"b\" \\ c".to_owned(), vec![of("r", 3), of("t", 1), key()])
    );
}

/// Every field of sections 3, 4 and 7 and of the appendix of draft-ietf-httpapi-ratelimit-headers-11, except those of
/// its FAQ, which use an older syntax.
const EXAMPLES: [&str; 24] = [
    r#"RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400"#,
    r#"RateLimit-Policy: "default";q=100;w=10"#,
    r#"RateLimit-Policy: "permin";q=50;w=60,"perhr";q=1000;w=3600"#,
    r#"RateLimit-Policy: "peruser";q=100;w=60;pk=:cHsdsRa894==:"#,
    r#"RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:"#,
    r#"RateLimit: "default";r=50;t=30"#,
    r#"RateLimit: "default";r=999;pk=:dHJpYWwxMjEzMjM=:"#,
    r#"RateLimit: "default";r=300000000;t=60;pk=:QXBwLTk5OQ==:"#,
    r#"RateLimit: "problemPolicy";r=0;t=10"#,
    r#"RateLimit: "default";r=1;t=7"#,
    r#"RateLimit: "daily";r=1;t=86400"#,
    r#"RateLimit-Policy: "somepolicy";q=10000;w=1000"#,
    r#"RateLimit: "somepolicy";r=10000;t=10"#,
    r#"RateLimit: "default";r=0;t=50"#,
    r#"RateLimit: "dayLimit";r=100;t=36000"#,
    r#"RateLimit-Policy: "basic";q=100;w=60"#,
    r#"RateLimit: "basic";r=60;t=58"#,
    r#"RateLimit: "default";r=0;t=5"#,
    r#"RateLimit: "fixedwindow";r=99;t=50"#,
    r#"RateLimit-Policy: "dynamic";q=15;w=20"#,
    r#"RateLimit: "dynamic";r=9;t=50"#,
    r#"RateLimit: "dynamic";r=15;t=40"#,
    r#"RateLimit-Policy: "hour";q=1000;w=3600, "day";q=5000;w=86400"#,
    r#"RateLimit: "day";r=100;t=36000"#,
];

fn read(line: &str) -> RateLimits {
    let (name, value) = line.split_once(": ").unwrap();
    RateLimits::read(Format::Draft11, &headers(&[(name, value)]))
}

#[test]
fn the_draft_s_own_examples_are_read_and_written_as_they_are() {
    for line in EXAMPLES {
        let observed = read(line);
        let mut written = HeaderMap::new();
        observed.write(Format::Draft11, &mut written);
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(written.len(), 1, "{line}");
        // Item by item: the draft leaves out a space here and there, and two of its keys end in unused bits.
        assert_eq!(items(&field(&written, &name.to_lowercase())), items(value), "{line}");
        let again = RateLimits::read(Format::Draft11, &written);
        assert_eq!(again, observed, "{line}");
    }
    let observed = read(EXAMPLES[4]);
    let QuotaPolicy { name, quota, unit, window, partition_key, burst, .. } = &observed.policies[0];
    assert_eq!((&**name, *quota, unit, *window, *burst), ("peruser", 65_535, &Unit::ContentBytes, Some(10), None));
    assert_eq!(partition_key.as_deref(), Some(&[0xb1, 0xd7, 0xe3, 0x2c, 0x95, 0x0e, 0x50][..]));
    let ServiceLimit { name, available, window, partition_key, .. } = &read(EXAMPLES[7]).limits[0];
    assert_eq!((&**name, *available, *window), ("default", 300_000_000, Some(60)));
    assert_eq!(partition_key.as_deref(), Some(&b"App-999"[..]));
}

#[test]
fn a_list_can_be_split_over_several_fields() {
    let lines = [("ratelimit", r#""a";r=1"#), ("ratelimit", r#""b";r=2;t=3, "c";r=4"#)];
    let observed = RateLimits::read(Format::Draft11, &headers(&lines));
    assert_eq!(observed.limits.iter().map(|limit| limit.available).collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn malformed_fields_are_ignored() {
    for line in [
        r#"RateLimit: "default";r=50;t=30,"#,           // a comma too many
        r#"RateLimit: "default";r=50;t="soon"#,         // a string without an end
        "RateLimit: limit=100, remaining=50, reset=30", // draft 07
        r#"RateLimit: ("default");r=50"#,
        r#"RateLimit: "default""#,
        r#"RateLimit: "default";r"#,
        r#"RateLimit: "default";r=-1;t=3"#,
        r#"RateLimit: "default";r=1.5;t=3"#,
        r#"RateLimit: "default";r=1;t=-3"#,
        r#"RateLimit: "default";r=1;t=tomorrow"#,
        r#"RateLimit: "default";r=1;pk="user""#,
        "RateLimit: 17;r=1",
        r#"RateLimit: "default";r=1000000000000000"#, // 16 digits
        r#"RateLimit-Policy: "default";w=3"#,
        r#"RateLimit-Policy: "default";q=-3"#,
        r#"RateLimit-Policy: "default";q=3;w=0"#,
        r#"RateLimit-Policy: "default";q=3;qu=3"#,
    ] {
        assert_eq!(read(line), RateLimits::default(), "{line}");
    }
    // An invalid item does not affect the others; the last of several equal parameters counts; comments are ignored.
    let observed = read(r#"RateLimit: "a";r=x, "b";r=2;r=3;acme-burst="much", c;r=4"#);
    let observed: Vec<_> = observed.limits.iter().map(|limit| (&*limit.name, limit.available)).collect();
    assert_eq!(observed, [("b", 3), ("c", 4)]);
    let observed = read(r#"RateLimit-Policy: "a";q=5;tollgate-burst="much""#);
    assert_eq!((observed.policies[0].quota, observed.policies[0].burst), (5, None));
}

/// What is read of a response is compared with each other: a server must not choose how long that takes.
#[test]
fn more_items_than_any_server_has_are_ignored_and_counted() {
    let list = |parameter: &str| vec![format!("a;{parameter}=1"); 1_000].join(",");
    let (policies, limits) = (list("q"), list("r"));
    let fields = headers(&[("ratelimit-policy", &policies), ("ratelimit", &limits)]);
    let read = RateLimits::read(Format::Draft11, &fields);
    assert_eq!((read.policies.len(), read.limits.len()), (32, 32));
    let status = http::StatusCode::OK;
    let advice = tollgate_tower::http::Advice::read(status, &fields, &[Format::Draft11], &Unit::Requests);
    assert_eq!((advice.available, advice.ignored), (Some(1), 2 * 968));
}

#[test]
fn x_fields_tell_the_tightest_quota_and_stay_if_they_are_tighter() {
    let builder = Limiter::builder().quota_named("hour", Quota::per_hour(100).stepped());
    let (limiter, clock) = built(builder.quota_named("second", Quota::per_second(10)));
    clock.advance(100 * SECOND);
    take(&limiter, 4);
    let limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
    let mut headers = HeaderMap::new();
    let seen = |headers: &HeaderMap| {
        ["limit", "remaining", "reset"].map(|name| field(headers, &format!("x-ratelimit-{name}")))
    };
    limits.write(Format::XRateLimit, &mut headers);
    assert_eq!(seen(&headers), ["10", "6", "1"]);
    let one = |limit: &str| {
        let mut limits = limits.clone();
        limits.limits.retain(|seen| *seen.name == *limit);
        limits
    };
    one("hour").write(Format::XRateLimit, &mut headers);
    assert_eq!(seen(&headers), ["10", "6", "1"]);
    let mut headers = HeaderMap::new();
    one("hour").write(Format::XRateLimit, &mut headers);
    assert_eq!(seen(&headers), ["100", "96", "3500"]);
    one("second").write(Format::XRateLimit, &mut headers);
    assert_eq!(seen(&headers), ["10", "6", "1"]);
    RateLimits::default().write(Format::XRateLimit, &mut headers);
    RateLimits::default().write(Format::Draft11, &mut headers);
    assert_eq!((headers.len(), seen(&headers)[0].as_str()), (3, "10"));
}

/// Readers, ours included, take more remaining than the limit for a mistake.
#[test]
fn x_fields_tell_no_more_remaining_than_the_limit() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(10).burst(50)));
    let mut headers = HeaderMap::new();
    RateLimits::of(&limiter.snapshot(), &Terms::default()).write(Format::XRateLimit, &mut headers);
    assert_eq!(
        (field(&headers, "x-ratelimit-limit").as_str(), field(&headers, "x-ratelimit-remaining").as_str()),
        ("10", "10")
    );
}

proptest! {
    #[test]
    fn whatever_a_limiter_is_like_others_can_read_it_and_so_can_we(
        names in prop::collection::hash_set(".{0,20}", 1..4),
        amount in prop_oneof![1u64..1_000, any::<u64>().prop_map(|n| n.max(1))],
        nanos in prop_oneof![1u64..10_000_000_000, 1..u64::MAX],
        burst in 1u64..1 << 61,
        taken in any::<u64>(),
        key in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let quota = Quota::new(amount, Duration::from_nanos(nanos)).burst(burst);
        let builder = names.iter().fold(Limiter::builder(), |builder, name| builder.quota_named(name.as_str(), quota));
        let (limiter, _clock) = built(builder);
        let _ = limiter.try_acquire(taken % burst);
        let mut limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
        limits.set_partition_key(key);
        let mut written = HeaderMap::new();
        limits.write(Format::Draft11, &mut written);
        prop_assert_eq!(items(&field(&written, "ratelimit-policy")).len(), names.len());
        prop_assert_eq!(items(&field(&written, "ratelimit")).len(), names.len());
        // The same, except for names that had to be converted to ASCII, and for numbers that no field can represent.
        let mut read = RateLimits::read(Format::Draft11, &written);
        for (read, meant) in read.limits.iter_mut().zip(&limits.limits) {
            read.name = std::sync::Arc::clone(&meant.name);
        }
        for (read, meant) in read.policies.iter_mut().zip(&mut limits.policies) {
            read.name = std::sync::Arc::clone(&meant.name);
            meant.burst = meant.burst.map(|burst| burst.min(999_999_999_999_999));
        }
        prop_assert_eq!(read, limits);
    }
}
