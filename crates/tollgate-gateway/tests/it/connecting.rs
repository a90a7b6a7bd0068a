//! Connections: how many there may be, for how long, and what happens when there are too many.

use super::fixture::*;
use super::process::Process;
use super::raw::Raw;

use reqwest::StatusCode;
use tokio::net::TcpSocket;

const LIMITS: &str = "quota = \"100000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"100000/s\"\n";
const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Reads the response to `REQUEST`. Empty if the connection is closed instead.
async fn response(client: &mut Raw) -> String {
    let head = client.head().await;
    if head.starts_with("HTTP/1.1 200 ") { client.bytes(5).await } else { head }
}

#[tokio::test]
async fn an_address_has_no_more_connections_than_its_share() {
    let fixture = TestGateway::new(&format!("max_connections_per_address = 2\n{LIMITS}")).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Raw::sent(fixture.address, REQUEST).await;
        assert_eq!(response(&mut client).await, "hello");
        clients.push(client);
    }
    assert_eq!(Raw::to(fixture.address).await.rest().await, "", "closed at once");
    // Another address has a share of its own.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Raw::from(socket.connect(fixture.address).await.unwrap());
    other.send(REQUEST).await;
    assert_eq!(response(&mut other).await, "hello");
    // And a connection that ends makes space for the next.
    drop(clients.pop());
    loop {
        let mut next = Raw::to(fixture.address).await;
        // The first ones may come before the gateway has seen the end.
        if next.try_send(REQUEST).await && response(&mut next).await == "hello" {
            break;
        }
    }
    assert!(fixture.page("/metrics").await.contains("gateway_connections_refused_total "));
}

#[tokio::test]
async fn a_trusted_proxy_has_as_many_connections_as_it_needs() {
    let proxies = "proxies_before = 1\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let fixture = TestGateway::new(&format!("max_connections_per_address = 1\n{LIMITS}{proxies}")).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = Raw::sent(fixture.address, REQUEST).await;
        assert_eq!(response(&mut client).await, "hello");
        clients.push(client);
    }
}

/// Time is paused: it moves on when all that could happen has happened.
#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_ends_soon() {
    let fixture = TestGateway::new(LIMITS).await;
    for start in ["", "GET / HTTP/1.1\r\nhost: a\r\n"] {
        let mut client = Raw::sent(fixture.address, start).await;
        let rest = tokio::time::timeout(20 * SECOND, client.rest()).await;
        assert_eq!(rest.as_deref(), Ok(""), "{start:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_stays_for_the_idle_timeout() {
    let fixture = TestGateway::new(&format!("header_timeout = \"1s\"\nidle_timeout = \"5m\"\n{LIMITS}")).await;
    let mut client = Raw::to(fixture.address).await;
    for _ in 0..3 {
        client.send(REQUEST).await;
        assert_eq!(response(&mut client).await, "hello");
        tokio::time::sleep(100 * SECOND).await;
    }
    assert_eq!(tokio::time::timeout(400 * SECOND, client.rest()).await.as_deref(), Ok(""));
}

#[tokio::test]
async fn a_head_has_a_largest_size() {
    let fixture = TestGateway::new(LIMITS).await;
    let mut client = Raw::to(fixture.address).await;
    client.try_send(format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "x".repeat(100_000))).await;
    let head = client.head().await;
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 431 "), "{head}");
    assert_eq!(fixture.upstream.count(), 0);
}

#[tokio::test]
async fn a_number_of_connections_that_needs_too_many_files_is_refused_at_the_start() {
    let (_upstream, address) = Upstream::start().await;
    let said = Process::refused("too-many", address, &format!("max_connections = 400\n{LIMITS}"), 500);
    assert!(said.contains(".toml, line 4: `max_connections` is 400"), "{said}");
    assert!(said.contains("the system allows 500") && said.contains("LimitNOFILE"), "{said}");
    // The default is lowered to what fits.
    let process = Process::limited("fitting", address, LIMITS, 500);
    assert!(process.says("`max_connections` is ", 1).await.contains("500 open files"));
    let response = reqwest::get(format!("http://{}/", process.address)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_address_answers_when_no_more_files_can_be_opened() {
    let (_upstream, address) = Upstream::start().await;
    let process = Process::start("no-files", address, LIMITS);
    let health = async || {
        let client = reqwest::Client::builder().pool_max_idle_per_host(0).timeout(10 * SECOND).build().unwrap();
        client.get(format!("http://{}/health", process.admin)).send().await.map(|response| response.status())
    };
    assert_eq!(health().await.unwrap(), StatusCode::OK);
    process.open_no_more_files();
    let mut waiting = Vec::new();
    for _ in 0..30 {
        waiting.push(Raw::sent(process.address, REQUEST).await);
    }
    process.says("cannot accept a connection", 1).await;
    for _ in 0..20 {
        assert_eq!(health().await.unwrap(), StatusCode::OK);
    }
}

#[tokio::test]
async fn the_admin_address_answers_to_its_own_names_only() {
    let fixture = TestGateway::new(&format!("admin_hosts = [\"Gateway.internal\"]\n{LIMITS}")).await;
    for (host, expected) in [
        ("host: 127.0.0.1:9090\r\n", "200"),
        ("host: [::1]\r\n", "200"),
        ("host: localhost:1\r\n", "200"),
        ("host: gateway.INTERNAL:9090\r\n", "200"),
        ("host: rebound.example\r\n", "421"),
        ("host: 127.0.0.1.example\r\n", "421"),
        ("host: localhost\r\nhost: localhost\r\n", "400"),
        ("", "400"),
    ] {
        for path in ["/", "/metrics", "/health", "/events"] {
            if path == "/events" && expected == "200" {
                continue;
            }
            let request = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{host}\r\n");
            let answer = Raw::sent(fixture.gateway.admin, request).await.rest().await;
            assert_eq!(answer.split(' ').nth(1), Some(expected), "{host}: {answer}");
        }
    }
    let rebound = "GET http://rebound.example/metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(Raw::sent(fixture.gateway.admin, rebound).await.rest().await.starts_with("HTTP/1.1 421 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_failures_is_no_flood_of_lines() {
    let process = Process::start("flood", nowhere(), LIMITS);
    let began = std::time::Instant::now();
    let client = reqwest::Client::new();
    for _ in 0..200 {
        let response = client.get(format!("http://{}/", process.address)).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    }
    process.says("Connection refused", 1).await;
    let most = 10 + 2 * (began.elapsed().as_secs() as usize + 1);
    assert!(process.lines("Connection refused") <= most, "{} lines", process.lines("Connection refused"));
}
