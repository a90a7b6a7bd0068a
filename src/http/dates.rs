//! Dates in header fields, and how far away they are.

use http::HeaderMap;
use http::header::DATE;
use std::time::SystemTime;

/// When the response was made, by the clock of who made it: dates in it are to be read by that one. Ours, if it does not say.
pub(super) fn now(headers: &HeaderMap) -> SystemTime {
    headers.get(DATE).and_then(|date| parse(date.to_str().ok()?)).unwrap_or_else(SystemTime::now)
}

pub(super) fn parse(date: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(date.trim()).ok()
}
