//! The layer on the client's side, and under tonic: hyper, reqwest, gRPC.

use super::*;

use axum::body::Bytes;
use axum::{Router, routing::get};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate_tower::LimitLayer;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::health_reporter;
use tower::{Service, ServiceBuilder, ServiceExt};

/// Three requests' worth, one of them in flight.
fn three() -> Limiter {
    built(Limiter::builder().quota(Quota::manual(3)).max_in_flight(1)).0
}

async fn hello() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/", get(async || "hello"));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}/")
}

#[tokio::test]
async fn hyper_s_client_is_limited_to_the_end_of_the_body() {
    let (limiter, url) = (three(), hello().await);
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut client = ServiceBuilder::new().layer(LimitLayer::new(&limiter).refuse()).service(client);
    let request = || Request::get(&url).body(Empty::new()).unwrap();
    for left in [2, 1, 0] {
        let response = client.ready().await.unwrap().call(request()).await.unwrap();
        assert_eq!(limiter.snapshot().in_flight, Some(1));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        assert_eq!((limiter.snapshot().in_flight, limiter.available()), (Some(0), left.min(1)));
    }
    assert!(client.ready().await.unwrap().call(request()).await.is_err());
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

#[tokio::test]
async fn grpc_is_limited_on_either_side() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::manual(2)).max_in_flight(1));
    let (_, service) = health_reporter();
    let layer = LimitLayer::new(&limiter)
        .refuse()
        .on_refusal(|refused| tonic::Status::resource_exhausted(refused.to_string()).into_http::<tonic::body::Body>());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().layer(layer).add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));

    let channel = tonic::transport::Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel.clone());
    let check = || HealthCheckRequest { service: String::new() };
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
