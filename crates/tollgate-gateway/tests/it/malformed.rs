//! Malformed files: each is refused with the line, the value, and what to write instead.

use super::app::config::Config;
use super::app::config::problem::Problem;

use std::path::Path;

const RIGHT: &str = r#"listen = "127.0.0.1:8080"
admin = "127.0.0.1:9090"
upstream = "http://127.0.0.1:3000"
quota = "200/s, burst 40"
in_flight = 64
max_wait = "2s"

[keys]
header = "x-api-key"
quota = "20/s, burst 20"

[keys.listed.shop]
key = "k-shop"
quota = "100/s"

[keys.listed.app]
key = "k-app"

[[routes]]
path = "/reports"
methods = ["POST"]
cost = 10
"#;

fn parse(text: &str) -> Result<Config, Problem> {
    Config::parse(Path::new("gateway.toml"), text)
}

/// The error for the valid file in which `old` is replaced by `new`.
#[track_caller]
fn said(old: &str, new: &str) -> (Option<usize>, String) {
    assert_eq!(RIGHT.matches(old).count(), 1, "{old} must occur exactly once");
    let problem = parse(&RIGHT.replace(old, new)).unwrap_err();
    (problem.line, problem.to_string())
}

#[test]
fn the_files_beside_the_example_are_right() {
    for text in [RIGHT, include_str!("../../gateway.toml"), include_str!("../../demo.toml")] {
        parse(text).unwrap();
    }
}

