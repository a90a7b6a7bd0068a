//! A program that names each public type of this crate compiles without a warning. It is a test crate of its own, so that
//! `deny(warnings)` applies to this program only.

#![deny(warnings, clippy::all)]
#![cfg(all(feature = "keyed", feature = "http", feature = "axum"))]

#[path = "../../../tests/public_types/mod.rs"]
mod public_types;

use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::hash::RandomState;
use std::time::Duration;
use tollgate::{Adaptive, Denied, KeyedLimiter, Limiter, OwnedGrant, Quota, Refused, TryAcquireError};
use tollgate_tower::http::{
    AdaptiveAdmission, AdaptiveGate, Advertise, Advice, AsHttp, Format, Heed, HeedFuture, HeedKey, HeedLayer,
    HeedTarget, Heeded, Heeding, HttpLimit, HttpLimitLayer, KeyView, LimitBody, PartitionView, Partitioned,
    ProblemType, QuotaPolicy, RateLimits, Refusal, ReportStatus, ResourceLimit, ResourceLimits, ServiceLimit, Terms,
    Unit, Unreported, View,
};
use tollgate_tower::key::{self, ClientAddress, FieldName, Ipv6Prefix, NoTrustedProxies, PrefixTooLong};
use tollgate_tower::{
    Admission, Answer, AnyLimiter, AsBoxError, AsError, AsGrpc, AsResponse, By, Gate, HeldBody, Hold, Limit,
    LimitError, LimitFuture, LimitLayer, MaxWait, ToBody, ToHead,
};
use tower::{Layer, Service, ServiceExt, service_fn};

type Body = Full<axum::body::Bytes>;
type Call = Request<String>;

async fn hello(_: Call) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::from("hello")))
}

fn limiter() -> Limiter {
    Limiter::new(Quota::per_hour(100)).unwrap()
}

/// A gate of the program's own: two tokens for each request.
#[derive(Clone)]
struct Twice(Limiter);

impl<Request> Gate<Request> for Twice {
    type Pass = OwnedGrant;
    type Admission = Admission;

    fn admit(&self, _: &Request, max_wait: MaxWait) -> Admission {
        Admission::new(self.0.clone(), 2, max_wait)
    }
}

impl<Request> Advertise<Request> for Twice {
    type View = Half;

    fn admit_in_view(&self, request: &Request, max_wait: MaxWait) -> (Admission, Half) {
        (self.admit(request, max_wait), Half(self.0.clone()))
    }
}

/// The limits in requests.
struct Half(Limiter);

impl View for Half {
    fn look(&self, terms: &Terms) -> RateLimits {
        let mut limits = RateLimits::of(&self.0.snapshot(), terms);
        limits.limits.iter_mut().for_each(|limit| limit.available /= 2);
        limits
    }
}

/// Keeps the grant beside the response.
#[derive(Clone, Copy)]
struct Beside;

impl<Response, Pass> Hold<Response, Pass> for Beside {
    type Response = (Response, Option<Pass>);

    fn hold(&self, response: Response, pass: Option<Pass>) -> Self::Response {
        (response, pass)
    }
}

/// The name of how a layer answers.
fn answer<A: Answer<Response<Body>, Infallible>>(_: &LimitLayer<Limiter, ToBody, A>) -> &'static str {
    std::any::type_name::<A>()
}

