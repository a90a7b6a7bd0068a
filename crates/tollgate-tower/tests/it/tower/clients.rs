//! The layer in clients, and under tonic: reqwest, gRPC.

use super::*;

use tokio::net::TcpListener;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::health_reporter;

/// Tokens for three requests, one of them in flight.
fn three() -> Limiter {
    built(Limiter::builder().quota(Quota::manual(3)).max_in_flight(1)).0
}

async fn hello() -> String {
    format!("http://{}/", crate::serve(Router::new().route("/", get(async || "hello"))).await)
}

#[tokio::test]
async fn reqwest_s_client_is_limited_to_the_head_or_the_body() {
    let (limiter, url) = (three(), hello().await);
    let request = || reqwest::Request::new(reqwest::Method::GET, url.parse().unwrap());
    let layer = LimitLayer::new(&limiter).refuse();
    let mut client = ServiceBuilder::new().layer(layer.clone().release_at_head()).service(reqwest::Client::new());
    let response = client.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!((limiter.snapshot().in_flight, response.text().await.unwrap().as_str()), (Some(0), "hello"));

    let inner = reqwest::Client::new().map_response(Response::<reqwest::Body>::from);
    let mut client = ServiceBuilder::new().layer(layer).service(inner);
    let response = client.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!(limiter.snapshot().in_flight, Some(1));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    assert_eq!((limiter.snapshot().in_flight, paid(&limiter)), (Some(0), 2));
}

/// A channel to a health service with this layer.
macro_rules! serve_health {
    ($layer:expr) => {{
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder().layer($layer).add_service(health_reporter().1);
        tokio::spawn(server.serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener)));
        tonic::transport::Endpoint::new(format!("http://{address}")).unwrap().connect_lazy()
    }};
}

fn check() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

/// A refusal, as a gRPC client sees it.
fn assert_exhausted_for_100_ms(status: &tonic::Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().starts_with("denied by quota `per 100 %`"), "{status:?}");
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "100");
    // google.rpc.Status { details: [RetryInfo { retry_delay: 100,000,000 ns }] }
    let delay = [0x12, 7, 0x0a, 5, 0x10, 0x80, 0xc2, 0xd7, 0x2f];
    assert!(status.details().ends_with(&delay), "{:x?}", status.details());
}

#[tokio::test]
async fn grpc_clients_get_the_time_of_the_retry() {
    let (limiter, clock) = built(Limiter::builder().quota_named("per 100 %", Quota::per_second(10).burst(1)));
    let mut client = HealthClient::new(serve_health!(LimitLayer::new(&limiter).refuse().grpc()));
    client.check(check()).await.unwrap();
    assert_exhausted_for_100_ms(&client.check(check()).await.unwrap_err());
    #[cfg(feature = "http")]
    {
        clock.advance(100 * MILLI);
        // A text body would be parsed as a message: "Internal: invalid compression flag".
        let mut client = HealthClient::new(serve_health!(LimitLayer::new(&limiter).refuse().respond()));
        client.check(check()).await.unwrap();
        let status = client.check(check()).await.unwrap_err();
        assert_exhausted_for_100_ms(&status);
        assert_eq!(status.metadata().get("ratelimit").unwrap(), r#""per 100 %";r=0;t=1"#);
    }
    limiter.close();
    let status = client.check(check()).await.unwrap_err();
    assert_eq!((status.code(), status.metadata().get("grpc-retry-pushback-ms")), (Code::Unavailable, None));
}

#[tokio::test]
async fn a_grpc_call_that_can_never_be_granted_is_not_to_be_tried_again() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(10)));
    let inner = tower::service_fn(async |_: Request<()>| Ok::<_, std::io::Error>(Response::new(String::new())));
    let layer = LimitLayer::new(&limiter).cost(|_: &Request<()>| 11).refuse().grpc();
    let response = ServiceBuilder::new().layer(layer).service(inner).oneshot(Request::new(())).await.unwrap();
    let headers = response.headers();
    let observed =
        ["grpc-status", "grpc-retry-pushback-ms", "content-type"].map(|name| headers[name].to_str().unwrap());
    assert_eq!((response.status().as_u16(), observed), (200, ["8", "-1", "application/grpc"]));
    assert!(!headers.contains_key("grpc-status-details-bin"));
}

#[tokio::test]
async fn grpc_is_limited_on_either_side() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::manual(2)).max_in_flight(1));
    let channel = serve_health!(LimitLayer::new(&limiter).refuse().grpc());
    let mut client = HealthClient::new(channel.clone());
    for _ in 0..2 {
        client.check(check()).await.unwrap();
        assert_eq!(limiter.snapshot().in_flight, Some(0));
    }
    assert_eq!(client.check(check()).await.unwrap_err().code(), Code::ResourceExhausted);

    limiter.replenish(2);
    let (own, _clock) = built(Limiter::builder().quota(Quota::manual(1)).max_in_flight(1));
    let mut client = HealthClient::new(ServiceBuilder::new().layer(LimitLayer::new(&own).refuse()).service(channel));
    client.check(check()).await.unwrap();
    assert_eq!((own.snapshot().in_flight, paid(&own)), (Some(0), 1));
    assert!(client.check(check()).await.is_err());
    assert_eq!(paid(&limiter), 3);
}
