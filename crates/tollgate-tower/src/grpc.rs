//! Refusals as gRPC statuses.
//!
//! A refusal is a "trailers-only" response of the [gRPC protocol]: the status stands in the header fields, and there is
//! no body. The time to retry is sent twice: as server pushback, which the retry policies of gRPC clients obey, and as
//! `google.rpc.RetryInfo` in the status details, which programs read.
//!
//! [gRPC protocol]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md

use super::answer::Answer;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use std::fmt::Write;
use std::time::Duration;
use tollgate::{Bound, ConsumeError, Refused, TryAcquireError};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// Milliseconds until the retry; negative: do not retry. Proposal A6 of gRPC.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: u64 = 8;
const UNAVAILABLE: u64 = 14;

/// Refusals become gRPC statuses; see [`LimitLayer::grpc`](super::LimitLayer::grpc).
#[derive(Clone, Copy, Debug, Default)]
pub struct AsGrpc;

impl<B: Default, E> Answer<Response<B>, E> for AsGrpc {
    type Response = Response<B>;
    type Error = E;

    fn granted(&self, response: Response<B>) -> Response<B> {
        response
    }

    fn refused(&self, refused: Refused) -> Result<Response<B>, E> {
        Ok(response(refused, GRPC, B::default()))
    }

    fn failed(error: E) -> E {
        error
    }
}

impl super::answer::sealed::Sealed for AsGrpc {}

/// The media type of a gRPC or gRPC-Web call with these header fields, for the response; `None` if it is no such call.
///
/// A trailers-only response has the same form in both: "Trailers may be sent together with response headers, with no
/// message in the body" (the protocol description of [gRPC-Web]).
///
/// [gRPC-Web]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md
#[cfg(feature = "http")]
pub(crate) fn media_type(headers: &HeaderMap) -> Option<HeaderValue> {
    let kind = headers.get(CONTENT_TYPE)?;
    let rest = kind.as_bytes().strip_prefix(b"application/grpc")?;
    let is_whole = |rest: &[u8]| matches!(rest.first(), None | Some(b'+' | b';'));
    if is_whole(rest) {
        return Some(GRPC);
    }
    let rest = rest.strip_prefix(b"-web")?;
    let is_web = is_whole(rest) || rest.strip_prefix(b"-text").is_some_and(is_whole);
    is_web.then(|| kind.clone())
}

/// A response with the status of a refusal. `body` must be empty.
pub(crate) fn response<B>(refused: Refused, media_type: HeaderValue, body: B) -> Response<B> {
    let (code, message, wait) = (code(refused), message(refused), refused.retry_after());
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert(STATUS, code.into());
    insert(headers, MESSAGE, &percent_encoded(&message));
    if let Some(wait) = wait {
        let millis = wait.as_nanos().div_ceil(1_000_000).min(i64::MAX as u128) as u64;
        headers.insert(PUSHBACK, millis.into());
        insert(headers, DETAILS, &base64(&status(code, &message, wait)));
    } else if is_final(refused) {
        headers.insert(PUSHBACK, HeaderValue::from_static("-1"));
    }
    response
}

/// The text of a refusal. The index of a quota without a name means nothing to a client.
fn message(refused: Refused) -> String {
    let message = refused.to_string();
    match (refused.by(), refused.quota_name()) {
        (Some(by @ Bound::Quota(_)), None) => message.replacen(&by.to_string(), "the quota", 1),
        _ => message,
    }
}

/// All values inserted here are visible ASCII.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
}

fn code(refused: Refused) -> u64 {
    match refused {
        Refused::InLine(ConsumeError::Closed | ConsumeError::NoRuntime) | Refused::AtOnce(TryAcquireError::Closed) => {
            UNAVAILABLE
        }
        _ => RESOURCE_EXHAUSTED,
    }
}

/// Whether the same call would be refused at any later time too.
fn is_final(refused: Refused) -> bool {
    matches!(
        refused,
        Refused::InLine(ConsumeError::TooLarge { .. }) | Refused::AtOnce(TryAcquireError::TooLarge { .. })
    )
}

/// Encodes `google.rpc.Status` with a `google.rpc.RetryInfo` among its details, in the protobuf wire format.
fn status(code: u64, message: &str, wait: Duration) -> Vec<u8> {
    let mut delay = Vec::new();
    number(&mut delay, 1, wait.as_secs());
    number(&mut delay, 2, wait.subsec_nanos().into());
    let mut retry_info = Vec::new();
    bytes(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    number(&mut status, 1, code);
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

fn varint(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// A field of wire type 0. Zero is the default and is left out.
fn number(into: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        varint(into, field << 3);
        varint(into, value);
    }
}

/// A field of wire type 2.
fn bytes(into: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(into, field << 3 | 2);
    varint(into, value.len() as u64);
    into.extend_from_slice(value);
}

/// Encodes without padding, as gRPC writes the values of `-bin` fields.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = (0..3).fold(0_usize, |group, index| group << 8 | usize::from(*chunk.get(index).unwrap_or(&0)));
        text.extend((0..=chunk.len()).map(|digit| char::from(DIGITS[group >> (18 - 6 * digit) & 63])));
    }
    text
}

/// Encodes as gRPC does in `grpc-message`: everything but visible ASCII and spaces, and the percent sign.
fn percent_encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(byte.into()),
            _ => write!(text, "%{byte:02X}").expect("a string takes everything"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::Limiter;

    #[test]
    fn base64_is_that_of_rfc_4648_without_padding() {
        let of = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(of, ["", "Zg", "Zm8", "Zm9v", "Zm9vYg", "Zm9vYmE", "Zm9vYmFy"]);
        assert_eq!(base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    #[test]
    fn a_message_is_escaped_byte_by_byte() {
        assert_eq!(percent_encoded("100 % of `\u{fc}\u{b5}s`\n"), "100 %25 of `%C3%BC%C2%B5s`%0A");
    }

    #[test]
    fn a_client_is_told_the_name_of_a_quota_and_no_index() {
        let denied = |builder: tollgate::Builder| {
            let limiter = builder.clock(tollgate::ManualClock::new()).build().unwrap();
            let _all = limiter.try_acquire(1).unwrap();
            message(Refused::AtOnce(limiter.try_acquire(1).unwrap_err()))
        };
        let quota = tollgate::Quota::per_second(1);
        let rest = ", 0 tokens remain: retry after 1s";
        assert_eq!(denied(Limiter::builder().quota(quota)), format!("denied by the quota{rest}"));
        assert_eq!(
            denied(Limiter::builder().quota_named("quota 0", quota)),
            format!("denied by quota `quota 0`{rest}")
        );
    }

    #[test]
    fn a_status_is_encoded_as_protobuf_writes_it() {
        let mut expected = vec![0x08, 8, 0x12, 2, b'n', b'o', 0x1a, 0];
        expected.extend([0x0a, 40]);
        expected.extend(b"type.googleapis.com/google.rpc.RetryInfo");
        // RetryInfo { retry_delay: Duration { seconds: 300, nanos: 5 } }
        expected.extend([0x12, 7, 0x0a, 5, 0x08, 0xac, 0x02, 0x10, 5]);
        expected[7] = (expected.len() - 8) as u8;
        assert_eq!(status(8, "no", Duration::new(300, 5)), expected);
        assert!(status(8, "no", Duration::ZERO).ends_with(&[0x12, 2, 0x0a, 0]));
    }
}
