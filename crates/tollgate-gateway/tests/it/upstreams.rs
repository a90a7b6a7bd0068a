//! TLS and HTTP/2 to the upstream, and gRPC.

use super::app::config::certificate;
use super::fixture::{TestGateway, file};
use super::tls::Pair;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, Response, StatusCode, Version};
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const LIMITS: &str = "quota = \"100000/s\"\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"100000/s\"\n";

/// The versions of the requests that an upstream has received.
type Seen = Arc<Mutex<Vec<Version>>>;

/// An upstream that answers with a message and trailers: over TLS with these protocols, or HTTP/2 without TLS.
async fn start(tls: Option<(&Pair, &[&str])>) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Seen::default());
    let acceptor = tls.map(|(pair, protocols)| {
        let mut config = (*certificate::read(&pair.certificate, &pair.key).unwrap()).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    });
    let saw = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Some(acceptor) = &acceptor else {
                tokio::spawn(serve(stream, true, Arc::clone(&saw)));
                continue;
            };
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            tokio::spawn(serve(stream, is_http2, Arc::clone(&saw)));
        }
    });
    (address, seen)
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, is_http2: bool, seen: Seen) {
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        seen.lock().unwrap().push(request.version());
        async move {
            request.into_body().collect().await.unwrap();
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            let frames = [Frame::data(Bytes::from_static(b"message")), Frame::trailers(trailers)];
            Ok::<_, Infallible>(Response::new(StreamBody::new(stream::iter(frames).map(Ok::<_, Infallible>))))
        }
    });
    // A connection ends with the test.
    if is_http2 {
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    } else {
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

fn https(address: SocketAddr, settings: &str) -> String {
    file(address, &format!("{settings}{LIMITS}")).replace("upstream = \"http:", "upstream = \"https:")
}

/// HTTP/2 has one connection for all requests, so clients that take nothing of their responses could use up its streams.
#[tokio::test]
async fn https_upstreams_are_spoken_to_over_http_2_only_if_the_file_says_so() {
    let pair = Pair::new();
    for (offered, setting, expected) in [
        (&["http/1.1"][..], "", Version::HTTP_11),
        (&["h2", "http/1.1"], "", Version::HTTP_11),
        (&["h2", "http/1.1"], "upstream_http2 = true\n", Version::HTTP_2),
    ] {
        let (address, seen) = start(Some((&pair, offered))).await;
        let settings = format!("{setting}upstream_ca = {:?}\n", pair.certificate);
        let fixture = TestGateway::of(&https(address, &settings)).await;
        let answer = fixture.get("/", "k").body("a body").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let via = if expected == Version::HTTP_2 { "2.0 tollgate-gateway" } else { "1.1 tollgate-gateway" };
        assert_eq!(answer.headers()["via"], via);
        assert_eq!(answer.text().await.unwrap(), "message");
        assert_eq!(*seen.lock().unwrap(), [expected]);
    }
}

#[tokio::test]
async fn an_upstream_that_nobody_vouches_for_sees_no_request() {
    let (pair, other) = (Pair::new(), Pair::new());
    let (address, seen) = start(Some((&pair, &["h2", "http/1.1"]))).await;
    for settings in [String::new(), format!("upstream_ca = {:?}\n", other.certificate)] {
        let fixture = TestGateway::of(&https(address, &settings)).await;
        assert_eq!(fixture.get("/", "k").send().await.unwrap().status(), StatusCode::BAD_GATEWAY);
        assert!(seen.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn grpc_passes_with_its_trailers() {
    let pair = Pair::new();
    let (address, seen) = start(None).await;
    let fixture = TestGateway::of(&file(address, &format!("upstream_http2 = true\n{LIMITS}{}", pair.table()))).await;
    let stream = pair.connect(fixture.address, &["h2"]).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let call = Request::post("https://a/service/Method").header("content-type", "application/grpc+proto");
    let call = call.header("te", "trailers").body(()).unwrap();
    let (answer, mut body) = client.ready().await.unwrap().send_request(call, false).unwrap();
    body.send_data(Bytes::from_static(b"call"), true).unwrap();
    let mut answer = answer.await.unwrap().into_body();
    assert_eq!(answer.data().await.unwrap().unwrap(), "message");
    assert_eq!(answer.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    assert_eq!(*seen.lock().unwrap(), [Version::HTTP_2]);
}

const REFUSING: &str = "quota = \"1/h, burst 1\"\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\n\
                        quota = \"9/s\"\nunlisted = \"refuse\"\n[keys.listed.a]\nkey = \"k\"\n";

#[tokio::test]
async fn a_grpc_call_that_is_not_forwarded_gets_a_grpc_status() {
    let (pair, nowhere) = (Pair::new(), "127.0.0.1:1".parse().unwrap());
    let fixture = TestGateway::of(&file(nowhere, &format!("{REFUSING}{}", pair.table()))).await;
    let stream = pair.connect(fixture.address, &["h2"]).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for (key, code) in [("unknown", "16"), ("k", "14"), ("k", "8")] {
        let call = Request::post("https://a/").header("content-type", "application/grpc").header("x-api-key", key);
        client = client.ready().await.unwrap();
        let answer = client.send_request(call.body(()).unwrap(), true).unwrap().0.await.unwrap();
        assert_eq!((answer.status(), answer.headers()["grpc-status"].as_bytes()), (StatusCode::OK, code.as_bytes()));
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        assert!(answer.body().is_end_stream());
    }
    let counts = fixture.gateway.counters.counts();
    assert_eq!((counts.unknown, counts.failed, counts.refused_all), (1, 1, 1));
}

/// A cache would keep a `200 OK` to a `GET`.
#[tokio::test]
async fn what_only_says_that_it_is_grpc_gets_the_status_of_http_which_no_cache_keeps() {
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let fixture = TestGateway::of(&file(nowhere, REFUSING)).await;
    for (key, status) in
        [("unknown", StatusCode::UNAUTHORIZED), ("k", StatusCode::BAD_GATEWAY), ("k", StatusCode::TOO_MANY_REQUESTS)]
    {
        let answer = fixture.get("/", key).header("content-type", "application/grpc").send().await.unwrap();
        assert_eq!((answer.status(), answer.headers().get("grpc-status")), (status, None));
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
    let post = fixture.client.post(format!("http://{}/", fixture.address)).header("x-api-key", "unknown");
    let answer = post.header("content-type", "application/grpc").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "gRPC needs HTTP/2");
}

/// hyper takes a stream that is reset without an error for one that has ended.
#[tokio::test]
async fn half_a_response_is_not_taken_for_a_whole_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let fixture = TestGateway::of(&file(address, &format!("upstream_http2 = true\n{LIMITS}"))).await;
    tokio::spawn(async move {
        let mut connection = h2::server::handshake(listener.accept().await.unwrap().0).await.unwrap();
        let (_, mut answer) = connection.accept().await.unwrap().unwrap();
        let mut body = answer.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(b"half"), false).unwrap();
        tokio::spawn(async move {
            super::fixture::short_pause().await;
            body.send_reset(h2::Reason::NO_ERROR);
        });
        while connection.accept().await.is_some() {}
    });
    let answer = fixture.get("/", "k").send().await.unwrap();
    assert!(answer.text().await.is_err());
}

#[test]
fn authorities_that_cannot_be_read_are_reported() {
    let text = file("127.0.0.1:1".parse().unwrap(), &format!("upstream_ca = \"/nowhere/at.pem\"\n{LIMITS}"));
    let problem = super::app::config::Config::parse("gateway.toml".as_ref(), &text).unwrap_err();
    assert_eq!(problem.line, Some(4));
    assert!(format!("{problem:#}").contains("/nowhere/at.pem cannot be read"), "{problem:#}");
}
