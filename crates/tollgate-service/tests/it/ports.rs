//! A service on real ports, asked over gRPC and HTTP.

use crate::asked::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_service::bucket::Bucket;
use tollgate_service::proto::RateLimitResponse;
use tollgate_service::server::Ports;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;

const FILE: &str = "
domain: d
http:
  - {client: header X-Client}
  - {method: method, path: path}
descriptors:
  - key: client
    rate_limit: {name: per-client, unit: year, requests_per_unit: 2}
  - key: method
    value: POST
    descriptors:
      - key: path
        value: /api/*
        share_threshold: true
        rate_limit: {unit: year, requests_per_unit: 1}
";

pub struct Running {
    pub service: Arc<Service>,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub end: watch::Sender<bool>,
    pub health: Health,
    pub served: JoinHandle<()>,
}

pub async fn run(file: &str) -> Running {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let ports = Ports::bind(any, any).await.unwrap();
    let (grpc, http) = ports.addresses().unwrap();
    let service = Arc::new(service_by(file, Manner::default(), Maker::default()));
    let (end, ended) = watch::channel(false);
    let health = Health::default();
    let served = tokio::spawn(ports.serve(Arc::clone(&service), health.clone(), ended, Duration::from_secs(20)));
    Running { service, grpc, http, end, health, served }
}

pub async fn connect(grpc: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap()
}

pub async fn should_rate_limit(
    channel: Channel,
    request: Request<RateLimitRequest>,
) -> Result<RateLimitResponse, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let codec: ProstCodec<RateLimitRequest, RateLimitResponse> = ProstCodec::default();
    Ok(client.unary(request, path, codec).await?.into_inner())
}

#[tokio::test]
async fn envoy_asks_over_grpc() {
    let running = run(FILE).await;
    let channel = connect(running.grpc).await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        let response = should_rate_limit(channel.clone(), Request::new(request("d client=ann"))).await.unwrap();
        codes.push(response.overall_code);
    }
    assert_eq!(codes, [Code::Ok as i32, Code::Ok as i32, Code::OverLimit as i32]);
    for (text, message) in [(" client=ann", "domain is empty"), ("d", "no descriptors")] {
        let status = should_rate_limit(channel.clone(), Request::new(request(text))).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().contains(message), "{status}");
    }
    let many = format!("d{}", " client=ann".repeat(1_001));
    let status = should_rate_limit(channel.clone(), Request::new(request(&many))).await.unwrap_err();
    assert!(status.message().contains("1001 descriptors, the most is 1000"), "{status}");
    let long = format!("d client={}", "x".repeat(2 << 20));
    let status = should_rate_limit(channel.clone(), Request::new(request(&long))).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::OutOfRange, "{status}");
    let hostile = "d client=a\0b\n client=,client=x =x";
    assert!(should_rate_limit(channel, Request::new(request(hostile))).await.is_ok());
}

#[tokio::test]
async fn health_says_serving_until_the_service_drains() {
    let running = run(FILE).await;
    let mut client = HealthClient::new(connect(running.grpc).await);
    let mut watched = client.watch(HealthCheckRequest { service: "ratelimit".into() }).await.unwrap().into_inner();
    // The first answer may come before the service says that it serves.
    while watched.message().await.unwrap().unwrap().status != 1 {}
    assert_eq!(reqwest::get(format!("http://{}/healthcheck", running.http)).await.unwrap().status(), 200);
    running.health.drain();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
    assert_eq!(reqwest::get(format!("http://{}/healthz", running.http)).await.unwrap().status(), 503);
    drop(watched);
    drop(client);
    running.end.send(true).unwrap();
    running.served.await.unwrap();
}

/// The status and the type of an answer.
fn head(answer: &reqwest::Response) -> (u16, &str) {
    (answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap())
}

#[tokio::test]
async fn the_json_endpoint_speaks_the_mapping_of_protocol_buffers() {
    let running = run(FILE).await;
    let (client, url) = (reqwest::Client::new(), format!("http://{}/json", running.http));
    let body =
        r#"{"domain": "d", "descriptors": [{"entries": [{"key": "client", "value": "ann"}], "hitsAddend": "2"}]}"#;
    let answer = client.post(&url).body(body).send().await.unwrap();
    assert_eq!(head(&answer), (200, "application/json"));
    let json: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let limit = serde_json::json!({"name": "per-client", "requestsPerUnit": 2, "unit": "YEAR"});
    assert_eq!((&json["overallCode"], &json["statuses"][0]["currentLimit"]), (&"OK".into(), &limit));
    assert!(json["statuses"][0]["durationUntilReset"].as_str().unwrap().ends_with('s'));
    let answer = client.post(&url).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 429);
    for bad in ["", "{", r#"{"domains": "d"}"#, r#"{"domain": "d"}"#] {
        let answer = client.post(&url).body(bad).send().await.unwrap();
        assert_eq!(head(&answer), (400, "application/problem+json"));
    }
    assert_eq!(client.post(&url).body(vec![b' '; 2 << 20]).send().await.unwrap().status(), 413);
}

#[tokio::test]
async fn proxies_ask_over_http_with_header_fields() {
    let running = run(FILE).await;
    let client = reqwest::Client::new();
    let check = async |path: &str, fields: &[(&str, &str)]| {
        let request = client.get(format!("http://{}{path}", running.http));
        fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
    };
    assert_eq!(check("/check", &[]).await.status(), 200, "no descriptor");
    let first = check("/check", &[("X-Client", "ann")]).await;
    assert_eq!(first.status(), 200);
    assert_eq!(first.headers()["ratelimit-policy"], r#""per-client";q=2;w=31536000"#);
    assert!(first.headers()["ratelimit"].to_str().unwrap().starts_with(r#""per-client";r=1;t="#));
    assert_eq!(check("/check/d", &[("X-Client", "ann")]).await.status(), 200);
    let refused = check("/check", &[("X-Client", "ann")]).await;
    assert_eq!(head(&refused), (429, "application/problem+json"));
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
    for status in [401, 403, 429] {
        assert_eq!(check(&format!("/check?status={status}"), &[("X-Client", "ann")]).await.status(), status);
    }
    assert_eq!(check("/check?status=500", &[("X-Client", "ann")]).await.status(), 400);
    assert_eq!(check("/check/other", &[]).await.status(), 404);
    let posts = [("X-Forwarded-Method", "POST"), ("X-Forwarded-Uri", "/api/x?y")];
    assert_eq!(check("/check", &posts).await.status(), 200);
    assert_eq!(check("/check", &[("X-Original-Method", "POST"), ("X-Original-URI", "/api/z")]).await.status(), 429);
    assert_eq!(check("/check", &[("X-Original-Method", "GET"), ("X-Original-URI", "/api/z")]).await.status(), 200);
    let bytes = reqwest::header::HeaderValue::from_bytes(b"/api/\xff").unwrap();
    let bytes = client.get(format!("http://{}/check", running.http)).header("X-Forwarded-Uri", bytes);
    let answer = bytes.header("X-Forwarded-Method", "POST").send().await.unwrap();
    assert_eq!(answer.status(), 429, "a path that is not text has a limit too");
}

#[tokio::test]
async fn metrics_are_open_metrics_whatever_the_values_are() {
    let file = "{domain: \"d\\\"\\n\\\\\", descriptors: [{key: k, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 1}}]}";
    let running = run(file).await;
    for value in ["a", "a", "\"}\n\\ 1\n# EOF", &"x".repeat(1 << 20), "b c", "b\tc", "b\u{85}c"] {
        let mut request = request("d k=");
        request.domain = "d\"\n\\".into();
        request.descriptors[0].entries[0].value = value.into();
        running.service.decide(&request).await.unwrap();
    }
    let text = reqwest::get(format!("http://{}/metrics", running.http)).await.unwrap().text().await.unwrap();
    let sample = r#"ratelimit_service_rate_limit_total_hits{domain="d\"\n\\",key1="k_a"} 2"#;
    assert!(text.contains(sample), "{text}");
    assert!(
        text.contains(r#"tollgate_service_refused_total{domain="d\"\n\\",key1="k_a",reason="over_limit"} 1"#),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n") && text.matches("\n# EOF").count() == 1, "{text}");
    let is_sample = |line: &str| {
        line.starts_with("# ") || line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok())
    };
    assert!(text.lines().all(is_sample), "{text}");
    let alike = |end: &str| text.lines().filter(|line| line.contains("key1=\"k_b c\"") && line.contains(end)).count();
    assert_eq!((alike("total_hits{"), alike("within_limit{")), (1, 1), "what reads alike is one series");
    assert!(text.len() < 20_000, "the names of metrics have {} bytes", text.len());
}

/// Waits until as many requests wait for the value as `is_reached` says.
async fn until_waiting(running: &Running, is_reached: impl Fn(u64) -> bool) {
    let rule = Arc::clone(&running.service.rules.load().all[0]);
    let waiting = || rule.made_bucket().map_or(0, |bucket| bucket.counts().1);
    // Far longer than it takes: it only ends a hang.
    for _ in 0..12_000 {
        if is_reached(waiting()) {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("{} wait", waiting());
}

#[tokio::test]
async fn clients_that_go_away_while_they_wait_cost_no_token() {
    let file = "{domain: d, http: [{k: header X-K}], descriptors: [\
                {key: k, rate_limit: {unit: second, requests_per_unit: 3, burst: 1, wait: 10m}}]}";
    let running = run(file).await;
    let channel = connect(running.grpc).await;
    assert!(should_rate_limit(channel.clone(), Request::new(request("d k=v"))).await.is_ok());
    // A thousand streams of one connection.
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        calls.spawn(should_rate_limit(channel.clone(), Request::new(request("d k=v"))));
    }
    until_waiting(&running, |waiting| waiting > 900).await;
    calls.abort_all();
    until_waiting(&running, |waiting| waiting == 0).await;
    let client = reqwest::Client::new();
    let mut asked = JoinSet::new();
    for _ in 0..100 {
        asked.spawn(client.get(format!("http://{}/check", running.http)).header("X-K", "v").send());
    }
    until_waiting(&running, |waiting| waiting > 50).await;
    asked.abort_all();
    drop(client);
    until_waiting(&running, |waiting| waiting == 0).await;
    // A call past its deadline, as Envoy makes it, leaves too.
    let late = || {
        let mut request = Request::new(request("d k=v"));
        request.set_timeout(Duration::from_millis(50));
        request
    };
    while should_rate_limit(channel.clone(), late()).await.is_ok() {}
    until_waiting(&running, |waiting| waiting == 0).await;
    let rule = Arc::clone(&running.service.rules.load().all[0]);
    let Some(Bucket::Keys(limiter)) = rule.made_bucket() else { panic!("a bucket of values") };
    assert_eq!(limiter.deficiency(b"v".as_slice()), 0);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A proxy whose time-out is short gives up hundreds of requests at once, while others wait on the same connection.
#[tokio::test]
async fn a_connection_outlives_many_requests_that_are_given_up_before_they_are_read() {
    let [headers, rst_stream, settings, ping, goaway] = [1, 3, 4, 6, 7];
    let running = run(FILE).await;
    // POST http /
    let request = |stream| frame(headers, 4, stream, &[0x83, 0x86, 0x84]);
    let cancel = |stream| frame(rst_stream, 0, stream, &8_u32.to_be_bytes());
    let given_up = (0..1_000).flat_map(|number| [request(2 * number + 1), cancel(2 * number + 1)].concat());
    let mut sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &*frame(settings, 0, 0, &[])].concat();
    sent.extend(given_up.chain(frame(ping, 0, 0, &[0; 8])));
    let mut connection = TcpStream::connect(running.grpc).await.unwrap();
    connection.write_all(&sent).await.unwrap();
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.unwrap();
        let [_, high, low, kind, flags, ..] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        connection.read_exact(&mut payload).await.unwrap();
        assert_ne!(kind, goaway, "{}", String::from_utf8_lossy(&payload));
        if (kind, flags) == (ping, 1) {
            return;
        }
    }
}
