//! WebSockets.

use super::fixture::{TestGateway, Upstream, problem, until};
use super::raw::{Raw, RawUpstream, responding};
use super::tls::Pair;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMITS: &str = "quota = \"100000/s\"\nin_flight = 5\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\n\
                      quota = \"100000/s\"\n[[routes]]\npath = \"/chat\"\nwebsockets = true\n";
const ASK: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";
const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                      sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn in_flight(fixture: &TestGateway) -> Option<u64> {
    fixture.gateway.limits.all.snapshot().in_flight
}

/// A gateway, and both ends of a WebSocket through it.
async fn tunnel(fixture: &TestGateway, upstream: &RawUpstream) -> (Raw, Raw) {
    let mut client = Raw::sent(fixture.address, ASK).await;
    let mut other = upstream.accept().await;
    let head = other.head().await;
    assert!(head.contains("\r\nconnection: upgrade\r\n") && head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    assert!(head.contains("\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), "{head}");
    other.send(AGREED).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    assert!(head.contains("\r\nsec-websocket-accept: s3p") && !head.contains("content-length"), "{head}");
    (client, other)
}

#[tokio::test]
async fn a_websocket_passes_bytes_and_holds_its_tokens_to_its_end() {
    let (upstream, address) = RawUpstream::start().await;
    let fixture = TestGateway::before(Upstream::default(), address, LIMITS).await;
    let (mut client, mut other) = tunnel(&fixture, &upstream).await;
    client.send("up").await;
    assert_eq!(other.bytes(2).await, "up");
    other.send("down").await;
    assert_eq!(client.bytes(4).await, "down");
    assert_eq!(in_flight(&fixture), Some(1));
    drop(other);
    assert_eq!(client.rest().await, "");
    drop(client);
    until("released", || in_flight(&fixture) == Some(0)).await;
    assert_eq!(fixture.gateway.counters.counts().answered, 1);
}

#[tokio::test]
async fn a_websocket_on_which_nothing_passes_ends() {
    let (upstream, address) = RawUpstream::start().await;
    let limits = format!("websocket_idle_timeout = \"100ms\"\n{LIMITS}");
    let fixture = TestGateway::before(Upstream::default(), address, &limits).await;
    let (mut client, mut other) = tunnel(&fixture, &upstream).await;
    assert_eq!((client.rest().await, other.rest().await), (String::new(), String::new()));
    until("released", || in_flight(&fixture) == Some(0)).await;
}

#[tokio::test]
async fn a_websocket_ends_when_the_gateway_does() {
    let (upstream, address) = RawUpstream::start().await;
    let fixture = TestGateway::before(Upstream::default(), address, LIMITS).await;
    let (mut client, mut other) = tunnel(&fixture, &upstream).await;
    let limits = std::sync::Arc::clone(&fixture.gateway.limits);
    assert!(fixture.gateway.shut_down().await);
    assert_eq!((client.rest().await, other.rest().await), (String::new(), String::new()));
    assert_eq!(limits.all.snapshot().in_flight, Some(0));
}

#[tokio::test]
async fn a_websocket_over_tls_passes() {
    let pair = Pair::new();
    let (upstream, address) = RawUpstream::start().await;
    let fixture = TestGateway::before(Upstream::default(), address, &format!("{LIMITS}{}", pair.table())).await;
    let mut client = pair.connect(fixture.address, &["http/1.1"]).await.unwrap();
    client.write_all(ASK.as_bytes()).await.unwrap();
    let mut other = upstream.accept().await;
    other.head().await;
    other.send(format!("{AGREED}first")).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"first") {
        seen.push(client.read_u8().await.unwrap());
    }
    client.write_all(b"up").await.unwrap();
    assert_eq!(other.bytes(2).await, "up");
}

/// What is not a WebSocket stays a request, and what follows it is priced.
#[tokio::test]
async fn no_tunnel_is_opened_that_was_not_asked_for_or_not_agreed_to() {
    let next = "GET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    // The upstream does not agree.
    let (address, heads) = responding(ok).await;
    let fixture = TestGateway::before(Upstream::default(), address, LIMITS).await;
    let seen = Raw::sent(fixture.address, format!("{ASK}{next}")).await.rest().await;
    assert_eq!(seen.matches("HTTP/1.1 200 ").count(), 2, "{seen}");
    assert_eq!((heads.lock().unwrap().len(), fixture.gateway.counters.counts().came), (2, 2));
    // The client asks for another protocol, or not as it must: the upstream sees no upgrade.
    for (old, new) in [
        ("upgrade: WebSocket", "upgrade: h2c"),
        ("upgrade: WebSocket", "upgrade: websocket, h2c"),
        ("upgrade: WebSocket", "upgrade: websocket\r\nupgrade: h2c"),
        ("keep-alive, Upgrade", "keep-alive"),
        ("GET /chat HTTP/1.1", "POST /chat HTTP/1.1"),
        // Or where the file allows none, or on a path that may not be the one where it does.
        ("GET /chat HTTP/1.1", "GET / HTTP/1.1"),
        ("GET /chat HTTP/1.1", "GET /chats HTTP/1.1"),
        ("GET /chat HTTP/1.1", "GET /CHAT HTTP/1.1"),
        ("GET /chat HTTP/1.1", "GET /chat/..;/x HTTP/1.1"),
        ("GET /chat HTTP/1.1", "GET /chat HTTP/1.0"),
        ("host: a", "host: a\r\ncontent-length: 3"),
    ] {
        heads.lock().unwrap().clear();
        let body = if new.contains("length") { "abc" } else { "" };
        let ask = ASK.replace(old, new).replace("keep-alive,", "close,").replace("keep-alive", "close");
        let seen = Raw::sent(fixture.address, format!("{ask}{body}")).await.rest().await;
        assert!(seen.starts_with("HTTP/1.1 200 ") || seen.starts_with("HTTP/1.0 200 "), "{new}: {seen}");
        let head = heads.lock().unwrap().concat().to_lowercase();
        assert!(!head.contains("\r\nupgrade:"), "{new}: {head}");
    }
    // The upstream agrees to another protocol than the client asked for.
    let (address, _) = responding("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n").await;
    let fixture = TestGateway::before(Upstream::default(), address, LIMITS).await;
    let mut client = Raw::sent(fixture.address, ASK).await;
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    until("released", || in_flight(&fixture) == Some(0)).await;
}

#[test]
fn a_route_to_language_models_has_no_websockets() {
    let llm = "tokens = true\n[llm]\nquota = \"100000/s\"\n";
    let said = problem(&format!("{LIMITS}{llm}"));
    assert!(said.contains("`websockets`: ") && said.contains("^^^^"), "{said}");
}
