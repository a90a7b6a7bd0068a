//! Forwarding: streams, headers, and upstreams that fail.

use super::fixture::*;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures::StreamExt;
use http_body::Frame;
use http_body_util::BodyExt;
use reqwest::StatusCode;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

const OPEN: &str = "quota = \"100000/s\"\nmax_wait = \"0s\"\nupstream_timeout = \"1h\"\nbody_buffer = 0\n[keys]\n\
                    header = \"x-api-key\"\nquota = \"100000/s\"\n";

async fn before(router: Router) -> TestGateway {
    TestGateway::before(Upstream::default(), serve(router).await, OPEN).await
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    // Each chunk comes back before the next one is sent: a proxy that waits for the whole body hangs here.
    let fixture = before(Router::new().route("/echo", any(async |request: Request| request.into_body()))).await;
    let (send, receive) = futures::channel::mpsc::unbounded::<Result<&str, std::io::Error>>();
    let body = reqwest::Body::wrap_stream(receive);
    let mut response = fixture.client.post(format!("http://{}/echo", fixture.address)).body(body).send().await.unwrap();
    for chunk in ["one", "two", "three"] {
        send.unbounded_send(Ok(chunk)).unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), chunk);
    }
    drop(send);
    assert!(response.chunk().await.unwrap().is_none());
}

#[tokio::test]
async fn a_large_body_comes_back_as_it_was() {
    let fixture = before(Router::new().route("/echo", any(async |request: Request| request.into_body()))).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|byte| (byte % 251) as u8).collect();
    let request = fixture.client.put(format!("http://{}/echo?of=it", fixture.address)).body(sent.clone());
    assert!(request.send().await.unwrap().bytes().await.unwrap() == sent);
}

#[tokio::test]
async fn the_upstream_sees_who_asked_and_nothing_of_the_hop() {
    let seen = Arc::new(Mutex::new(HeaderMap::new()));
    let note = Arc::clone(&seen);
    let fixture = before(Router::new().fallback(move |request: Request| {
        *note.lock().unwrap() = request.headers().clone();
        let headers = [("connection", "x-mine"), ("x-mine", "1"), ("keep-alive", "timeout=1"), ("x-yours", "2")];
        std::future::ready((StatusCode::IM_A_TEAPOT, headers, request.uri().to_string()))
    }))
    .await;
    let request = fixture.get("/a//b%2f?c=%20", "k").header("connection", "keep-alive, x-own").header("x-own", "1");
    let response = request.header("te", "deflate").header("x-forwarded-for", "192.0.2.1").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    let headers = response.headers().clone();
    assert_eq!(
        (headers.get("x-mine"), headers.get("keep-alive"), &headers["x-yours"]),
        (None, None, &"2".parse().unwrap())
    );
    assert_eq!(response.text().await.unwrap(), "/a//b%2f?c=%20");
    let seen = seen.lock().unwrap();
    for gone in ["x-own", "te", "connection"] {
        assert_eq!(seen.get(gone), None, "{gone}");
    }
    assert_eq!(seen["x-forwarded-for"], "127.0.0.1");
    assert_eq!(
        (seen["x-forwarded-host"].as_bytes(), seen["x-api-key"].as_bytes()),
        (fixture.address.to_string().as_bytes(), &b"k"[..])
    );
}

async fn status_of(fixture: &TestGateway, path: &str) -> (StatusCode, String) {
    let response = fixture.get(path, "k").send().await.unwrap();
    (response.status(), response.headers()["content-type"].to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_failed_upstream_and_a_late_one_have_different_status_codes() {
    let document = "application/problem+json".to_owned();
    let fixture = TestGateway::before(Upstream::default(), nowhere(), OPEN).await;
    assert_eq!(status_of(&fixture, "/").await, (StatusCode::BAD_GATEWAY, document.clone()));
    let late = serve(Router::new().fallback(async || std::future::pending::<Response>().await)).await;
    let fixture = TestGateway::before(Upstream::default(), late, &OPEN.replace("1h", "200ms")).await;
    assert_eq!(status_of(&fixture, "/").await, (StatusCode::GATEWAY_TIMEOUT, document));
    assert_eq!(
        (fixture.gateway.counters.counts().failed, fixture.gateway.limits.all.snapshot().in_flight),
        (1, Some(0))
    );
}

#[tokio::test]
async fn a_response_that_breaks_off_breaks_off_for_the_client_too() {
    let broken = async || {
        let chunks = futures::stream::iter([Ok("half of"), Err(std::io::Error::other("broken"))]);
        // Chunk by chunk, so that the first chunk has been sent when the upstream breaks.
        let chunks = chunks.then(async |chunk| {
            tokio::time::sleep(10 * MILLI).await;
            chunk
        });
        Body::from_stream(chunks).into_response()
    };
    let fixture = before(Router::new().fallback(broken)).await;
    let response = fixture.get("/", "k").send().await.unwrap();
    assert!(response.bytes().await.is_err());
    until("landed", || fixture.gateway.limits.all.snapshot().in_flight == Some(0)).await;
}

#[tokio::test]
async fn a_request_target_without_a_path_opens_no_tunnel() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let fixture = TestGateway::new(OPEN).await;
    for (request, expected) in [
        ("CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n", "HTTP/1.1 501"),
        ("GET http://example.com/x HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n", "HTTP/1.1 200"),
        ("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 "),
    ] {
        let mut stream = tokio::net::TcpStream::connect(fixture.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with(expected), "{request:?}: {answer}");
    }
    let paths: Vec<String> = fixture.upstream.came.lock().unwrap().iter().map(|(_, path)| path.clone()).collect();
    assert_eq!(paths[0], "/x", "forwarded to the configured upstream, whatever host was named");
}

#[tokio::test]
async fn no_100_continue_is_sent_to_a_request_that_would_be_refused() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let fixture = TestGateway::new(
        "quota = \"1/s, burst 1\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"9/s\"\n",
    )
    .await;
    let first_line = async || {
        let mut stream = tokio::net::TcpStream::connect(fixture.address).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        (String::from_utf8(answer).unwrap(), stream)
    };
    let (answer, mut stream) = first_line().await;
    assert_eq!(answer, "HTTP/1.1 100");
    stream.write_all(b"hello").await.unwrap();
    until("served", || fixture.gateway.counters.counts().answered == 1).await;
    let (answer, _stream) = first_line().await;
    assert_eq!(answer, "HTTP/1.1 429");
}

#[tokio::test]
async fn trailers_go_through() {
    let with_trailers = async || {
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
        let frames = [Frame::data("hello".into()), Frame::trailers(trailers)].map(Ok::<Frame<Bytes>, Infallible>);
        let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
        Response::builder().header("trailer", "x-sum").body(Body::new(body)).unwrap()
    };
    let upstream = serve(Router::new().fallback(with_trailers)).await;
    let fixture = TestGateway::before(Upstream::default(), upstream, OPEN).await;
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let request = axum::http::Request::get(format!("http://{}/", fixture.address)).header("te", "trailers");
    let response = client.request(request.body(Body::empty()).unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().map(|trailers| trailers["x-sum"].clone()), Some("7".parse().unwrap()));
}
