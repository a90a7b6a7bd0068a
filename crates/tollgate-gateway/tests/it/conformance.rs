//! What RFC 9110 and RFC 9112 ask of a proxy. Requests and responses are written by hand.

use super::fixture::*;
use super::raw::{Raw, RawUpstream, responding};

const LIMITS: &str = "quota = \"100000/s\"\nmax_wait = \"0s\"\nin_flight = 9\n[keys]\nheader = \"x-api-key\"\n\
                      quota = \"100000/s\"\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The whole answer to one request.
async fn answer(fixture: &TestGateway, request: &str) -> String {
    Raw::sent(fixture.address, request).await.rest().await
}

/// A gateway before an upstream that answers with `response`, and the heads that this upstream read.
async fn before(response: &'static str) -> (TestGateway, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let (address, heads) = responding(response).await;
    (TestGateway::before(Upstream::default(), address, LIMITS).await, heads)
}

#[tokio::test]
async fn a_get_keeps_its_chunked_body() {
    for buffer in ["", "body_buffer = 0\n"] {
        let (upstream, address) = RawUpstream::start().await;
        let fixture = TestGateway::before(Upstream::default(), address, &format!("{buffer}{LIMITS}")).await;
        let head = "GET /search HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let _client = Raw::sent(fixture.address, format!("{head}5\r\nquery\r\n0\r\n\r\n")).await;
        let mut seen = upstream.accept().await;
        let head = seen.head().await;
        if buffer.is_empty() {
            assert!(head.contains("content-length: 5\r\n"), "{head}");
            assert_eq!(seen.bytes(5).await, "query");
        } else {
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            assert_eq!(seen.bytes(15).await, "5\r\nquery\r\n0\r\n\r\n");
        }
    }
}

/// Some servers answer a `POST` without a length with 411.
#[tokio::test]
async fn an_empty_chunked_body_has_a_length() {
    let (fixture, heads) = before(OK).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    assert!(answer(&fixture, &format!("{head}0\r\n\r\n")).await.starts_with("HTTP/1.1 200 "));
    let head = &heads.lock().unwrap()[0];
    assert!(head.contains("\r\ncontent-length: 0\r\n"), "{head}");
}

#[tokio::test]
async fn via_names_the_gateway_in_both_directions() {
    let (fixture, heads) = before("HTTP/1.1 200 OK\r\nvia: 1.0 other\r\ncontent-length: 0\r\n\r\n").await;
    let request = "GET / HTTP/1.0\r\nhost: a\r\nvia: 1.1 first\r\n\r\n";
    let seen = answer(&fixture, request).await;
    assert!(seen.contains("via: 1.0 other\r\nvia: 1.1 tollgate-gateway\r\n"), "{seen}");
    let head = &heads.lock().unwrap()[0];
    assert!(head.contains("via: 1.1 first\r\nvia: 1.0 tollgate-gateway\r\n"), "{head}");
}

#[tokio::test]
async fn a_401_says_how_to_authenticate() {
    for (header, challenge) in [
        ("x-api-key", "ApiKey realm=\"tollgate-gateway\", header=\"x-api-key\""),
        ("authorization", "Bearer realm=\"tollgate-gateway\""),
    ] {
        let limits = LIMITS.replace("x-api-key", header) + "unlisted = \"refuse\"\n";
        let fixture = TestGateway::new(&limits).await;
        let seen = answer(&fixture, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        assert!(seen.starts_with("HTTP/1.1 401 "), "{seen}");
        assert!(seen.contains(&format!("\r\nwww-authenticate: {challenge}\r\n")), "{seen}");
    }
}

#[tokio::test]
async fn a_request_has_exactly_one_valid_host() {
    let fixture = TestGateway::new(LIMITS).await;
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\nconnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nhost: a, b\r\nconnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nhost: a/b\r\nconnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nhost: me@a\r\nconnection: close\r\n\r\n", "400"),
        ("GET http://me@a/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", "400"),
        ("GET http://a/ HTTP/1.1\r\nconnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n", "200"),
        ("GET / HTTP/1.1\r\nhost: [::1]:80\r\nconnection: close\r\n\r\n", "200"),
        ("GET / HTTP/1.0\r\n\r\n", "200"),
    ] {
        let seen = answer(&fixture, request).await;
        assert_eq!(seen.split(' ').nth(1), Some(expected), "{request}: {seen}");
    }
    let counts = fixture.gateway.counters.counts();
    assert_eq!((counts.invalid, counts.answered, fixture.upstream.count()), (9, 3, 3));
}

