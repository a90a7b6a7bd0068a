//! What RFC 9110 and RFC 9112 ask of a proxy, beyond what hyper checks.

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_LENGTH, HOST, MAX_FORWARDS, TRANSFER_ENCODING, VIA};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};

use super::http2;
use super::local_reply;

/// The methods that RFC 9110 and RFC 5789 define, and that the gateway forwards. It forwards unknown ones too.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Returns the response to a request that must not be forwarded.
pub(crate) fn check_request<B>(request: &Request<B>) -> Result<(), Box<Response<Body>>> {
    let bad = |why| Err(Box::new(local_reply::problem(StatusCode::BAD_REQUEST, why)));
    http2::check(request).or_else(bad)?;
    if !has_valid_host(request) {
        return bad("send exactly one Host field, with a host and perhaps a port");
    }
    match *request.method() {
        Method::CONNECT => Err(Box::new(local_reply::problem(StatusCode::NOT_IMPLEMENTED, "CONNECT is not supported"))),
        // It would show its client the fields that proxies added.
        Method::TRACE => {
            let refused = local_reply::problem(StatusCode::METHOD_NOT_ALLOWED, "TRACE is not supported");
            Err(Box::new(with_methods(refused)))
        }
        Method::OPTIONS => match forwards(request.headers()) {
            Some(Some(0)) => {
                let mut own = Response::new(Body::empty());
                *own.status_mut() = StatusCode::NO_CONTENT;
                Err(Box::new(with_methods(own)))
            }
            Some(None) => bad("Max-Forwards is not a number"),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn with_methods(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

/// In HTTP/1.1 each request has exactly one; in HTTP/2 it stands in the URI. The target of a request to a proxy may contain the host too.
pub(crate) fn has_valid_host<B>(request: &Request<B>) -> bool {
    let is_valid = |host: &HeaderValue| is_plain_host(host.as_bytes()) || is_host(host.to_str().unwrap_or("@"));
    let mut hosts = request.headers().get_all(HOST).iter();
    let is_valid_host = match (hosts.next(), hosts.next()) {
        (None, _) => request.version() != Version::HTTP_11,
        (Some(host), None) => is_valid(host),
        (Some(_), Some(_)) => false,
    };
    is_valid_host && request.uri().authority().is_none_or(|authority| !authority.as_str().contains('@'))
}

fn is_host(host: &str) -> bool {
    host.is_empty() || (!host.contains('@') && host.parse::<Authority>().is_ok())
}

/// Whether `host` is a name or an IPv4 address, perhaps with a port: nearly every host is, and needs no parser.
fn is_plain_host(host: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let name = host.iter().take_while(|byte| is_name(byte)).count();
    name > 0
        && match &host[name..] {
            [] => true,
            [b':', port @ ..] => !port.is_empty() && port.iter().all(u8::is_ascii_digit),
            _ => false,
        }
}

/// How many proxies may forward the request; `None` if it does not say so, and `Some(None)` if that is not a number.
fn forwards(headers: &HeaderMap) -> Option<Option<u64>> {
    let mut values = headers.get_all(MAX_FORWARDS).iter();
    let value = values.next()?.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    Some(value.and_then(|value| value.parse().ok()).filter(|_| values.next().is_none()))
}

/// Counts `Max-Forwards` down, in a request that was [checked](check_request).
pub(crate) fn count_forward(method: &Method, headers: &mut HeaderMap) {
    if let (&Method::OPTIONS, Some(Some(count))) = (method, forwards(headers)) {
        headers.insert(MAX_FORWARDS, count.saturating_sub(1).into());
    }
}

/// Adds the gateway to the proxies that a message has passed.
pub(crate) fn add_via(version: Version, headers: &mut HeaderMap) {
    let via = match version {
        Version::HTTP_2 => "2.0 tollgate-gateway",
        Version::HTTP_11 => "1.1 tollgate-gateway",
        _ => "1.0 tollgate-gateway",
    };
    headers.append(VIA, HeaderValue::from_static(via));
}

/// Checks that the response's framing is unambiguous (RFC 9112, 6.3): an ambiguous one allows response splitting.
pub(crate) fn check_response<B>(response: &Response<B>) -> Result<(), &'static str> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err("it switches protocols, which was not asked for");
    }
    let mut lengths = response.headers().get_all(CONTENT_LENGTH).iter();
    let mut codings = response.headers().get_all(TRANSFER_ENCODING).iter();
    match (lengths.next(), codings.next()) {
        (Some(_), Some(_)) => Err("it has both Content-Length and Transfer-Encoding"),
        (Some(length), None) if lengths.next().is_some() || !length.as_bytes().iter().all(u8::is_ascii_digit) => {
            Err("its Content-Length is not a number")
        }
        (None, Some(coding)) if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Err("its Transfer-Encoding is not `chunked`")
        }
        _ => Ok(()),
    }
}

#[test]
fn a_plain_host_is_a_host() {
    for host in ["localhost", "127.0.0.1:80", "a-b.example:8080", "A.example.", "x:123456"] {
        assert!(is_plain_host(host.as_bytes()) && is_host(host), "{host}");
    }
    for host in ["", "a:", ":80", "a:b", "a:1:2", "[::1]", "a@b", "a b", "a/b", "\u{e9}"] {
        assert!(!is_plain_host(host.as_bytes()), "{host}");
    }
}
