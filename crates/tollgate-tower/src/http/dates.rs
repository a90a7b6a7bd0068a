//! Dates in header fields, and how far away they are.

use http::HeaderMap;
use http::header::DATE;
use std::time::SystemTime;

/// Returns the time of the response by the server's clock, because dates in it refer to that clock. If the response
/// has no `Date`, returns the local time.
pub(super) fn now(headers: &HeaderMap) -> SystemTime {
    headers.get(DATE).and_then(|date| parse(date.to_str().ok()?)).unwrap_or_else(SystemTime::now)
}

pub(super) fn parse(date: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(date.trim()).ok()
}