#[tokio::test]
async fn the_layer_and_its_settings() {
    let limiter = limiter();
    let plain: LimitLayer<Limiter, ToBody, AsError> = LimitLayer::new(&limiter).within(Duration::from_secs(1));
    assert!(answer(&plain).ends_with("AsError"));
    let _: LimitLayer<Limiter, ToHead, AsBoxError> = LimitLayer::new(&limiter).release_at_head().box_errors();
    let _: LimitLayer<Limiter, ToBody, AsGrpc> = LimitLayer::new(&limiter).grpc();
    let _: LimitLayer<Limiter, ToBody, AsResponse<_>> = LimitLayer::new(&limiter).on_refusal(|_| StatusCode::OK);
    let _: LimitLayer<By<Limiter, _>> = LimitLayer::new(&limiter).cost(|call: &Call| call.body().len() as u64);
    let choose = limiter.clone();
    let _: LimitLayer<By<AnyLimiter, _>> = LimitLayer::by(move |_: &Call| (choose.clone(), 1));

    let mut service: Limit<_> = plain.layer(service_fn(hello));
    let future: LimitFuture<Call, _, _, _, _> = service.ready().await.unwrap().call(Call::default());
    let response: Result<Response<HeldBody<Body, OwnedGrant>>, LimitError<Infallible>> = future.await;
    assert_eq!(response.unwrap().into_body().collect().await.unwrap().to_bytes(), "hello");

    let twice = LimitLayer::through(Twice(limiter.clone())).hold(Beside).layer(service_fn(hello));
    let (_response, pass) = twice.oneshot(Call::default()).await.unwrap();
    assert_eq!((pass.unwrap().cost(), limiter.available()), (2, 97));
}

#[tokio::test]
async fn responses_with_the_limits() {
    let limiter = limiter();
    let layer: HttpLimitLayer = LimitLayer::new(&limiter).refuse().respond().problem_json();
    let service: HttpLimit<_> = layer.layer(service_fn(hello));
    limiter.close();
    let response: Response<HeldBody<LimitBody<Body>, _>> = service.oneshot(Call::default()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);

    type Answered = <HttpLimit<fn(Call) -> Call> as Named>::Answer;
    assert!(std::any::type_name::<Answered>().contains("AsHttp"));
    let partitioned: HttpLimitLayer<Partitioned<Twice, _>> =
        LimitLayer::through(Twice(limiter)).respond().partition_key(|_: &Call| b"ann".to_vec());
    assert!(std::any::type_name_of_val(&partitioned).contains("Partitioned"));
    let views = [std::any::type_name::<PartitionView<Half>>(), std::any::type_name::<KeyView<u8, RandomState>>()];
    assert!(views[0].contains("PartitionView") && views[1].contains("KeyView"));
}

/// The answer of a service that responds.
trait Named {
    type Answer;
}

impl<S> Named for HttpLimit<S> {
    type Answer = AsHttp<Limiter>;
}

#[test]
fn limits_without_a_layer() {
    let limiter = Limiter::new(Quota::per_hour(1)).unwrap();
    let terms = Terms::default().name("api").unit(Unit::Requests);
    let Ok(_grant) = limiter.try_acquire(1) else { panic!("a new limiter") };
    let limits = RateLimits::of(&limiter.snapshot(), &terms);
    let (policy, limit): (&QuotaPolicy, &ServiceLimit) = (&limits.policies[0], &limits.limits[0]);
    assert_eq!((policy.quota, limit.available), (1, 0));
    let Err(TryAcquireError::Denied(denied)) = limiter.try_acquire(1) else { panic!("an hour has passed") };
    let denied: Denied = denied;
    let refusal = Refusal::new(Refused::from(denied), &limits);
    assert_eq!(refusal.problem, Some(ProblemType::QuotaExceeded));
    let mut headers = HeaderMap::new();
    limits.write(Format::Draft11, &mut headers);
    let advice: Advice = Heed::default().heed(&limiter, StatusCode::OK, &headers);
    assert_eq!(advice.available, Some(0));
}

/// A choice of limiter of the program's own.
#[derive(Clone)]
struct Always(Limiter);

impl<Request> Heeding<Request> for Always {
    type Target = Limiter;

    fn limiter(&self, _: &Request) -> Limiter {
        self.0.clone()
    }
}

/// A layer that follows the server for each host.
fn of_hosts(
    hosts: &KeyedLimiter<&'static str>,
) -> HeedLayer<impl Heeding<Call, Target = HeedKey<&'static str>> + Clone> {
    HeedLayer::keyed(hosts, |_: &Call| "a.example")
}

fn is_target<T: HeedTarget>(_: &T) -> bool {
    true
}

