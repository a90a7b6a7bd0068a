//! An async **waiting** rate limiter for tokio: one fair line in front of a shared token bucket.
//!
//! A request names a cost in tokens; [`Limiter::consume`] stands in line until they are there. The line is strictly
//! first come, first served, a request that gives up costs nobody anything, and never do more tokens pass than
//! `burst + rate x window`, in any window, whatever happens.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Limiter, Quota};
//!
//! let limiter = Limiter::new(Quota::per_second(100).burst(20))?; // 100 tokens each second, 20 at once
//! for _ in 0..30 {
//!     let _grant = limiter.consume(1).await?; // the first 20 at once, then one each 10 ms
//!     // ... the work ...
//! }
//! # Ok(()) }
//! ```
//!
//! Nothing has to be started: the first caller that must wait spawns the one background task, which sleeps while nobody
//! waits and ends with the limiter. A grant without waiting is one atomic operation in a hot loop.
//!
//! # Five minutes
//!
//! **Waiting or not.** [`consume`](Limiter::consume) waits; add [`.within(duration)`](Consume::within) to refuse at once
//! when the line is longer than that. [`try_acquire`](Limiter::try_acquire) never waits and never overtakes; its refusal
//! says when to [come back](Denied::retry_after), what [remains](Denied::remaining), and [who](Denied::by) refused.
//! [`consume_owned`](Limiter::consume_owned) is for spawned tasks, [`blocking_consume`](Limiter::blocking_consume) for
//! threads.
//!
//! **Several limits at once.** A grant fits all quotas, or takes from none:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tollgate::{Limiter, Quota};
//!
//! let limiter = Limiter::builder()
//!     .quota(Quota::per_second(10).burst(20))
//!     .quota_named("minute", Quota::new(200, Duration::from_secs(60)).stepped()) // all 200 at each full minute
//!     .max_in_flight(50)   // at most 50 tokens granted and not yet released
//!     .max_waiting(10_000) // longest line before callers are turned away
//!     .build()?;
//! # let _ = limiter; Ok(()) }
//! ```
//!
//! **In flight.** With [`max_in_flight`](Builder::max_in_flight), a [`Grant`] holds its tokens until it is dropped: keep
//! it for as long as the work lasts. A slow server then gets no more than it can hold, and the rate is still kept:
//! what is minted while the cap holds the line back is saved up to the burst.
//!
//! **The real cost, known afterwards.** [`grant.settle(actual)`](Grant::settle) refunds or charges the difference.
//!
//! **Units that differ.** [`join`] holds one place in several limiters at once: requests per minute and tokens per
//! minute, all or nothing.
//!
//! **At run time.** [`set_quota`](Limiter::set_quota), [`set_max_in_flight`](Limiter::set_max_in_flight),
//! [`pause_for`](Limiter::pause_for) and [`close`](Limiter::close) take effect at once, also for those in line.
//! [`snapshot`](Limiter::snapshot) shows everything there is to see.
//!
//! **Where the traffic flows.** Features `stream`, `io` and `tower` put a limiter before the items of a stream or sink, the
//! bytes of a connection, the requests of a service: `stream.pace(&limiter)`, `socket.pace_bytes(&limiter)`,
//! `LimitLayer::new(&limiter)`. Feature `http` makes responses of what the last one refuses, and a client heed them.
//! Features `metrics` and `tracing` tell of what it does, and never of a grant without waiting.
//!
//! **Tests.** Time is tokio's, so tests under `#[tokio::test(start_paused = true)]` just work, with exact instants.
//! Without a runtime, give the builder a [`ManualClock`].
//!
//! **Without waiting, tasks or tokio.** [`Bucket`] is the primitive underneath, for dispatch loops of your own.
//!
//! # What is promised
//!
//! * **Never too much.** Over every window, for every quota, tokens granted <= burst + rate x window, counted at the
//!   instants the schedule grants. A timer that is late by `d` delivers what fell due meanwhile together, so an observer
//!   sees at most burst + rate x (window + d); [`Snapshot::lateness`] tells `d`. tokio's timers are about 1 ms late.
//!   A claim that costs more than the burst passes whole, once minting has caught up with it.
//! * **Nothing is lost.** Whoever waits is served in the order of arrival, at the instant the schedule says, whatever the
//!   others do: give up at any moment, hang, panic, or take their runtime with them.
//! * **Exact.** Whole tokens and nanoseconds in integers; the fraction of a token is carried, for years.
//!
//! The design and its proofs are in `DESIGN.md`.
//!
//! # When to use something else
//!
//! * To cap concurrency alone: `tokio::sync::Semaphore`.
//! * For one limit that holds though nobody can be trusted with a lease: ask Redis on each call (`throttled` Lua scripts,
//!   redis-cell).
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `keyed` | `KeyedLimiter`: a quota and a line per user, address or API key, in bounded memory |
//! | `fine-timer` | [`Builder::fine_timer`], waiters served 0.05 to 0.25 ms late instead of 1 ms, on Linux |
//! | `redis` | `Builder::shared`, `RedisLine`: one quota for many machines, kept in Redis or Valkey; with `keyed`, one per key |
//! | `serde` | [`Quota`] and [`Snapshot`] in configuration and report formats |
//! | `quanta` | `QuantaClock`, the processor's time stamp counter |
//! | `stream` | `stream`: paced `Stream`s and `Sink`s of the futures crates, a cost per item |
//! | `io` | `io`: paced bytes, tokio's `AsyncRead` and `AsyncWrite`, many connections on one limiter |
//! | `http` | `http`: refusals as responses with `Retry-After` and `RateLimit` fields, and a client that heeds them |
//! | `tower` | `tower`: `LimitLayer`, for axum, tonic, hyper and reqwest, in flight to the end of the body |
//! | `metrics` | `metrics`: what a limiter does, for Prometheus and whatever else the metrics facade has recorders for |
//! | `tracing` | a span for each wait, an event for each refusal; see below |
//!
//! # In traces
//!
//! With the feature `tracing`, each wait is a span named `wait` (target `tollgate`, level `INFO`), a child of the span that
//! is entered when the claim is first polled, from the line to the grant, the refusal or the drop. Its fields: `cost`;
//! `ahead`, how many callers stood in front; `estimate`, how long the schedule said it would take, where that can be told
//! without a step per waiter; and at the end `outcome`: `granted`, `left`, or why it was refused. A refusal, also of
//! [`try_acquire`](Limiter::try_acquire), is an event (level `DEBUG`) with `cost`, `by` and `retry_after`.
//!
//! A grant without waiting tells nobody, and costs nothing. Subscribers run outside of all locks; they may call the limiter,
//! and where one panics the panic hook reports it and everybody keeps their place. A wait that is told of allocates once;
//! with this feature or `metrics`, the waiting future has 96 bytes instead of 88.

