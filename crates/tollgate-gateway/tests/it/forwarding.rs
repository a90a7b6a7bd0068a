//! The fields in which proxies say for whom they forward: which the gateway believes, and which the upstream sees.

use super::fixture::*;
use super::raw::{Raw, responding};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;

const LIMITS: &str =
    "quota = \"100000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/h, burst 2\"\n";

/// The fields of a forwarded request that name addresses, hosts or paths.
async fn forwarded(proxies: &str, fields: impl AsRef<[u8]>) -> Vec<String> {
    let (upstream, heads) = responding("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let fixture = TestGateway::before(Upstream::default(), upstream, &format!("{LIMITS}{proxies}")).await;
    let request = [b"GET / HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n", fields.as_ref(), b"\r\n"].concat();
    let answer = Raw::sent(fixture.address, request).await.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let head = heads.lock().unwrap().pop().unwrap();
    let lines = head.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with("via: "));
    let mut lines: Vec<_> = lines.filter(|line| !line.starts_with("host: ")).map(str::to_owned).collect();
    lines.sort();
    lines
}

const LIES: &str = "X-Forwarded-For: 198.51.100.9, 192.0.2.1\r\nX-Forwarded-Host: b.example\r\n\
                    X-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /admin\r\nX-Real-IP: 192.0.2.1\r\n\
                    Forwarded: for=192.0.2.1\r\nTrue-Client-IP: 192.0.2.1\r\nCF-Connecting-IP: 192.0.2.1\r\n\
                    X_Forwarded_For: 192.0.2.1\r\nX_Real-IP: 192.0.2.1\r\nX_Original_URL: /x\r\n\
                    X_HTTP_Method_Override: DELETE\r\nX-Yours: 1\r\n";

#[tokio::test]
async fn a_client_cannot_speak_for_others() {
    let own = ["x-forwarded-for: 127.0.0.1", "x-forwarded-host: a.example", "x-forwarded-proto: http", "x-yours: 1"];
    for proxies in ["", "proxies_before = 1\ntrusted_proxies = [\"10.0.0.0/8\", \"2001:db8::/32\"]\n"] {
        assert_eq!(forwarded(proxies, LIES).await, own, "{proxies}");
    }
}

/// Some upstreams add trailers to the head of a request.
#[tokio::test]
async fn trailers_change_neither_the_key_nor_the_client_nor_the_method() {
    let seen = async |request: Request| {
        let trailers = request.into_body().collect().await.unwrap().trailers().cloned().unwrap_or_default();
        Body::from(trailers.keys().map(|name| name.as_str()).collect::<Vec<_>>().join(" "))
    };
    let upstream = serve(Router::new().fallback(seen)).await;
    let trailers = "x-api-key: other\r\nx_api_key: other\r\nx-forwarded-for: 192.0.2.1\r\nx-http-method: DELETE\r\n\
                    connection: x-sum\r\nx-rewrite-url: /x\r\nx-note: 7\r\n";
    let names: Vec<_> = trailers.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    for buffered in ["", "body_buffer = 0\n"] {
        let limits = format!("{buffered}{LIMITS}").replace("burst 2", "burst 9");
        let fixture = TestGateway::before(Upstream::default(), upstream, &limits).await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\nx-api-key: a";
        let request = format!("{head}\r\ntrailer: {}\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n", names.join(", "));
        let answer = Raw::sent(fixture.address, request).await.rest().await;
        assert!(answer.ends_with("\r\n\r\nx-note"), "{answer}");
    }
}

#[tokio::test]
async fn of_a_trusted_proxy_the_upstream_sees_what_it_added() {
    let added = [
        "cf-connecting-ip: 192.0.2.1",
        "true-client-ip: 192.0.2.1",
        "x-forwarded-for: 192.0.2.1, 127.0.0.1",
        "x-forwarded-host: b.example",
        "x-forwarded-prefix: /admin",
        "x-forwarded-proto: https",
        "x-real-ip: 192.0.2.1",
        "x-yours: 1",
    ];
    for trusted in ["", "trusted_proxies = [\"127.0.0.0/8\"]\n", "trusted_proxies = [\"::1\", \"127.0.0.1\"]\n"] {
        assert_eq!(forwarded(&format!("proxies_before = 1\n{trusted}"), LIES).await, added, "{trusted}");
    }
}

