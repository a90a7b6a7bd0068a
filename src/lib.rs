//! Fair, async token-bucket rate limiting for tokio: callers wait in FIFO order and no quota is ever exceeded.
//!
//! A request names a cost in tokens. [`Limiter::wait`] waits in a queue until the tokens are available. In any
//! window, the tokens granted less the tokens refunded are at most `burst + rate x window`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Limiter, Quota};
//!
//! let limiter = Limiter::new(Quota::per_second(100).burst(20))?; // 100 tokens per second, up to 20 at once
//! for _ in 0..30 {
//!     limiter.wait(1).await?; // the first 20 at once, then one every 10 ms
//!     // ... the work ...
//! }
//! # Ok(()) }
//! ```
//!
//! * **First come, first served, by weight.** A large request never starves behind small ones.
//! * **Cancel-safe.** Cancelled requests leave the queue immediately and never consume or leak tokens.
//! * **Several quotas and an in-flight cap at once.** A grant takes its cost from all quotas, or from none.
//! * **Exact under paused time.** Time is tokio's, so tests under `#[tokio::test(start_paused = true)]` see exact
//!   instants.
//!
//! You do not have to start anything: the first caller that must wait spawns one background task. The task sleeps
//! while no caller waits, and ends with the limiter. A grant without waiting is one atomic operation in a hot loop.
//!
//! # Which limiter do I need?
//!
//! | you want to | use |
//! |---|---|
//! | wait for tokens | [`Limiter::wait`]; [`within`](Consume::within) limits the wait |
//! | wait, hold an in-flight slot while the work lasts, or settle the cost afterwards | [`Limiter::consume`], which returns a [`Grant`] |
//! | cap how much runs at once, with or without a rate | [`Builder::max_in_flight`] and [`Limiter::consume`] |
//! | refuse instead of waiting | [`Limiter::try_acquire`] |
//! | call a server that counts in windows of unknown beginning | [`Quota::sliding`] |
//! | take tokens that are there, and do something before waiting for others | [`Consume::try_now`] |
//! | have a quota that is reset at a time of day, of the week or of the month | `Quota::per_calendar_day` and its kin (feature `calendar`) |
//! | limit each user, address or API key | `KeyedLimiter` (feature `keyed`) |
//! | share one limiter by weight, with reserved and capped rates | [`Builder::classes`] and [`Limiter::class`] |
//! | claim from several limiters at once | [`join`], [`reserve`] |
//! | share one quota between many machines | `Builder::distributed` (feature `distributed`), with crate `tollgate-redis` or `tollgate-postgres` |
//! | share a quota per user between many machines | `DistributedKeyedLimiter` (features `keyed` and `distributed`) |
//! | follow a limit that is unknown or changes | [`Adaptive`] |
//! | follow the limits that a server sends | `HeedLayer` (crate `tollgate-tower`) |
//! | try out a quota before it is enforced | [`Builder::dry_run`] |
//! | put a limit in front of a service | `LimitLayer` (crate `tollgate-tower`) |
//!
//! # Overview
//!
//! **Waiting or not.** [`wait`](Limiter::wait) and [`consume`](Limiter::consume) wait. With
//! [`.within(duration)`](Consume::within) they refuse at once if the wait would be longer than that.
//! [`try_acquire`](Limiter::try_acquire) never waits and never overtakes a waiter. Its refusal says when to
//! [retry](Denied::retry_after), how many tokens [remain](Denied::remaining), and [which bound](Denied::by) refused.
//! [`consume_owned`](Limiter::consume_owned) is for spawned tasks, [`blocking_consume`](Limiter::blocking_consume) for
//! threads.
//!
//! **Several limits at once.** A grant takes its cost from all quotas, or from none:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tollgate::{Limiter, Quota};
//!
//! let limiter = Limiter::builder()
//!     .quota(Quota::per_second(10).burst(20))
//!     .quota_named("minute", Quota::new(200, Duration::from_secs(60)).stepped()) // all 200 every 60 s, counted from the build
//!     .max_in_flight(50)   // at most 50 tokens granted and not yet released
//!     .max_waiting(10_000) // refuse callers while 10,000 others wait
//!     .build()?;
//! # let _ = limiter; Ok(()) }
//! ```
//!
//! **A reset at a time of day.** With the feature `calendar`, periods are days, weeks, months or years of a time zone:
//! `Quota::per_calendar_day(10_000).in_time_zone("America/Los_Angeles")?`.
//!
//! **In flight.** With [`max_in_flight`](Builder::max_in_flight), a [`Grant`] holds its tokens until it is dropped:
//! write `let _grant = limiter.consume(1).await?` and keep it for as long as the work lasts. (`let _ =` drops it at
//! once. `wait`, which could hold nothing, is refused by such a limiter.) A slow server then never gets more requests
//! at once than the cap. The rate is still kept: tokens minted while the cap delays the queue are saved up to the
//! burst.
//!
//! **The real cost, known afterwards.** [`grant.settle(actual)`](Grant::settle) refunds or charges the difference.
//!
//! **Different units.** [`join`] waits in several limiters at once, for example requests per minute and tokens per
//! minute, and takes all costs or none.
//!
//! **Streams.** [`reserve`] takes several resources for work with a cost that becomes known while it runs;
//! [`grow`](Grant::grow) charges more.
//!
//! **Unknown limits.** [`Adaptive`] learns the rate of a server from the requests that it refuses.
//!
//! **Changes at run time.** [`set_quota`](Limiter::set_quota), [`set_max_in_flight`](Limiter::set_max_in_flight),
//! [`pause_for`](Limiter::pause_for), [`resume`](Limiter::resume) and [`close`](Limiter::close) take effect at once, also for
//! callers that wait already. [`snapshot`](Limiter::snapshot) returns the complete state.
//!
//! **Adapters.** The features `stream` and `io` put a limiter in front of the items of a stream or sink, or the bytes of
//! a connection: `stream.pace(&limiter)`, `socket.pace_bytes(&limiter)`. The features `metrics` and `tracing` report
//! waits and refusals. The crate [`tollgate-tower`](https://docs.rs/tollgate-tower) puts a limiter in front of the
//! requests of a service, `LimitLayer::new(&limiter)`, turns its refusals into HTTP responses, and makes a client follow
//! such responses.
//!
//! **Tests without a runtime.** Give the builder a [`ManualClock`].
//!
//! **Without waiting, tasks or tokio.** [`Bucket`] is the lock-free primitive, for dispatch loops of your own.
//!
//! # What is guaranteed
//!
//! * **No quota is exceeded.** For every quota and over every window, tokens granted less tokens refunded are at most
//!   `burst + rate x window`, counted at the instants at which the schedule grants. These clarifications are part of
//!   the guarantee:
//!   * A refund is the amount that [`settle`](Grant::settle) gives back, or the cost of a grant that is dropped with
//!     its future before the caller receives it. Requests that are sent and then refunded therefore come on top of the
//!     limit that the server is promised.
//!   * Tokens that are [added by hand](Limiter::replenish) come on top too.
//!   * Tokens charged by `settle` are not grants: later claims wait for them.
//!   * A timer that is late by `d` delivers everything that fell due meanwhile together, so an observer sees at most
//!     `burst + rate x (window + d)`. [`Snapshot::lateness`] reports `d`. tokio's timers are about 1 ms late.
//!   * A claim that costs more than the burst is granted as a whole, once enough tokens are minted for it.
//!   * Of a calendar quota, `rate x window` is the sum of the amounts of the periods that begin in the window. Of a sliding
//!     quota, at most the amount is granted in any window of one period.
//! * **No waiter is lost.** Waiters are served in the order of arrival, at the instants of the schedule, whatever
//!   other callers do: they may give up at any moment, hang, panic, or shut their runtime down.
//! * **Exact arithmetic.** Tokens and nanoseconds are integers. The fraction of a token is carried exactly, for years.
//!
//! `DESIGN.md` explains the design and why these guarantees hold. `docs/guide/` has a page each for the choice of numbers,
//! coming from another limiter, limits per user, classes, joint claims, deadlines, bandwidth, tests and many machines.
//!
//! # Other executors
//!
//! The limiter takes its timers from tokio. Under smol, async-std or another executor, keep one small tokio runtime and
//! enter it; [`Limiter::consume`] shows how. [`try_acquire`](Limiter::try_acquire),
//! [`blocking_consume`](Limiter::blocking_consume) and [`Bucket`] need no runtime.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `keyed` | `KeyedLimiter`: a quota and a queue per user, address or API key, in bounded memory |
//! | `fine-timer` | `Builder::fine_timer`: waiters are served less than a millisecond late; `clock::BootClock`, which counts suspension; on Linux |
//! | `distributed` | `Builder::distributed`, `distributed`: a quota (or one per key) for many machines |
//! | `serde` | [`Quota`] and [`Snapshot`] in configuration and report formats |
//! | `state` | `state`: levels that survive a restart, of a limiter and of a keyed limiter, in any format of serde |
//! | `calendar` | calendar quotas: periods of a time zone, reset at midnight or on a day |
//! | `quanta` | `clock::QuantaClock`, the processor's time stamp counter |
//! | `stream` | `stream`: paced `Stream`s and `Sink`s of the futures crates, with a cost per item |
//! | `io` | `io`: paced bytes for tokio's `AsyncRead` and `AsyncWrite`, many connections on one limiter |
//! | `metrics` | `metrics`: counters and gauges for Prometheus and every other recorder of the `metrics` facade |
//! | `tracing` | a span for each wait, an event for each refusal; see [below](#tracing) |
//!
//! Crates beside this one:
//!
//! | crate | adds |
//! |---|---|
//! | [`tollgate-tower`](https://docs.rs/tollgate-tower) | `LimitLayer` for axum, tonic, hyper and reqwest, in flight to the end of the body; refusals as responses with `Retry-After` and `RateLimit` fields, and a client that follows them |
//! | [`tollgate-redis`](https://docs.rs/tollgate-redis) | `RedisStore`, which keeps distributed quotas in Redis or Valkey |
//! | [`tollgate-postgres`](https://docs.rs/tollgate-postgres) | `PostgresStore`, which keeps them in PostgreSQL |
//!
//! # Types of the crate root
//!
//! | types | named to |
//! |---|---|
//! | [`Limiter`], [`Builder`] | keep a limiter in a struct; pass a builder on |
//! | [`Quota`], [`ParseQuotaError`], [`Which`] | say how much; read that from a file; choose a quota of several |
//! | [`Wait`], [`Consume`], [`ConsumeOwned`] | bound a wait, or store it in a future of your own |
//! | [`Grant`], [`OwnedGrant`] | hold tokens in flight, correct a cost |
//! | [`ConsumeError`], [`TryAcquireError`], [`Denied`], [`Bound`] | react to a refusal |
//! | [`Refused`] | report a refusal of either kind, as responses and spans do |
//! | [`ConfigError`], [`QuotaError`], [`BadQuota`], [`QuotaConflict`], [`ReleaseError`] | report what was configured wrong: at the build, by `quota_by`, by another machine, by a manual release |
//! | [`Class`], [`Share`], [`ClassSnapshot`] | share a limiter by weight |
//! | [`AsLimiter`], [`AnyLimiter`] | write code for limiters and classes; keep both in one list |
//! | [`Join`], [`JoinError`], [`Reservation`] | claim from several limiters |
//! | [`Snapshot`], [`QuotaSnapshot`], [`DryRunSnapshot`] | report the state |
//! | [`Clock`], [`ManualClock`] | have another time |
//! | [`Replenisher`], `KeyedReplenisher` | serve waiters from an executor other than tokio's |
//! | [`Bucket`], [`Uncapped`], [`Capped`], [`Ticket`] | write a dispatch loop |
//! | [`Adaptive`] | learn a rate |
//! | `KeyedLimiter`, `KeyedBuilder`, `Quotas`, `ToKey` | limit each key; have several quotas per key; look keys up in a borrowed form |
//! | `KeyedConsume`, `KeyedConsumeOwned`, `KeyedGrant`, `OwnedKeyedGrant` | do with a key what the types without `Keyed` do |
//! | `KeyedClaim`, `GrantOfKey` | name the types behind those four aliases |
//! | `KeyedSnapshot`, `KeyedEntry`, `KeyedTop`, `TopKey` | report all keys, one, and the largest |
//! | `DistributedKeyedLimiter`, `DistributedKeyedBuilder`, `DistributedKeyedConsume`, `DistributedKeyedGrant`, `DistributedKeyedSnapshot` | limit each key over many machines |
//! | `AsKeyedLimiter` | write code for keyed limiters of both kinds |
//!
//! # When not to use it
//!
//! * To refuse as cheaply as possible and never wait: `governor`.
//! * To cap concurrency only, at the lowest price: `tokio::sync::Semaphore`. (A limiter with only
//!   [`max_in_flight`](Builder::max_in_flight) adds pauses, deadlines, a cap that can be changed, and metrics.)
//! * To share one limit between machines that must never hold unused tokens: ask Redis on each call (`throttled` Lua
//!   scripts, redis-cell).
//!
//! # Tracing
//!
//! With the feature `tracing`, each wait is a span named `rate_limit.wait` (target `tollgate`, level `INFO`). Its
//! parent is the span that is entered when the claim is first polled. The span lasts from entering the queue to the
//! grant, the refusal or the drop. Its fields follow the semantic conventions of OpenTelemetry; durations are in
//! seconds:
//!
//! * `rate_limit.cost`: the cost in tokens;
//! * `rate_limit.class.name`: the path of the class in which the claim was made, if it was made in a class;
//! * `rate_limit.queue.ahead`: how many callers wait in front;
//! * `rate_limit.estimate`: how long the wait takes according to the schedule, where this is known without a step per
//!   waiter;
//! * `rate_limit.result`, set at the end: `allow`, `deny`, or `left` (the future was dropped);
//! * of a refusal, `error.type`, its reason, and `otel.status_code` and `otel.status_description`, which
//!   `tracing-opentelemetry` takes as the status of the span.
//!
//! A refusal, also by [`try_acquire`](Limiter::try_acquire), is an event (level `DEBUG`) with `rate_limit.cost`,
//! `rate_limit.class.name`, `rate_limit.quota.name` (of the quota that refused), `error.type` and
//! `rate_limit.retry_after`. A refusal by a [dry run](Builder::dry_run) has `rate_limit.reason` instead of `error.type`,
//! because it is no error. A wait under a dry run has `rate_limit.would_wait`.
//!
//! A grant without waiting is not reported and costs nothing extra. Subscribers run outside of all locks and may call
//! the limiter. If a subscriber panics, the panic hook reports the panic and all waiters keep their places. A wait
//! that is reported allocates.

