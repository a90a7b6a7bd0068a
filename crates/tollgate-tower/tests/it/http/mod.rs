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

use crate::{MILLI, SECOND, built};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready};
use tollgate::{ConsumeError, Limiter, ManualClock, Quota, Refused};
use tollgate_tower::http::{Advice, Format, Heed, HeedLayer, RateLimits, ResourceLimits, Terms, Unit};
use tollgate_tower::{LimitError, LimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

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

/// Calls `service`, which responds at once.
fn call<S, A, B>(service: &S, request: Request<A>) -> Response<B>
where
    S: Service<Request<A>, Response = Response<B>, Error = Infallible> + Clone,
{
    assert_ready!(spawn(service.clone().oneshot(request)).poll()).unwrap()
}
