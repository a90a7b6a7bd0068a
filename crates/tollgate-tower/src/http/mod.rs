//! HTTP: refusals as responses that say when to retry, and a client that follows them. Feature `http`.
//!
//! # The server side
//!
//! ```
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! use axum::{Router, routing::get};
//! use tollgate_tower::LimitLayer;
//! use tollgate::{Limiter, Quota};
//!
//! let limiter = Limiter::builder().quota_named("burst", Quota::per_minute(100)).build()?;
//! let app: Router = Router::new()
//!     .route("/", get(async || "hello"))
//!     .layer(LimitLayer::new(&limiter).refuse().respond());
//! # let _ = app; Ok(()) }
//! ```
//!
//! A request above the limit is answered with
//!
//! ```http
//! HTTP/1.1 429 Too Many Requests
//! content-type: text/plain; charset=utf-8
//! retry-after: 1
//! ratelimit-policy: "burst";q=100;w=60
//! ratelimit: "burst";r=0;t=1
//!
//! Quota Exceeded: retry after 1 s
//! ```
//!
//! | setting | default | or |
//! |---|---|---|
//! | fields | those of [`Format::Draft11`] | [`format`](HttpLimitLayer::format), [`formats`](HttpLimitLayer::formats) |
//! | written | in refusals | [`on_every_response`](HttpLimitLayer::on_every_response) |
//! | the body of a refusal | a line of text | [`problem_json`](HttpLimitLayer::problem_json) |
//! | `Retry-After` when the time is unknown | none | [`or_retry_after`](HttpLimitLayer::or_retry_after) |
//! | the name of a quota that has none | `default` | [`name`](HttpLimitLayer::name) |
//! | the unit of a token | a request | [`unit`](HttpLimitLayer::unit) |
//! | the in-flight cap | not written | [`tell_in_flight`](HttpLimitLayer::tell_in_flight) |
//! | the owner of the quota | not written | [`partition_key`](HttpLimitLayer::partition_key) |
//!
//! Set everything that a [`LimitLayer`](crate::LimitLayer) offers before `respond`: [waiting
//! `within`](crate::LimitLayer::within) a time, costs, a limiter [per request](crate::LimitLayer::by) or
//! per key (`LimitLayer::keyed`, feature `keyed`), the hold. [`Refusal`] documents which refusal has which status.
//!
//! Without tower, use [`RateLimits`] of a snapshot or a key, and [`Refusal`] of an error:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate_tower::http::{Format, RateLimits, Refusal, Terms};
//! use tollgate::{Limiter, Quota};
//! let limiter = Limiter::new(Quota::per_hour(60).burst(1))?;
//! let _grant = limiter.try_acquire(1)?;
//! if let Err(refused) = limiter.try_acquire(1) {
//!     let limits = RateLimits::of(&limiter.snapshot(), &Terms::default());
//!     let refusal = Refusal::new(refused, &limits);
//!     let mut response = refusal.response(true);
//!     limits.write(Format::Draft11, response.headers_mut());
//!     assert_eq!(response.headers()["retry-after"], "60");
//!     assert_eq!(response.headers()["ratelimit"], r#""default";r=0;t=60"#);
//! }
//! # Ok(()) }
//! ```
//!
//! # The client side
//!
//! [`HeedLayer`] reads `Retry-After` and the same fields from responses, and pauses and corrects the client's own
//! limiter. [`Heed`] has the settings, and does the same for clients without tower. It also reads the fields of OpenAI
//! and Anthropic, with a limiter for each resource, and those of GitHub, GitLab, Docker Hub, Discord, Okta and many others;
//! [`ResourceLimits`] lists them, and returns what they say.
//!
//! For a server that says nothing, [`LimitLayer::adaptive`](crate::LimitLayer::adaptive) learns the rate from the
//! responses with status 429 and 503.
//!
//! # What the numbers mean
//!
//! * `q` and `w` are a quota's amount and period as configured; their ratio is the rate. If the burst differs from
//!   `q`, it is written beside them as `tollgate-burst`.
//! * `r` is the number of whole tokens that a new caller could take from that quota now, behind everything that is
//!   claimed.
//! * `t` is the number of seconds, rounded up, until one more token is available: until then no client can use more
//!   than `r`. It is not the time until the bucket is full, which for a bucket says little and would make clients wait
//!   far too long.

mod adaptive;
mod advice;
mod backoff;
mod body;
mod fields;
mod format;
mod heed;
mod heed_layer;
mod heed_target;
mod items;
mod layer;
mod limits;
mod quotas;
mod refusal;
mod resources;
mod structured;
mod times;
mod unit;
mod view;
mod x_rate_limit;

pub use adaptive::{AdaptiveAdmission, AdaptiveGate, ReportStatus, Unreported};
pub use advice::Advice;
pub use body::LimitBody;
pub use format::Format;
pub use heed::Heed;
pub use heed_layer::{HeedFuture, HeedLayer, Heeded, Heeding};
#[cfg(feature = "keyed")]
pub use heed_target::HeedKey;
pub use heed_target::HeedTarget;
pub use items::{QuotaPolicy, ServiceLimit};
pub use layer::{AsHttp, HttpLimit, HttpLimitLayer};
pub use limits::{RateLimits, Terms};
pub use refusal::{ProblemType, Refusal};
pub use resources::{ResourceLimit, ResourceLimits};
pub use unit::Unit;
#[cfg(feature = "keyed")]
pub use view::KeyView;
pub use view::{Advertise, PartitionView, Partitioned, View};