#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Examples compile without a warning.
#![doc(test(attr(deny(warnings))))]

pub mod adaptive;
mod as_limiter;
mod blocking;
mod bucket;
mod builder;
mod claim;
mod class;
pub mod clock;
mod consume;
#[cfg_attr(
    not(all(feature = "keyed", feature = "distributed", feature = "metrics", feature = "state")),
    allow(dead_code, reason = "compiled alike in every feature set, so some builds call only a part of it")
)]
mod core;
mod deadline;
#[cfg(feature = "distributed")]
#[cfg_attr(
    not(feature = "keyed"),
    allow(dead_code, unused_imports, reason = "a part of it is called by keyed distributed limiters only")
)]
pub mod distributed;
mod error;
mod grant;
mod handle;
#[cfg(feature = "io")]
pub mod io;
mod join;
#[cfg(feature = "keyed")]
#[cfg_attr(
    not(feature = "state"),
    allow(dead_code, reason = "compiled alike with and without `state`, which alone saves and restores keys")
)]
mod keyed;
mod limiter;
#[cfg(feature = "metrics")]
pub mod metrics;
mod name;
#[cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(dead_code, unused_imports, reason = "each feature reads only a part of what observers are given")
)]
mod observe;
#[cfg(any(feature = "stream", feature = "io"))]
mod pacer;
mod permit;
mod quota;
mod reservation;
mod set_twice;
mod snapshot;
#[cfg(feature = "state")]
pub mod state;
#[cfg(feature = "stream")]
pub mod stream;
mod sync;
mod wait;
mod which;