#[tokio::test]
async fn an_address_is_the_same_client_with_and_without_a_port() {
    let fixture = TestGateway::new(&format!("{LIMITS}proxies_before = 1\n")).await;
    let status = async |seen: &str| fixture.get("/", "").header("x-forwarded-for", seen).send().await.unwrap().status();
    for (same, other) in [
        (["192.0.2.1", "192.0.2.1:4711", "192.0.2.1:4712"], "192.0.2.2:4711"),
        (["[2001:db8::1]:4711", "2001:db8::1", "[2001:db8::2]"], "[2001:db8:0:1::1]:4711"),
        (["::ffff:192.0.2.9", "192.0.2.9:1", "[::ffff:192.0.2.9]:1"], "192.0.2.10:1"),
    ] {
        for (address, expected) in same.into_iter().zip([StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS])
        {
            assert_eq!(status(address).await, expected, "{address}");
        }
        assert_eq!(status(other).await, StatusCode::OK, "{other}");
    }
}

#[tokio::test]
async fn only_a_trusted_proxy_names_the_client() {
    for (trusted, third) in [("10.0.0.0/8", StatusCode::TOO_MANY_REQUESTS), ("127.0.0.1/32", StatusCode::OK)] {
        let fixture =
            TestGateway::new(&format!("{LIMITS}proxies_before = 1\ntrusted_proxies = [\"{trusted}\"]\n")).await;
        let mut last = None;
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
            last = Some(fixture.get("/", "").header("x-forwarded-for", address).send().await.unwrap().status());
        }
        assert_eq!(last, Some(third), "{trusted}");
    }
}

/// A client that sends a byte that is not ASCII must not hide the address that a proxy appends to the same line.
#[tokio::test]
async fn no_byte_of_the_client_hides_the_address_that_a_proxy_appended() {
    let limits = format!("{LIMITS}proxies_before = 1\n[[networks]]\ncidr = \"192.0.2.1\"\nrefuse = true\n");
    let fixture = TestGateway::new(&limits).await;
    for lines in [&[&b"\xff, 192.0.2.1"[..]][..], &[b"198.51.100.9", b"\xff, 192.0.2.1"], &[b"\xff,192.0.2.1"]] {
        let mut request = fixture.get("/", "");
        for line in lines {
            request = request.header("x-forwarded-for", HeaderValue::from_bytes(line).unwrap());
        }
        assert_eq!(request.send().await.unwrap().status(), StatusCode::FORBIDDEN, "{lines:?}");
    }
}

#[tokio::test]
async fn the_upstream_gets_no_bytes_that_it_could_not_read_as_an_address() {
    let fields = b"X-Forwarded-For: a\xff, 192.0.2.1\r\n";
    let own = ["x-forwarded-for: unknown, 192.0.2.1, 127.0.0.1"];
    assert_eq!(forwarded("proxies_before = 2\n", fields).await[..1], own);
}

/// To some upstreams `_` and `-` in a name are the same: they would see another key, or another end of the request.
#[tokio::test]
async fn no_spelling_of_a_field_replaces_the_key_or_the_length() {
    let fields = "X_Api-Key: a\r\nX-Api_Key: b\r\nX-Api-Key: c\r\nX_Api_Key: d\r\nX_Api_Keys: e\r\n\
                  Content_Length: 5\r\nTransfer_Encoding: chunked\r\n";
    let own = ["x-forwarded-for: 127.0.0.1", "x-forwarded-host: a.example", "x-forwarded-proto: http"];
    assert_eq!(forwarded("", fields).await, [&["x-api-key: c"], &own[..], &["x_api_keys: e"]].concat());
}
