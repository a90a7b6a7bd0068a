//! A tower layer over [tollgate](https://docs.rs/tollgate) limiters: requests wait in the queue, or are refused, before
//! the service sees them.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate_tower::LimitLayer;
//! use tollgate::{Limiter, Quota};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(20)).max_in_flight(50).build()?;
//! let mut service = ServiceBuilder::new()
//!     .layer(LimitLayer::new(&limiter).cost(|request: &http::Request<String>| request.body().len() as u64))
//!     .service_fn(async |_| Ok::<_, std::io::Error>(http::Response::new(String::from("hello"))));
//!
//! let response = service.ready().await?.call(http::Request::new(String::from("12345"))).await?;
//! assert_eq!(limiter.snapshot().in_flight, Some(5));
//! drop(response); // or its body comes to its end
//! assert_eq!(limiter.snapshot().in_flight, Some(0));
//! # Ok(()) }
//! ```
//!
//! # Settings
//!
//! | setting | default | or |
//! |---|---|---|
//! | a request without available tokens | waits in the queue, at most 30 seconds | [`within`](LimitLayer::within) another time, [`wait_without_limit`](LimitLayer::wait_without_limit), [`refuse`](LimitLayer::refuse) |
//! | its cost | 1 | [`cost`](LimitLayer::cost) of the request |
//! | its limiter | one for all | [`by`](LimitLayer::by) the request, `keyed` with feature `keyed`, or any [`Gate`] |
//! | its tokens are in flight, with [`max_in_flight`](tollgate::Builder::max_in_flight) | to the end of the response's body | [`release_at_head`](LimitLayer::release_at_head), any [`Hold`] |
//! | a refusal | [`LimitError`] beside the inner error | [`on_refusal`](LimitLayer::on_refusal) makes a response of it, [`grpc`](LimitLayer::grpc) a gRPC status, `respond` an HTTP response (feature `http`), [`box_errors`](LimitLayer::box_errors) |
//!
//! An axum router, which requires services that do not fail, turns refusals into responses:
//!
//! ```
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! use axum::{Router, response::IntoResponse, routing::get};
//! use tollgate::{Limiter, Quota, Refused};
//! use tollgate_tower::LimitLayer;
//! let limiter = Limiter::new(Quota::per_second(100))?;
//! let app: Router = Router::new().route("/", get(async || "hello")).layer(LimitLayer::new(&limiter).refuse().on_refusal(
//!     |refused: Refused| (http::StatusCode::TOO_MANY_REQUESTS, refused.to_string()).into_response(),
//! ));
//! # let _ = app; Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! * All clones of a layer, and of its services, share the same limiter: a server that clones a service for each
//!   connection limits all connections together.
//! * `poll_ready` is that of the inner service and takes no tokens; `call` takes them.
//! * Whatever the inner service reserved when it was ready belongs to the call, **also while the call waits in the
//!   queue**. If tower's `ConcurrencyLimit` or `Buffer` (for example tonic's `Channel`) is behind this layer, each
//!   request that only waits takes one of its slots. When no slot is left, the service is not ready, and further
//!   requests wait outside without an order. Put such layers around this one, or use
//!   [`max_in_flight`](tollgate::Builder::max_in_flight) instead. axum's `Router` and the clients of hyper and reqwest
//!   reserve nothing.
//! * A response future can be dropped at any time: the request leaves the queue, or the service, at once, and no token
//!   is lost. Servers drop the future when a client hangs up.
//! * Tokens are not refunded because a request failed: the request was made.

#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Examples compile without a warning.
#![doc(test(attr(deny(warnings))))]

mod answer;
mod body;
mod gate;
mod grpc;
mod hold;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "keyed")]
pub mod key;
#[cfg(feature = "keyed")]
mod keyed;
mod layer;
mod service;

pub use answer::{Answer, AsBoxError, AsError, AsResponse, LimitError};
pub use body::HeldBody;
pub use gate::{Admission, AnyLimiter, By, Gate, MaxWait};
pub use grpc::AsGrpc;
pub use hold::{Hold, ToBody, ToHead};
pub use layer::LimitLayer;
pub use service::{Limit, LimitFuture};
#[cfg(feature = "http")]
pub(crate) use {answer::sealed, service::take_ready};

/// The code of README and the guide.
#[cfg(all(doctest, feature = "keyed", feature = "http"))]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/clients.md")]
    struct Clients;
}
