//! The gateway's own answers: problem documents of RFC 9457.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// The `Cache-Control` of the gateway's own answers. They are about this moment, and not about the resource.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

pub(crate) fn problem(status: StatusCode, why: &str) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": why });
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/problem+json")), (CACHE_CONTROL, NO_STORE)];
    (status, headers, body.to_string()).into_response()
}