#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]

mod alarm;
mod blocking;
mod bucket;
mod builder;
mod clock;
mod consume;
mod denial;
mod drivers;
mod error;
mod fine;
mod grant;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "io")]
pub mod io;
mod join;
#[cfg(feature = "keyed")]
mod keyed;
mod knot;
#[cfg(feature = "redis")]
pub mod lease;
mod limiter;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(any(feature = "stream", feature = "io"))]
mod pacer;
mod queue;
mod quota;
#[cfg(feature = "redis")]
mod redis;
mod replenisher;
mod rovers;
mod schedule;
mod shared;
mod snapshot;
mod state;
#[cfg(feature = "stream")]
pub mod stream;
mod stride;
mod supply;
mod sync;
#[cfg(feature = "tower")]
pub mod tower;
mod vigil;
mod wakes;
mod which;

#[cfg(feature = "quanta")]
pub use clock::QuantaClock;
#[cfg(feature = "keyed")]
pub use keyed::{
    KeyedBuilder, KeyedConsume, KeyedConsumeOwned, KeyedEntries, KeyedEntry, KeyedGrant, KeyedLimiter,
    KeyedReplenisher, KeyedSnapshot, KeyedWithin, KeyedWithinOwned, OwnedKeyedGrant,
};
#[cfg(all(feature = "keyed", feature = "redis"))]
pub use keyed::{SharedKeyedBuilder, SharedKeyedConsume, SharedKeyedGrant, SharedKeyedLimiter, SharedKeyedSnapshot};
#[cfg(feature = "redis")]
pub use redis::RedisLine;
pub use {
    bucket::{Bucket, Capped, CappedBucket, Ticket, Uncapped},
    builder::Builder,
    clock::{Clock, ManualClock},
    consume::{Consume, ConsumeOwned, Within, WithinOwned},
    error::{Bound, ConfigError, ConsumeError, Denied, ReleaseError, TryAcquireError},
    grant::{Grant, OwnedGrant},
    join::{Join, JoinError, TryJoinError, join, try_join},
    limiter::Limiter,
    quota::{ParseQuotaError, Quota},
    replenisher::Replenisher,
    snapshot::{QuotaSnapshot, Snapshot},
    which::Which,
};
