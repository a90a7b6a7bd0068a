//! A tower layer: requests stand in the line, or are refused, before the service sees them. Feature `tower`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::tower::LimitLayer;
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
//! # Choices
//!
//! | what | default | or |
//! |---|---|---|
//! | a request whose tokens are not there | waits in line | [`within`](LimitLayer::within) a time, [`refuse`](LimitLayer::refuse) |
//! | its cost | 1 | [`cost`](LimitLayer::cost) of the request |
//! | its limiter | the one | [`by`](LimitLayer::by) the request, `keyed` with feature `keyed`, `distributed_keyed` with `redis` too, or any [`Gate`] |
//! | its tokens are in flight, with [`max_in_flight`](crate::Builder::max_in_flight) | to the end of the response's body | [`release_at_head`](LimitLayer::release_at_head), any [`Hold`] |
//! | a refusal | [`LimitError`] beside the inner error | [`on_refusal`](LimitLayer::on_refusal) makes a response of it, `respond` an HTTP response (feature `http`), [`box_errors`](LimitLayer::box_errors) |
//!
//! An axum router, whose services do not fail, makes responses of refusals:
//!
//! ```
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! use axum::{Router, response::IntoResponse, routing::get};
//! use tollgate::tower::{LimitLayer, Refused};
//! use tollgate::{Limiter, Quota};
//! let limiter = Limiter::new(Quota::per_second(100))?;
//! let app: Router = Router::new().route("/", get(async || "hello")).layer(LimitLayer::new(&limiter).refuse().on_refusal(
//!     |refused: Refused| (http::StatusCode::TOO_MANY_REQUESTS, refused.to_string()).into_response(),
//! ));
//! # let _ = app; Ok(()) }
//! ```
//!
//! # What holds
//!
//! * All clones of a layer, and of its services, stand before the same limiter: a server that clones a service for each
//!   connection limits them together.
//! * `poll_ready` is the inner service's and takes nothing; `call` does.
//! * What the inner service reserved when it was ready goes with the call, **also while that waits in line**. Behind this
//!   layer, tower's `ConcurrencyLimit` or `Buffer` (tonic's `Channel` is one) have a slot taken by each request that only
//!   waits, and when none is left, nobody is ready: requests then wait outside, in no line. Put such layers around this
//!   one, or use [`max_in_flight`](crate::Builder::max_in_flight) instead. `Router`s of axum and clients of hyper and
//!   reqwest reserve nothing.
//! * A response future can be dropped at any time: the request leaves the line, or the service, at once, and no token
//!   is lost. That is what servers do when a client hangs up.
//! * What was granted is never given back because a request failed: it was made.

mod answer;
mod body;
#[cfg(all(feature = "keyed", feature = "redis"))]
mod distributed_keyed;
mod gate;
mod hold;
#[cfg(feature = "keyed")]
mod keyed;
mod layer;
mod service;

pub use answer::{Answer, AsBoxError, AsError, AsResponse, LimitError, Refused};
pub use body::HeldBody;
#[cfg(all(feature = "keyed", feature = "redis"))]
pub use distributed_keyed::{DistributedKeyed, DistributedKeyedAdmission};
pub use gate::{Admission, Chosen, Gate, Patience, Priced};
pub use hold::{Hold, ToBody, ToHead};
#[cfg(feature = "keyed")]
pub use keyed::{Keyed, KeyedAdmission};
pub use layer::LimitLayer;
pub use service::{Limit, LimitFuture};
#[cfg(feature = "http")]
pub(crate) use {answer::sealed, service::take_ready};
