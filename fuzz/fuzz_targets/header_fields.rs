//! Bytes become the header fields of responses; nothing that a server sends may panic, speed a client up or stop it.
//!
//! `scripts/prove fuzz` runs it. `crates/tollgate-tower/tests/it/http/hostile.rs` makes the same checks with random fields.
#![no_main]

#[path = "../../crates/tollgate-tower/tests/it/http/checks.rs"]
mod checks;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// The fields that are read, and another one.
const NAMES: [&str; 24] = [
    "retry-after",
    "retry-after-ms",
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-resource",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset-requests",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "date",
    "age",
    "other",
    "x-ratelimit-reset-after",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
];
const STATUSES: [StatusCode; 4] =
    [StatusCode::OK, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];

/// Each line is a field: a byte for its name, and its value. An empty line ends a response.
fn responses(bytes: &[u8]) -> Vec<(StatusCode, HeaderMap, u64)> {
    let mut responses = Vec::new();
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        if let [name, value @ ..] = line {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(HeaderName::from_static(NAMES[usize::from(*name) % NAMES.len()]), value);
            }
            continue;
        }
        let number = responses.len() + headers.len();
        responses.push((STATUSES[number % STATUSES.len()], std::mem::take(&mut headers), 700 * number as u64));
    }
    responses.push((StatusCode::TOO_MANY_REQUESTS, headers, 0));
    responses
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let responses = responses(bytes);
    for unit in ["requests", "tokens"] {
        responses.iter().for_each(|(status, headers, _)| checks::read(*status, headers, unit));
        checks::follow(responses.iter().map(|(status, headers, millis)| (*status, headers, *millis)), unit, 10);
    }
});
