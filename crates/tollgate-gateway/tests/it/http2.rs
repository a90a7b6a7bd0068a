//! HTTP/2 between clients and the gateway.

use super::fixture::{HANG_LIMIT, TestGateway, Upstream, until};
use super::frames::{Answer, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, RESET, block};
use super::raw::{RawUpstream, responding};
use super::tls::Pair;

use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode};
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};

const LIMITS: &str = "quota = \"100000/s\"\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"100000/s\"\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// The fields of a request that nothing is wrong with.
const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")];
const POST: [(&str, &str); 4] = [(":method", "POST"), (":scheme", "https"), (":authority", "a"), (":path", "/")];

type Client = SendRequest<Bytes>;
type Connection = tokio::task::JoinHandle<Result<(), h2::Error>>;

async fn connect(fixture: &TestGateway, pair: &Pair) -> (Client, Connection) {
    connect_with(fixture, pair, &Builder::new()).await
}

async fn connect_with(fixture: &TestGateway, pair: &Pair, builder: &Builder) -> (Client, Connection) {
    let stream = pair.connect(fixture.address, &["h2"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = builder.handshake(stream).await.unwrap();
    (client.ready().await.unwrap(), tokio::spawn(connection))
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("https://a{path}")).header("x-api-key", "k").body(()).unwrap()
}

async fn text(mut body: RecvStream) -> Result<String, h2::Error> {
    let mut text = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        text.extend(part);
    }
    Ok(String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn a_request_becomes_one_of_http_1_1() {
    let pair = Pair::new();
    let (address, heads) = responding(OK).await;
    let fixture = TestGateway::before(Upstream::default(), address, &format!("{LIMITS}{}", pair.table())).await;
    let (mut client, _connection) = connect(&fixture, &pair).await;
    let request = Request::builder().method(Method::POST).uri("https://real.example:81/x?y");
    let request = request.header("cookie", "a=1").header("cookie", "b=2").header("te", "trailers").body(()).unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"hello"), true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!((answer.status(), &answer.headers()["via"]), (StatusCode::OK, &"1.1 tollgate-gateway".parse().unwrap()));
    assert_eq!(text(answer.into_body()).await.unwrap(), "ok");
    let head = heads.lock().unwrap()[0].clone();
    assert!(head.starts_with("POST /x?y HTTP/1.1\r\n"), "{head}");
    for line in
        ["via: 2.0 tollgate-gateway", "x-forwarded-host: real.example:81", "cookie: a=1; b=2", "content-length: 5"]
    {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }
    assert!(!head.contains("transfer-encoding"), "{head}");
}

/// What an upstream that speaks HTTP/1.1 could take for another request than the one that was priced.
#[tokio::test]
async fn nothing_is_smuggled_into_the_upstreams_connection() {
    let pair = Pair::new();
    let (address, heads) = responding(OK).await;
    let fixture = TestGateway::before(Upstream::default(), address, &format!("{LIMITS}{}", pair.table())).await;
    let with = |base: [(&'static str, &'static str); 4], more: &[(&'static str, &'static str)]| {
        let names: Vec<_> = more.iter().map(|(name, _)| *name).filter(|name| name.starts_with(':')).collect();
        let kept = base.into_iter().filter(|(name, _)| !names.contains(name));
        // Pseudo-header fields come first.
        let (first, rest): (Vec<_>, Vec<_>) = more.iter().copied().partition(|(name, _)| name.starts_with(':'));
        kept.chain(first).chain(rest).collect::<Vec<_>>()
    };
    let bad = || Answer::Status("400".to_owned());
    let without_authority = vec![GET[0], GET[1], GET[3]];
    let protocol = vec![(":method", "CONNECT"), (":protocol", "websocket"), GET[1], GET[2], GET[3]];
    for (fields, body, expected) in [
        (with(GET, &[("x", "1\r\nhost: b")]), None, Answer::Reset),
        (with(GET, &[("x", "1\nhost: b")]), None, Answer::Reset),
        (with(GET, &[("x", "1\0")]), None, Answer::Reset),
        (with(GET, &[("x\r\ny", "1")]), None, Answer::Reset),
        (with(GET, &[("x: 1\r\ny", "1")]), None, Answer::Reset),
        (with(GET, &[("X-Upper", "1")]), None, Answer::Reset),
        (with(GET, &[(":path", "/ HTTP/1.1\r\nx: 1")]), None, Answer::Reset),
        (with(GET, &[(":path", "/a b")]), None, Answer::Reset),
        (with(GET, &[(":path", "")]), None, Answer::Reset),
        (with(GET, &[(":method", "GET / HTTP/1.1\r\n")]), None, Answer::Reset),
        (with(GET, &[(":authority", "a\r\nx: 1")]), None, Answer::Reset),
        (with(GET, &[("connection", "x-key")]), None, Answer::Reset),
        (with(GET, &[("upgrade", "websocket")]), None, Answer::Reset),
        (with(GET, &[("te", "gzip")]), None, Answer::Reset),
        (with(POST, &[("transfer-encoding", "chunked")]), Some("0\r\n\r\nGET /x"), Answer::Reset),
        (with(POST, &[("content-length", "2")]), Some("longer"), Answer::Reset),
        (with(POST, &[("content-length", "20")]), Some("short"), Answer::Reset),
        (with(POST, &[("content-length", "5")]), None, Answer::Reset),
        (protocol, None, Answer::Reset),
        (with(GET, &[(":path", "@b/")]), None, bad()),
        (with(GET, &[(":path", "*")]), None, bad()),
        (with(GET, &[("host", "b")]), None, bad()),
        (with(GET, &[(":authority", "me@a")]), None, bad()),
        (without_authority, None, bad()),
        (with(POST, &[("content-length", "5"), ("content-length", "0")]), Some("hello"), bad()),
        (with(POST, &[("content-length", "+5")]), Some("hello"), bad()),
    ] {
        let mut frames = Frames::connect(&pair, fixture.address).await;
        let ends = if body.is_none() { END_STREAM } else { 0 };
        frames.send(HEADERS, END_HEADERS | ends, 1, &block(&fields)).await;
        if let Some(body) = body {
            frames.send(DATA, END_STREAM, 1, body.as_bytes()).await;
        }
        let seen = frames.answer(1).await;
        // The library may refuse what the gateway would.
        assert!(seen == expected || seen == Answer::Reset, "{fields:?}: {seen:?}");
        assert_eq!(*heads.lock().unwrap(), [""; 0], "{fields:?}");
    }
    let mut frames = Frames::connect(&pair, fixture.address).await;
    frames.send(HEADERS, END_HEADERS | END_STREAM, 1, &block(&GET)).await;
    assert_eq!(frames.answer(1).await, Answer::Status("200".to_owned()));
    assert_eq!(heads.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn half_a_body_is_not_taken_for_a_whole_one() {
    let pair = Pair::new();
    let (address, heads) = responding(OK).await;
    let fixture = TestGateway::before(Upstream::default(), address, &format!("{LIMITS}{}", pair.table())).await;
    for (count, reason) in [Reason::NO_ERROR, Reason::CANCEL].into_iter().enumerate() {
        let mut frames = Frames::connect(&pair, fixture.address).await;
        frames.send(HEADERS, END_HEADERS, 1, &block(&POST)).await;
        frames.send(DATA, 0, 1, b"half").await;
        frames.send(RESET, 0, 1, &u32::from(reason).to_be_bytes()).await;
        until("counted", || fixture.gateway.counters.counts().left == count as u64 + 1).await;
    }
    assert!(heads.lock().unwrap().is_empty());
    assert_eq!(fixture.gateway.limits.all.snapshot().in_flight, Some(0));
}

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection_and_leaves_nothing_in_flight() {
    let pair = Pair::new();
    let (_upstream, address) = RawUpstream::start().await;
    let fixture = TestGateway::before(Upstream::default(), address, &format!("{LIMITS}{}", pair.table())).await;
    let mut frames = Frames::connect(&pair, fixture.address).await;
    let (mut stream, headers) = (1, block(&GET));
    while frames.send(HEADERS, END_HEADERS | END_STREAM, stream, &headers).await
        && frames.send(RESET, 0, stream, &u32::from(Reason::CANCEL).to_be_bytes()).await
    {
        stream += 2;
        assert!(stream < 1_000_000, "it goes on");
        tokio::task::yield_now().await;
    }
    until("released", || fixture.gateway.limits.all.snapshot().in_flight == Some(0)).await;
}

#[tokio::test]
async fn requests_of_one_connection_count_like_connections() {
    let pair = Pair::new();
    let limits = format!("max_connections_per_address = 3\n{LIMITS}{}", pair.table());
    let fixture = TestGateway::new(&limits).await;
    let (mut client, _connection) = connect(&fixture, &pair).await;
    let streams = [fixture.upstream.stream(), fixture.upstream.stream()];
    let mut open = Vec::new();
    for _ in &streams {
        open.push(client.send_request(get("/stream"), true).unwrap().0.await.unwrap());
    }
    let refused = client.send_request(get("/"), true).unwrap().0.await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    drop(streams);
    for answer in open {
        text(answer.into_body()).await.unwrap();
    }
    // The place is free when the stream has ended, which its client may see first.
    loop {
        let again = client.send_request(get("/"), true).unwrap().0.await.unwrap();
        if again.status() == StatusCode::OK {
            break;
        }
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_a_response_loses_its_stream_only() {
    let pair = Pair::new();
    let limits = format!("client_timeout = \"200ms\"\n{LIMITS}{}", pair.table());
    let fixture = TestGateway::by_the_clock(&limits).await;
    let (mut client, _connection) = connect_with(&fixture, &pair, Builder::new().initial_window_size(2)).await;
    let stream = fixture.upstream.stream();
    let stalled = client.send_request(get("/stream"), true).unwrap().0.await.unwrap();
    let mut body = stalled.into_body();
    // The library holds the rest of the first part, and the gateway the second.
    stream.unbounded_send("hello").unwrap();
    assert_eq!(body.data().await.unwrap().unwrap(), "he");
    stream.unbounded_send("more").unwrap();
    assert!(body.data().await.unwrap().unwrap_err().is_reset());
    until("released", || fixture.gateway.limits.all.snapshot().in_flight == Some(0)).await;
    let next = client.send_request(get("/"), true).unwrap().0.await.unwrap();
    assert_eq!(next.status(), StatusCode::OK);
}

/// The library would keep the rest of a response that is complete, and the gateway would forget it.
#[tokio::test]
async fn a_client_that_takes_nothing_of_a_complete_response_has_its_place_until_its_stream_is_reset() {
    let pair = Pair::new();
    let complete = format!("HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{}", "x".repeat(5_000));
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1388\r\n{}\r\n0\r\n\r\n", "x".repeat(5_000));
    for response in [complete, chunked] {
        let (address, _) = responding(response.leak()).await;
        let limits = format!("client_timeout = \"200ms\"\nin_flight = 1\n{LIMITS}{}", pair.table());
        let fixture = TestGateway::before(Upstream::default(), address, &limits).await;
        for window in [0, 1, 2_000] {
            let (mut client, _connection) =
                connect_with(&fixture, &pair, Builder::new().initial_window_size(window)).await;
            let answer = client.send_request(get("/"), true).unwrap().0.await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "the place of the last response is free");
            let mut body = answer.into_body();
            let mut taken = 0;
            let end = loop {
                match tokio::time::timeout(HANG_LIMIT, body.data()).await.expect("the stream is reset") {
                    Some(Ok(part)) => taken += part.len(),
                    end => break end,
                }
            };
            assert!(end.is_some_and(|end| end.unwrap_err().is_reset()), "{window}");
            assert_eq!(taken as u32, window);
            until("released", || fixture.gateway.limits.all.snapshot().in_flight == Some(0)).await;
        }
        // A client that takes it gets all of it.
        let (mut client, _connection) = connect(&fixture, &pair).await;
        let answer = client.send_request(get("/"), true).unwrap().0.await.unwrap();
        assert_eq!(text(answer.into_body()).await.unwrap().len(), 5_000);
    }
}

/// The bodies of requests that wait are read as far as they are buffered, and fill the windows of their streams.
#[tokio::test]
async fn bodies_that_wait_hold_back_no_other_request_of_the_connection() {
    let pair = Pair::new();
    let limits = LIMITS.replace("max_wait = \"1s\"", "max_wait = \"1000h\"");
    let slow = "[keys.listed.slow]\nkey = \"slow\"\nquota = \"1/h, burst 1\"\n";
    let fixture = TestGateway::new(&format!("{limits}{slow}{}", pair.table())).await;
    let (mut client, _connection) = connect(&fixture, &pair).await;
    let post = |key: &str| Request::post("https://a/").header("x-api-key", key).body(()).unwrap();
    // It takes the only token.
    let first = client.send_request(post("slow"), true).unwrap().0.await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    let mut open = Vec::new();
    for _ in 0..40 {
        client = client.ready().await.unwrap();
        let (answer, mut body) = client.send_request(post("slow"), false).unwrap();
        body.send_data(Bytes::from(vec![0; 200_000]), false).unwrap();
        open.push((answer, body));
    }
    until("all wait", || fixture.waiting().0 == open.len()).await;
    client = client.ready().await.unwrap();
    let (answer, mut body) = client.send_request(post("other"), false).unwrap();
    body.send_data(Bytes::from_static(b"hello"), true).unwrap();
    let answer = tokio::time::timeout(HANG_LIMIT, answer).await.expect("the connection has a window for it").unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_connection_without_requests_ends() {
    let pair = Pair::new();
    let fixture = TestGateway::by_the_clock(&format!("idle_timeout = \"100ms\"\n{LIMITS}{}", pair.table())).await;
    let (mut client, connection) = connect(&fixture, &pair).await;
    assert_eq!(client.send_request(get("/"), true).unwrap().0.await.unwrap().status(), StatusCode::OK);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_shutdown_serves_open_requests_and_accepts_no_more() {
    let pair = Pair::new();
    let fixture = TestGateway::new(&format!("{LIMITS}{}", pair.table())).await;
    let (mut client, connection) = connect(&fixture, &pair).await;
    let stream = fixture.upstream.stream();
    let open = client.send_request(get("/stream"), true).unwrap().0.await.unwrap();
    let ending = tokio::spawn(fixture.gateway.shut_down());
    // The client learns that the connection ends.
    while client.clone().ready().await.is_ok() {
        tokio::time::sleep(super::fixture::MILLI).await;
    }
    stream.unbounded_send("last").unwrap();
    drop(stream);
    assert_eq!(text(open.into_body()).await.unwrap(), "last");
    assert!(ending.await.unwrap());
    drop(client);
    let _ = connection.await;
}
