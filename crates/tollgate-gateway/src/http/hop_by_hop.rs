//! Header fields that concern one connection only.

use axum::http::header::{CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::token_list::has_token;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Removes the fields that concern this connection only, and all that `Connection` names (RFC 9110, 7.6.1). `TE: trailers`
/// concerns both hops and stays.
pub(crate) fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let wants_trailers = has_token(headers, &TE, "trailers");
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    let always = [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        PROXY_CONNECTION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    for name in named.iter().chain(&always) {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn what_concerns_one_hop_stays_here_and_the_rest_goes_on() {
        let mut seen = headers(&[
            ("connection", "close, X-Own"),
            ("connection", "keep-alive"),
            ("x-own", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "deflate, Trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "Basic x"),
            ("accept", "*/*"),
        ]);
        drop_hop_by_hop(&mut seen);
        assert_eq!(seen, headers(&[("te", "trailers"), ("accept", "*/*")]));
    }
}
