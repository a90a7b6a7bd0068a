//! Metrics of limiters for the recorders of the [`metrics`](https://docs.rs/metrics) facade: Prometheus, StatsD and
//! others. Feature `metrics`.
//!
//! A [`Meter`] makes its limiter count what its positions do not show. [`Meter::publish`] sets all series to their
//! values at that moment: call it where the metrics are scraped.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use metrics_exporter_prometheus::PrometheusBuilder;
//! use tollgate::metrics::{Meter, describe};
//! use tollgate::{Limiter, Quota};
//!
//! let prometheus = PrometheusBuilder::new().install_recorder()?;
//! describe();
//! let limiter = Limiter::new(Quota::per_second(1_000).burst(2))?;
//! let meter = Meter::new("api", &limiter)?;
//!
//! for _ in 0..3 {
//!     let _grant = limiter.consume(1).await?; // the third after a millisecond
//! }
//! assert!(limiter.try_acquire(2).is_err());
//!
//! // What a handler of `/metrics` does, and every few seconds a task calls `prometheus.run_upkeep()`.
//! meter.publish();
//! let page = prometheus.render();
//! assert!(page.contains(r#"rate_limit_acquire_total{key="api",result="allow"} 3"#), "{page}");
//! assert!(page.contains(r#"rate_limit_acquire_total{key="api",result="deny"} 2"#));
//! assert!(page.contains(r#"rate_limit_acquire_duration_seconds_count{key="api",result="allow"} 1"#));
//! # Ok(()) }
//! ```
//!
//! # Series
//!
//! All series have a label `key`, the name of the meter. Series of calls, and of the tokens that were denied, count
//! from the moment the meter was made. Tokens granted and refunded count from the moment the limiter was built.
//!
//! | name | more labels | kind | |
//! |---|---|---|---|
//! | `rate_limit_acquire_total` | `result`: `allow`, `deny` | counter | tokens granted, and tokens denied for now |
//! | `rate_limit_refusals_total` | `reason` | counter | calls refused |
//! | `rate_limit_quota_refusals_total` | `quota`: name or index | counter | the part refused by each quota |
//! | `rate_limit_refunded_total` | | counter | tokens granted that came back unused |
//! | `rate_limit_acquire_duration_seconds` | `result`: also `left` | histogram | time of waits in the queue |
//! | `rate_limit_tokens` | | gauge | tokens in the bucket; with several quotas, in the emptiest |
//! | `rate_limit_quota_tokens` | `quota` | gauge | the same for each quota, below 0 in debt |
//! | `rate_limit_debt_tokens` | | gauge | tokens owed after `settle` |
//! | `rate_limit_waiting`, `rate_limit_waiting_tokens` | | gauge | callers in the queue, and their tokens |
//! | `rate_limit_in_flight_tokens` | | gauge | tokens granted and not yet released; only with a cap |
//! | `rate_limit_paused_seconds` | | gauge | how long the pause still lasts |
//! | `rate_limit_lateness_seconds` | | gauge | [`Snapshot::lateness`](crate::Snapshot::lateness) |
//!
//! The reasons are `quota`, `in_flight`, `pause`, `queue` (others are waiting), `ceiling` (of a class) and `parent`,
//! which are the [`Bound`](crate::Bound) of a denial; `queue_full`, `too_late`, `timed_out`, `too_many_keys`,
//! `unreachable` and `quota_conflict` (of a distributed quota); and `too_large`, `key_too_long`, `bad_quota` (from
//! `quota_by`), `closed` and `no_runtime`, which no wait would change and which are therefore not counted as tokens denied.
//!
//! Series with the label `quota` exist for a limiter with several quotas. They count the first eight, and all others
//! together as `(others)`. A keyed limiter has only `rate_limit_quota_refusals_total` of them. Its quotas are
//! distinguished by name, since keys may have different quotas, and a quota has a series from its first refusal on. Nor
//! has it `rate_limit_tokens`, `rate_limit_debt_tokens` and `rate_limit_paused_seconds`, which are of one bucket.
//!
//! For a [dry run](crate::Builder::dry_run):
//!
//! | name | more labels | kind | |
//! |---|---|---|---|
//! | `rate_limit_would_wait_seconds` | | histogram | what calls would have waited, of those that would |
//! | `rate_limit_would_refuse_total` | `reason` | counter | calls that would have been refused |
//! | `rate_limit_quota_would_refuse_total` | `quota` | counter | the part of each quota; not for a keyed limiter |
//!
//! For a keyed limiter; the last two only for the most refused keys, if `Meter::naming` names them:
//!
//! | name | more labels | kind | |
//! |---|---|---|---|
//! | `rate_limit_keys`, `rate_limit_keys_waiting` | | gauge | keys in memory, and keys with waiters |
//! | `rate_limit_key_refusals`, `rate_limit_key_tokens` | `name` | gauge | refusals and tokens of a key |
//!
//! For classes:
//!
//! | name | more labels | kind | |
//! |---|---|---|---|
//! | `rate_limit_class_served_total` | `class` | counter | [tokens served](crate::ClassSnapshot::served) |
//! | `rate_limit_class_refusals_total` | `class` | counter | calls refused |
//! | `rate_limit_class_waiting` | `class` | gauge | callers in the queue of the class |
//! | `rate_limit_class_waiting_tokens` | `class` | gauge | the tokens they wait for |
//! | `rate_limit_class_acquire_duration_seconds` | `class`, `result` | histogram | time in the queue of the class |
//!
//! These series show the part of single classes in the series of the whole limiter. `class` is the path of the class:
//! its name after those of the classes around it, with `/` between them. A meter names the first 64 paths that it sees.
//! All other classes are `(others)`, without `rate_limit_class_served_total`. A class that is made again under its path
//! continues the series of the removed one.
//!
//! For a distributed quota:
//!
//! | name | more labels | kind | |
//! |---|---|---|---|
//! | `rate_limit_store_requests_total` | | counter | requests answered, for all limiters of this process |
//! | `rate_limit_store_errors_total` | `kind` | counter | error replies of the server |
//! | `rate_limit_store_round_trips_total` | `le` | counter | requests answered within `le` seconds, for `histogram_quantile` |
//! | `rate_limit_store_answer_age_seconds` | | gauge | the time since the last answer |
//! | `rate_limit_store_leased_tokens_total` | | counter | tokens promised to this process |
//! | `rate_limit_store_returned_tokens_total` | | counter | tokens that were never used, and given back |
//! | `rate_limit_store_allowance_tokens` | | gauge | tokens that the limiter answered last may keep unused |
//! | `rate_limit_store_level_tokens` | | gauge | tokens in the store; below 0, its debt: promised and not minted yet |
//! | `rate_limit_store_next_token_seconds` | | gauge | the time until it has a token that is not promised |
//! | `rate_limit_store_sent_away_total` | | counter | requests for waiters that got no tokens |
//! | `rate_limit_store_places` | | gauge | limiters for whose waiters the store may hold tokens back from others |
//! | `rate_limit_store_nodes` | | gauge | limiters of all processes that asked the store in the last two seconds |
//! | `rate_limit_store_circuits` | `state`: `closed`, `open`, `half_open` | gauge | its servers by their circuit breakers |
//! | `rate_limit_store_quota_version` | | gauge | the version of the quota in force |
//! | `rate_limit_store_out` | | gauge | 1 during an outage |
//! | `rate_limit_store_outages_total` | | counter | outages |
//! | `rate_limit_store_outage_seconds` | | gauge | the time of all outages so far |
//! | `rate_limit_store_losses_total` | | counter | limiters that found the store's state lost |
//! | `rate_limit_store_excess_tokens_total` | | counter | tokens by which that may exceed the quota |
//!
//! For an [`AdaptiveMeter`]; the reasons are `accepted`, `probe_refused` and `limit_fell`:
//!
//! | name | more labels | kind | |
//! |---|---|---|---|
//! | `rate_limit_adaptive_rate_per_second` | | gauge | the learned rate in tokens per second |
//! | `rate_limit_adaptive_answers_total` | `result`: `accepted`, `refused` | counter | answers of the server |
//! | `rate_limit_adaptive_changes_total` | `reason` | counter | changes of the learned rate |
//!
//! # OpenTelemetry
//!
//! [`INSTRUMENTS`] lists all series with the names, units and attributes that follow OpenTelemetry's semantic
//! conventions. For example, `rate_limit_acquire_duration_seconds` is the histogram `rate_limit.acquire.duration` in
//! `s`, and the label `reason` of a refusal is the attribute `error.type`. A recorder that exports over OTLP takes them
//! from there: `examples/otlp` has one of about a hundred lines. All of them, and the conventions that they follow, are
//! in docs/metrics.md.
//!
//! # What it costs
//!
//! A grant without waiting pays nothing: it is computed from the limiter's positions, which count tokens. So
//! `rate_limit_acquire_total` counts tokens (or calls, if each costs 1), and grants without waiting are not in the
//! histogram: its count is the number of calls that had to wait, and its quantiles describe those calls. Calls that
//! gave up have the result `left`; without them the longest waits would look shorter than they were.
//!
//! Keys have no such positions. The tokens granted to all keys together are counted by one addition, under a lock that
//! the call holds anyway, on a cache line that it writes anyway.
//!
//! A refusal adds to two words that the thread shares with few other threads. The end of a wait calls the recorder,
//! outside of all locks; if the recorder panics, the panic hook reports it and the grant is delivered all the same. A
//! wait allocates once while there is a meter.
//!
//! The recorder is looked up on each use: the meter may be made before the recorder is installed.

mod adaptive;
mod class_counts;
mod classes;
mod instrument;
#[cfg(feature = "keyed")]
mod keyed;
mod meter;
mod names;
mod series;
#[cfg(feature = "distributed")]
mod store;
mod tally;

pub use adaptive::AdaptiveMeter;
pub use instrument::{Instrument, InstrumentKind};
pub use meter::{AlreadyMetered, Meter};
pub use names::{INSTRUMENTS, describe};
