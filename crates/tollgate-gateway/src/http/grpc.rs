//! The gateway's own answers to gRPC calls: the status stands in the header fields, and there is no body.
//!
//! The codes for statuses of HTTP are those of [gRPC's mapping](https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md).

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use tollgate::Refused;
use tollgate_tower::{Answer, AsGrpc};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Whether `request` is a gRPC call: a `POST` over HTTP/2, as the protocol asks for. Any other request has a status of HTTP,
/// since caches and clients would take `200 OK` for a success. (gRPC-Web has trailers in the body, and is none.)
pub(crate) fn is_call<B>(request: &Request<B>) -> bool {
    if request.method() != Method::POST || request.version() != Version::HTTP_2 {
        return false;
    }
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The answer to a call that says the same as `response`. `refused` is the reason, if a limit refused the call.
pub(crate) fn answer(response: Response<Body>, refused: Option<Refused>) -> Response<Body> {
    let (mut head, _) = response.into_parts();
    for name in [CONTENT_TYPE, CONTENT_LENGTH] {
        head.headers.remove(name);
    }
    let mut answer = match refused {
        Some(refused) => {
            let answer = <AsGrpc as Answer<Response<Body>, Infallible>>::refused(&AsGrpc, refused);
            answer.unwrap_or_else(|never| match never {})
        }
        None => of_status(head.status),
    };
    answer.headers_mut().extend(head.headers);
    answer
}

fn of_status(status: StatusCode) -> Response<Body> {
    let code: u16 = match status {
        StatusCode::BAD_REQUEST => 13,
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::NOT_FOUND => 12,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => 14,
        _ => 2,
    };
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, code.into());
    headers.insert(MESSAGE, HeaderValue::from_static(status.canonical_reason().unwrap_or_default()));
    response
}