#[cfg(feature = "keyed")]
pub use keyed::{
    AsKeyedLimiter, GrantOfKey, KeyedBuilder, KeyedClaim, KeyedConsume, KeyedConsumeOwned, KeyedEntry, KeyedGrant,
    KeyedLimiter, KeyedReplenisher, KeyedSnapshot, KeyedTop, OwnedKeyedGrant, Quotas, ToKey, TopKey,
};
#[cfg(all(feature = "keyed", feature = "distributed"))]
pub use keyed::{
    DistributedKeyedBuilder, DistributedKeyedConsume, DistributedKeyedGrant, DistributedKeyedLimiter,
    DistributedKeyedSnapshot,
};
pub use {
    adaptive::Adaptive,
    as_limiter::AsLimiter,
    bucket::{Bucket, Capped, Ticket, Uncapped},
    builder::Builder,
    class::{ClassSnapshot, Share},
    clock::{Clock, ManualClock},
    consume::{Consume, ConsumeOwned},
    core::replenisher::Replenisher,
    error::{
        BadQuota, Bound, ConfigError, ConsumeError, Denied, QuotaConflict, QuotaError, Refused, ReleaseError,
        TryAcquireError,
    },
    grant::{Grant, OwnedGrant},
    handle::{AnyLimiter, Class, Limiter},
    join::{Join, JoinError, join, try_join},
    quota::{ParseQuotaError, Quota},
    reservation::{Reservation, reserve},
    snapshot::{DryRunSnapshot, QuotaSnapshot, Snapshot},
    wait::Wait,
    which::Which,
};

/// The code of README and the guides.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[cfg(feature = "io")]
    #[doc = include_str!("../docs/guide/bandwidth.md")]
    struct Bandwidth;
    #[doc = include_str!("../docs/guide/choosing.md")]
    struct Choosing;
    #[doc = include_str!("../docs/guide/classes.md")]
    struct Classes;
    #[doc = include_str!("../docs/guide/deadlines.md")]
    struct Deadlines;
    #[doc = include_str!("../docs/guide/joint.md")]
    struct Joint;
    #[cfg(all(feature = "keyed", feature = "serde"))]
    #[doc = include_str!("../docs/guide/keys.md")]
    struct Keys;
    #[cfg(feature = "distributed")]
    #[doc = include_str!("../docs/guide/machines.md")]
    struct Machines;
    #[doc = include_str!("../docs/guide/moving.md")]
    struct Moving;
    #[doc = include_str!("../docs/guide/testing.md")]
    struct Testing;
    #[doc = include_str!("../tests/misuse.md")]
    struct Misuse;
}