#[test]
fn each_mistake_is_reported_with_its_line_and_a_correction() {
    let cases: &[(&str, &str, usize, &[&str])] = &[
        // Not TOML.
        ("max_wait = \"2s\"", "max_wait = \"2s", 6, &["gateway.toml, line 6: invalid basic string"]),
        ("[keys]", "[keys", 8, &["gateway.toml, line 8: "]),
        ("in_flight = 64", "in_flight = 64\nin_flight = 65", 6, &["duplicate key"]),
        // Names.
        ("max_wait =", "max_weight =", 6, &["there is no setting `max_weight` here: did you mean `max_wait`?"]),
        ("header = \"x-api-key\"\n", "", 8, &["write one of `header`, `query` and `claim`"]),
        // Types.
        ("in_flight = 64", "in_flight = \"64\"", 5, &["invalid type: string \"64\", expected u64"]),
        ("cost = 10", "cost = -1", 22, &["-1", "expected u64"]),
        // Values.
        ("127.0.0.1:8080", "localhost", 1, &["`localhost` is not an address to listen on", "127.0.0.1:8080"]),
        (
            "http://127.0.0.1:3000",
            "ftp://api",
            3,
            &["`ftp://api` is not an upstream", "http://127.0.0.1:3000", "https://"],
        ),
        ("http://127.0.0.1:3000", "http://api/v1", 3, &["`http://api/v1` is not an upstream", "without a path"]),
        ("200/s, burst 40", "200 each second", 4, &["`200 each second` is no rate", "100/s, burst 20"]),
        ("200/s, burst 40", "0/s, burst 40", 4, &["amount of 0", "at least 1"]),
        ("200/s, burst 40", "manual 40", 4, &["manual", "100/s, burst 20"]),
        ("in_flight = 64", "in_flight = 0", 5, &["`in_flight` is 0", "at least 1"]),
        ("in_flight = 64", "in_flight = 9000000000000000000", 5, &["9000000000000000000: it must be between 1 and"]),
        ("burst 20\"", "burst 20\"\nin_flight = 0", 11, &["`in_flight` is 0", "at least 1"]),
        ("burst 20\"", "burst 20\"\nin_flight = \"8\"", 11, &["invalid type: string \"8\", expected u64"]),
        ("in_flight = 64", "upstream_timeout = \"0s\"", 5, &["`upstream_timeout` is 0s", "30s"]),
        ("in_flight = 64", "upstream_idle_timeout = \"0s\"", 5, &["`upstream_idle_timeout` is 0s", "30s"]),
        ("in_flight = 64", "client_timeout = \"0s\"", 5, &["`client_timeout` is 0s", "30s"]),
        ("in_flight = 64", "body_buffer = 16777217", 5, &["`body_buffer` is 16777217 bytes", "at most 16777216"]),
        ("cost = 10", "cost = 10\nbody_buffer = 90000000", 23, &["`body_buffer` is 90000000 bytes", "at most"]),
        ("burst 20\"", "burst 20\"\nmax_keys = 0", 11, &["`max_keys` is 0", "at least 1"]),
        ("burst 20\"", "burst 20\"\noverflow = \"0/s\"", 11, &["amount of 0", "at least 1"]),
        ("burst 20\"", "burst 20\"\noverflow = \"1/s\"", 23, &["a cost of 10 waits for 9s", "of `overflow`"]),
        ("burst 20\"", "burst 20\"\nlisted_weight = 0", 11, &["`listed_weight` is 0", "between 1 and 1000000"]),
        ("k-app\"", "k-app\"\nweight = 1000001", 18, &["`weight` is 1000001", "between 1 and 1000000"]),
        ("k-app\"", "k-app\"\nweight = \"high\"", 18, &["invalid type: string \"high\", expected u64"]),
        ("burst 20\"", "burst 20\"\ndry_run = \"yes\"", 11, &["invalid type: string \"yes\", expected a boolean"]),
        ("burst 20\"", "burst 20\"\nunlisted_quota = \"0/s\"", 11, &["amount of 0", "at least 1"]),
        ("burst 20\"", "burst 20\"\nunlisted_quota = \"manual 9\"", 11, &["manual", "give it a rate"]),
        (
            "burst 20\"",
            "burst 20\"\nunlisted_quota = \"1/s\"",
            23,
            &["a cost of 10 waits for 9s", "of `unlisted_quota`"],
        ),
        (
            "burst 20\"",
            "burst 20\"\nunlisted = \"refuse\"\nunlisted_quota = \"9/s\"",
            12,
            &["`unlisted_quota` has no effect", "leave out one of the two"],
        ),
        (
            "burst 20\"",
            "burst 20\"\ntrusted_proxies = [\"::1\"]",
            11,
            &["`trusted_proxies` has no effect", "`proxies_before`"],
        ),
        (
            "burst 20\"",
            "burst 20\"\nproxies_before = 1\ntrusted_proxies = [\n  \"10.0.0.0/8\",\n  \"10.0.0.1/8\"\n]",
            14,
            &["`10.0.0.1/8` is not a block of addresses", "10.0.0.0/8"],
        ),
        ("in_flight = 64", "header_timeout = \"0s\"", 5, &["`header_timeout` is 0s", "30s"]),
        ("in_flight = 64", "idle_timeout = \"0s\"", 5, &["`idle_timeout` is 0s", "30s"]),
        ("in_flight = 64", "max_connections = 0", 5, &["0 connections", "at least 1"]),
        ("in_flight = 64", "max_connections_per_address = 0", 5, &["0 connections", "at least 1"]),
        ("in_flight = 64", "admin_hosts = [\"a:1\"]", 5, &["`a:1` is not a host name", "gateway.internal"]),
        ("\"2s\"", "\"soon\"", 6, &["`soon` is not a duration", "250ms"]),
        ("x-api-key", "x api key", 9, &["`x api key` is not a header name", "x-api-key"]),
        ("20/s, burst 20", "20/s, burst 20, initial 3", 10, &["starts with 3 of 20", "leave `initial` out"]),
        ("quota = \"100/s\"", "quota = \"100/s, burst 0\"", 14, &["burst of 0", "between 1 and"]),
        ("k-app", "k-shop", 13, &["`shop` has the key of `app`", "its own"]),
        ("k-app", "", 17, &["the key of `app` cannot be sent in a header"]),
        ("k-app", " ", 17, &["the key of `app` cannot be sent in a header"]),
        ("k-app", "cl\u{e9}", 17, &["the key of `app` cannot be sent in a header"]),
        ("k-app", "Bearer k", 17, &["the key of `app` matches no request", "without `Bearer`", "\"k\""]),
        ("k-app", " k", 17, &["the key of `app` matches no request", "\"k\""]),
        ("/reports", "reports", 20, &["`reports` does not begin with a slash", "/reports"]),
        ("POST", "post", 21, &["`post` is not a method", "POST"]),
        // Requests that could never pass.
        ("cost = 10", "cost = 65", 22, &["a cost of 65 exceeds `in_flight` of 64", "raise `in_flight`"]),
        ("burst 20\"", "burst 20\"\nin_flight = 9", 23, &["a cost of 10 exceeds `keys.in_flight` of 9", "lower it"]),
        (
            "cost = 10",
            "cost = 61",
            22,
            &["a cost of 61 waits for 2s 50ms", "20/s, burst 20", "each key", "`max_wait` is 2s"],
        ),
    ];
    for (old, new, line, parts) in cases {
        let (seen, text) = said(old, new);
        assert_eq!(seen, Some(*line), "{new}: {text}");
        for part in *parts {
            assert!(text.contains(part), "{new}: {text}: no {part}");
        }
    }
    // The largest cost that still fits is valid.
    parse(&RIGHT.replace("cost = 10", "cost = 60")).unwrap();
    parse(&RIGHT.replace("burst 20\"", "burst 20\"\nin_flight = 10")).unwrap();
}

#[test]
fn no_truncated_file_panics_or_is_taken_for_a_complete_one() {
    let whole = parse(RIGHT).unwrap();
    for end in (0..RIGHT.len()).filter(|end| RIGHT.is_char_boundary(*end)) {
        if let Ok(config) = parse(&RIGHT[..end]) {
            // The cut is between two tables. This is why a file is applied only after two equal reads.
            assert!(config.keys.names.len() <= whole.keys.names.len());
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_reported_with_its_name() {
    let problem = Config::read(Path::new("no/such/gateway.toml")).map(drop).unwrap_err();
    assert!(problem.to_string().starts_with("no/such/gateway.toml: cannot be read: "), "{problem}");
}
