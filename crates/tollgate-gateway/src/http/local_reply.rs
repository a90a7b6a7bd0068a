//! The gateway's own answers: problem documents of RFC 9457.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

/// The `Cache-Control` of the gateway's own answers. They are about this moment, and not about the resource.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// In alphabetical order, as the problem documents of refusals by limits.
#[derive(serde::Serialize)]
struct Problem<'a> {
    detail: &'a str,
    status: u16,
    title: &'static str,
    r#type: &'static str,
}

pub(crate) fn problem(status: StatusCode, why: &str) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let problem = Problem { detail: why, status: status.as_u16(), title, r#type: "about:blank" };
    let json = serde_json::to_string(&problem).expect("text and numbers are valid JSON");
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
