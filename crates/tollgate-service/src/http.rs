//! Decisions over HTTP, health and metrics.

use crate::answer::Answer;
use crate::bucket::Reason;
use crate::health::Health;
use crate::metrics;
use crate::proto::{Code, DescriptorStatus, RateLimitRequest, Unit};
use crate::proxied;
use crate::service::Service;
use crate::traces;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Bound, Denied, Quota, TryAcquireError};
use tollgate_tower::http::{Format, QuotaPolicy, RateLimits, Refusal, ServiceLimit};

/// What the handlers share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The service.
    pub service: Arc<Service>,
    /// Whether it is healthy.
    pub health: Health,
}

/// Returns the routes of the HTTP port.
pub fn routes(shared: Shared) -> Router {
    Router::new()
        .route("/json", post(json))
        .route("/check", any(check))
        .route("/check/{domain}", any(check_domain))
        .route("/healthcheck", get(healthy))
        .route("/healthz", get(healthy))
        .route("/metrics", get(write_metrics))
        .layer(DefaultBodyLimit::max(crate::grpc::MOST_BYTES))
        .with_state(shared)
}

async fn healthy(State(shared): State<Shared>) -> (StatusCode, String) {
    match shared.health.problem() {
        None => (StatusCode::OK, "OK\n".to_owned()),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
    }
}

async fn write_metrics(State(shared): State<Shared>) -> Response {
    let text = metrics::text(&shared.service);
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

/// A request as JSON, and the answer as JSON, as in the reference.
async fn json(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let request: RateLimitRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return problem(StatusCode::BAD_REQUEST, "Not a request", &error.to_string()),
    };
    match traces::decide(&shared.service, &request, &headers).await {
        Err(invalid) => problem(StatusCode::BAD_REQUEST, "Not a request", &invalid.to_string()),
        Ok(answer) => {
            let status = if answer.passes() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
            let body = serde_json::to_string(&answer.response).unwrap_or_default();
            let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
            for field in &answer.response.response_headers_to_add {
                if let (Ok(name), Ok(value)) = (field.key.parse::<http::HeaderName>(), field.value.parse()) {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        }
    }
}

async fn check(
    state: State<Shared>,
    peer: ConnectInfo<SocketAddr>,
    query: RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let with_mapping = {
        let rules = state.service.rules.load();
        let mut names =
            rules.domains.iter().filter(|(_, domain)| !domain.http.is_empty()).map(|(name, _)| name.clone());
        names.next().filter(|_| names.next().is_none())
    };
    match with_mapping {
        Some(domain) => check_domain(state, peer, Path(domain), query, method, headers).await,
        None => problem(
            StatusCode::NOT_FOUND,
            "Which domain?",
            "None or several domains have an `http` section: ask for /check/DOMAIN.",
        ),
    }
}

/// Decides on the request that a proxy asks about.
async fn check_domain(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let refused = match refused_status(query.as_deref()) {
        Ok(status) => status,
        Err(text) => return problem(StatusCode::BAD_REQUEST, "Not a status", &text),
    };
    let descriptors = {
        let rules = shared.service.rules.load();
        match rules.domains.get(&name).filter(|domain| !domain.http.is_empty()) {
            Some(domain) => proxied::descriptors(&domain.http, &method, &headers, peer.ip()),
            None => {
                let text = "No domain of this name has an `http` section in the configuration.";
                return problem(StatusCode::NOT_FOUND, "No such domain", text);
            }
        }
    };
    if descriptors.is_empty() {
        return StatusCode::OK.into_response();
    }
    let request = RateLimitRequest { domain: name, descriptors, hits_addend: 0 };
    match traces::decide(&shared.service, &request, &headers).await {
        Ok(answer) => checked(&answer, refused),
        Err(invalid) => problem(StatusCode::BAD_REQUEST, "Not a request", &invalid.to_string()),
    }
}

/// Returns the status of refusals: 429, or the one that the proxy asks for. nginx takes 401 and 403 alone for a refusal.
fn refused_status(query: Option<&str>) -> Result<StatusCode, String> {
    let asked = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("status="));
    match asked {
        None | Some("429") => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some("401") => Ok(StatusCode::UNAUTHORIZED),
        Some("403") => Ok(StatusCode::FORBIDDEN),
        Some("503") => Ok(StatusCode::SERVICE_UNAVAILABLE),
        Some(other) => Err(format!("status={} is none of 401, 403, 429 and 503", crate::fields::shortened(other))),
    }
}

fn checked(answer: &Answer, refused: StatusCode) -> Response {
    let limits = limits(&answer.response.statuses);
    let mut response = match answer.reason {
        None => StatusCode::OK.into_response(),
        Some(reason) => {
            let denied = Denied::new(wait(answer), 0, Bound::Quota(0));
            let mut refusal = Refusal::new(TryAcquireError::Denied(denied), &limits);
            refusal.status = refused;
            if reason != Reason::OverLimit {
                // What is used up is not known then.
                refusal.violated.clear();
            }
            refusal.response(true).into_response()
        }
    };
    limits.write(Format::Draft11, response.headers_mut());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns when a refused request may come again: when it would pass, or when the windows that refused it end.
fn wait(answer: &Answer) -> Option<Duration> {
    let refused = answer.response.statuses.iter().filter(|status| status.code == Code::OverLimit as i32);
    let resets = refused.filter_map(|status| status.duration_until_reset);
    answer.retry_after.or(resets.map(|span| Duration::from_secs(span.seconds.unsigned_abs())).max())
}

fn limits(statuses: &[DescriptorStatus]) -> RateLimits {
    let mut limits = RateLimits::default();
    for (index, status) in statuses.iter().enumerate() {
        let Some(limit) = &status.current_limit else { continue };
        let seconds = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown).seconds();
        let quota = Quota::new(limit.requests_per_unit.into(), Duration::from_secs(seconds));
        let name = if limit.name.is_empty() { format!("limit-{}", index + 1) } else { limit.name.clone() };
        let reset = status
            .duration_until_reset
            .map(|span| Duration::new(span.seconds.unsigned_abs(), span.nanos.unsigned_abs()));
        limits.policies.push(QuotaPolicy::of(name.as_str(), &quota));
        limits.limits.push(ServiceLimit::of(name.as_str(), status.limit_remaining.into(), reset));
    }
    limits
}

fn problem(status: StatusCode, title: &str, detail: &str) -> Response {
    let body = serde_json::json!({"status": status.as_u16(), "title": title, "detail": detail}).to_string();
    (status, [(CONTENT_TYPE, "application/problem+json")], body).into_response()
}
