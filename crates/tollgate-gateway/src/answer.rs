//! The gateway's own answers: problem documents of RFC 9457.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

pub(crate) fn plain(status: StatusCode, why: &str) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": why });
    (status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