#[tokio::test]
async fn the_authority_of_an_absolute_target_replaces_the_host() {
    let (fixture, heads) = before(OK).await;
    let request = "GET http://real.example:81/x HTTP/1.1\r\nhost: other.example\r\nconnection: close\r\n\r\n";
    assert!(answer(&fixture, request).await.starts_with("HTTP/1.1 200 "));
    let head = &heads.lock().unwrap()[0];
    assert!(head.starts_with("GET /x HTTP/1.1\r\n") && !head.contains("other.example"), "{head}");
    assert!(head.contains("\r\nx-forwarded-host: real.example:81\r\n"), "{head}");
}

#[tokio::test]
async fn trace_is_refused_and_max_forwards_is_counted_down() {
    let (fixture, heads) = before(OK).await;
    let ask = async |request: &str| answer(&fixture, &format!("{request}connection: close\r\n\r\n")).await;
    let trace = ask("TRACE / HTTP/1.1\r\nhost: a\r\ncookie: secret\r\n").await;
    assert!(trace.starts_with("HTTP/1.1 405 ") && trace.contains("\r\nallow: GET, "), "{trace}");
    assert!(!trace.contains("secret"), "{trace}");
    let own = ask("OPTIONS * HTTP/1.1\r\nhost: a\r\nmax-forwards: 0\r\n").await;
    assert!(own.starts_with("HTTP/1.1 204 ") && own.contains("\r\nallow: GET, "), "{own}");
    let wrong = ask("OPTIONS / HTTP/1.1\r\nhost: a\r\nmax-forwards: many\r\n").await;
    assert!(wrong.starts_with("HTTP/1.1 400 "), "{wrong}");
    assert!(heads.lock().unwrap().is_empty(), "not forwarded");
    for (method, sent, expected) in [("OPTIONS", "3", "2"), ("GET", "0", "0")] {
        let seen = ask(&format!("{method} / HTTP/1.1\r\nhost: a\r\nmax-forwards: {sent}\r\n")).await;
        assert!(seen.starts_with("HTTP/1.1 200 "), "{seen}");
        let head = heads.lock().unwrap().pop().unwrap();
        assert!(head.contains(&format!("max-forwards: {expected}\r\n")), "{head}");
    }
}

#[tokio::test]
async fn a_response_whose_end_is_uncertain_is_502() {
    for response in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 30\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    ] {
        let (fixture, _) = before(response).await;
        let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let seen = answer(&fixture, request).await;
        assert!(seen.starts_with("HTTP/1.1 502 ") && !seen.contains("hel"), "{response}: {seen}");
        assert_eq!(fixture.gateway.counters.counts().failed, 1, "{response}");
    }
}

#[tokio::test]
async fn a_malformed_chunk_is_the_clients_fault() {
    for buffer in ["", "body_buffer = 0\n"] {
        let (_upstream, address) = RawUpstream::start().await;
        let fixture = TestGateway::before(Upstream::default(), address, &format!("{buffer}{LIMITS}")).await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let seen = answer(&fixture, &format!("{head}5\r\nhello\r\nwrong\r\n")).await;
        assert!(seen.starts_with("HTTP/1.1 400 "), "{seen}");
        let counts = fixture.gateway.counters.counts();
        assert_eq!((counts.invalid, counts.failed, counts.left, counts.answered), (1, 0, 0, 0));
        assert_eq!(fixture.gateway.limits.all.snapshot().in_flight, Some(0));
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_within_its_body_has_left() {
    for buffer in ["", "body_buffer = 0\n"] {
        let (_upstream, address) = RawUpstream::start().await;
        let fixture = TestGateway::before(Upstream::default(), address, &format!("{buffer}{LIMITS}")).await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf";
        drop(Raw::sent(fixture.address, head).await);
        until("counted", || {
            let counts = fixture.gateway.counters.counts();
            assert_eq!((counts.invalid, counts.failed), (0, 0));
            counts.left == 1
        })
        .await;
    }
}