#[tokio::test]
async fn a_client_that_heeds() {
    let limiter = limiter();
    assert_eq!(Heeding::<Call>::limiter(&Always(limiter.clone()), &Call::default()).available(), 100);
    let choose = limiter.clone();
    let layer: HeedLayer<By<AnyLimiter, _>> = HeedLayer::by(move |_: &Call| choose.clone());
    let mut client: Heeded<_, _> = layer.layer(service_fn(hello));
    let future: HeedFuture<_> = client.ready().await.unwrap().call(Call::default());
    assert_eq!(future.await.unwrap().status(), StatusCode::OK);
    assert!(is_target(&limiter));
    let hosts = KeyedLimiter::new(Quota::per_second(100)).unwrap();
    let client = of_hosts(&hosts).layer(service_fn(hello));
    assert_eq!(client.oneshot(Call::default()).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_learns() {
    let api = Adaptive::between("1/s", "5000/s").build().unwrap();
    let layer: LimitLayer<AdaptiveGate, ReportStatus> = LimitLayer::adaptive(&api).refuse();
    let response: Response<Body> = layer.layer(service_fn(hello)).oneshot(Call::default()).await.unwrap();
    assert_eq!((response.status(), api.snapshot().accepted), (StatusCode::OK, 1));
    let gate = LimitLayer::through(AdaptiveGate::new(&api)).wait_without_limit().hold(Beside).layer(service_fn(hello));
    let (_, pass): (_, Option<Unreported>) = gate.oneshot(Call::default()).await.unwrap();
    pass.unwrap().into_grant().succeeded();
    assert_eq!(api.snapshot().accepted, 2);
    assert!(std::any::type_name::<AdaptiveAdmission>().contains("AdaptiveAdmission"));
}

#[test]
fn what_a_response_says_of_resources() {
    let mut headers = HeaderMap::new();
    headers.insert("x-ratelimit-limit-tokens", header::HeaderValue::from_static("5"));
    let read: ResourceLimits = ResourceLimits::read(&headers);
    let tokens: Option<&ResourceLimit> = read.get("tokens");
    assert_eq!(tokens.unwrap().limit, Some(5));
}

#[test]
fn ready_made_keys() {
    let by_address: KeyedLimiter<Option<ClientAddress>> = KeyedLimiter::new(Quota::per_second(5)).unwrap();
    let layer = LimitLayer::keyed(&by_address, key::forwarded_for::<String>(1).unwrap());
    assert!(std::any::type_name_of_val(&layer).contains("By"));
    let mut call = Call::default();
    call.headers_mut().insert("x-forwarded-for", header::HeaderValue::from_static("2001:db8::7"));
    assert_eq!(key::forwarded_for(1).unwrap()(&call).0.unwrap().to_string(), "2001:db8::/64");
    let refused: Option<NoTrustedProxies> = key::forwarded_for::<String>(0).err();
    assert_eq!(refused, Some(NoTrustedProxies));
    let refused: Option<PrefixTooLong> = Ipv6Prefix::new(129).err();
    assert_eq!(refused, Some(PrefixTooLong { bits: 129 }));
    assert_eq!(key::header(header::AUTHORIZATION)(&call), (None, 1));
    assert_eq!(key::header("authorization")(&call), (None, 1));
    assert_eq!(FieldName::into_name("Authorization"), header::AUTHORIZATION);
    assert_eq!(key::extension(|found| found.get::<u8>().copied())(&call), (None, 1));
    let peer = axum::extract::ConnectInfo::<std::net::SocketAddr>("[2001:db8::9]:80".parse().unwrap());
    call.extensions_mut().insert(peer);
    assert_eq!(key::peer_address()(&call).0.to_string(), "2001:db8::/64");
    assert_eq!(Ipv6Prefix::new(32).unwrap().peer_address()(&call).0.to_string(), "2001:db8::/32");
}

#[test]
fn each_public_type_is_named_here() {
    let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let unnamed = public_types::unnamed(&src, &[include_str!("types.rs")]);
    assert!(unnamed.is_empty(), "this program does not name {unnamed:?}");
}
