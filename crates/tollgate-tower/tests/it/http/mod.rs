//! HTTP: the exact fields of responses, and a client that follows them.

mod adaptive;
mod checks;
mod heads;
mod heeding;
mod hostile;
#[cfg(feature = "keyed")]
mod keys;
mod numbers;
mod pausing;
mod providers;
mod refusals;
mod responses;
mod servers;
mod syntax;
mod together;

use http::HeaderMap;
use std::time::Duration;
use tollgate::{Builder, Limiter, ManualClock, Quota};
use tollgate_tower::http::{Format, RateLimits, Terms};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// On a manual clock.
fn built(builder: Builder) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

fn by_hand(quota: Quota) -> (Limiter, ManualClock) {
    built(Limiter::builder().quota(quota))
}

fn take(limiter: &Limiter, tokens: u64) {
    limiter.try_acquire(tokens).unwrap().forget();
}

/// All fields of this name, joined.
fn field(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter().map(|value| value.to_str().unwrap());
    values.collect::<Vec<_>>().join(", ")
}

/// `RateLimit-Policy` and `RateLimit` of a limiter.
fn rate_limit_fields(limiter: &Limiter, terms: &Terms) -> [String; 2] {
    let mut headers = HeaderMap::new();
    RateLimits::of(&limiter.snapshot(), terms).write(Format::Draft11, &mut headers);
    ["ratelimit-policy", "ratelimit"].map(|name| field(&headers, name))
}

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    headers
}
