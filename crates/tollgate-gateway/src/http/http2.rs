//! The rules of RFC 9113 for a request that a proxy may forward over HTTP/1.1, beyond what the HTTP/2 library checks.
//!
//! The library resets a stream whose fields have letters of upper case, control characters, or names that concern a
//! connection (`Connection`, `Transfer-Encoding`, `Upgrade` and others), `TE` other than `trailers`, or a body that is not
//! as long as `Content-Length` says.

use axum::http::header::{CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Version};

/// Returns what is wrong with the request, if it came over HTTP/2.
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), &'static str> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    let (headers, uri) = (request.headers(), request.uri());
    // The library takes it for a path of any form, and HTTP/1.1 has it in the first line.
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if !(path.starts_with('/') || (path == "*" && request.method() == Method::OPTIONS)) {
        return Err("`:path` does not begin with a slash");
    }
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    match (uri.authority(), host) {
        (None, None) => return Err("send `:authority`"),
        (Some(authority), Some(host)) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host) => {
            return Err("`:authority` and `Host` are not the same");
        }
        _ => {}
    }
    // The library compares the body with the first length only.
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let is_number = |length: &HeaderValue| length.as_bytes().iter().all(u8::is_ascii_digit);
    if !lengths.next().is_none_or(is_number) || lengths.next().is_some() {
        return Err("send at most one Content-Length, which is a number");
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return Err("HTTP/2 has no Transfer-Encoding");
    }
    Ok(())
}

/// Whether HTTP/1.1 needs the length of a body, which HTTP/2 need not say. Some servers answer a `POST` without one with 411.
pub(crate) fn has_body(method: &Method, length: u64) -> bool {
    length > 0 || matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// Joins the parts of `Cookie`, which HTTP/2 may send apart and HTTP/1.1 must not. (RFC 9113, 8.2.3)
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let mut parts = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (parts.next(), parts.next()) else { return };
    let all: Vec<&[u8]> = [first, second].into_iter().chain(parts).map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

#[test]
fn parts_of_a_cookie_become_one() {
    let mut headers = HeaderMap::new();
    for part in ["a=1", "b=2", "c=3; d=4"] {
        headers.append(COOKIE, HeaderValue::from_static(part));
    }
    join_cookies(&mut headers);
    let seen: Vec<_> = headers.get_all(COOKIE).iter().collect();
    assert_eq!(seen, ["a=1; b=2; c=3; d=4"]);
}
