//! What a limiter does, for the recorders of the [`metrics`](https://docs.rs/metrics) facade: Prometheus, StatsD and others.
//! Feature `metrics`.
//!
//! A [`Meter`] makes its limiter count what no rover tells. [`Meter::publish`] sets all series to what they are at that
//! moment: call it where the metrics are scraped.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
//! All have a label `key`, the name of the meter. What is said of calls and tokens is of all that came since the meter was
//! made; tokens granted and refunded since the limiter was built.
//!
//! | name | more labels | kind | |
//! |---|---|---|---|
//! | `rate_limit_acquire_total` | `result`: `allow`, `deny` | counter | tokens granted; tokens asked for by calls that were refused for now |
//! | `rate_limit_refusals_total` | `reason` | counter | calls refused |
//! | `rate_limit_refunded_total` | | counter | tokens granted that came back unused |
//! | `rate_limit_acquire_duration_seconds` | `result`: `allow`, `deny`, `left` | histogram | time in line, of those who stood there |
//! | `rate_limit_tokens` | | gauge | tokens in the bucket; of several quotas, in the emptiest |
//! | `rate_limit_quota_tokens` | `quota`: name or index | gauge | the same of each quota, below 0 in debt; if there are several |
//! | `rate_limit_debt_tokens` | | gauge | tokens owed after `settle` |
//! | `rate_limit_waiting`, `rate_limit_waiting_tokens` | | gauge | callers in line, and what they wait for |
//! | `rate_limit_in_flight_tokens` | | gauge | tokens granted and not yet released; with a cap |
//! | `rate_limit_paused_seconds` | | gauge | how long the pause still lasts |
//! | `rate_limit_lateness_seconds` | | gauge | [`Snapshot::lateness`](crate::Snapshot::lateness) |
//! | `rate_limit_keys`, `rate_limit_keys_waiting` | | gauge | keys in memory, and those that somebody waits on; of a `KeyedMeter` |
//! | `rate_limit_key_refusals`, `rate_limit_key_tokens` | `name` | gauge | of the keys refused most, if they may be [named](KeyedMeter::naming) |
//!
//! The reasons are `quota`, `in_flight`, `pause` and `line` (the [`Bound`](crate::Bound) of a denial), `queue_full`,
//! `global`, `too_late`, `timed_out`, `too_many_keys`; and, not for now but for ever, and so not among the tokens denied:
//! `too_large`, `closed`, `no_runtime`.
//!
//! # What it costs
//!
//! A grant without waiting pays nothing: it is read off the rovers, which count tokens. So tokens is what
//! `rate_limit_acquire_total` counts (calls, where each costs 1), and grants without waiting are not in the histogram: its
//! count is how many had to wait, its quantiles are theirs. Who gave up is `left`; without those the longest waits would
//! look shorter than they were.
//!
//! Keys have no rovers. What they were granted, all together, is one addition under a lock that the call holds anyway, to a
//! cache line that it writes anyway.
//!
//! A refusal adds to two words that the thread shares with few others. A wait that ends calls the recorder, outside of all
//! locks; if that panics, the panic hook reports it and the grant is delivered all the same. A wait allocates once while
//! there is a meter.
//!
//! The recorder is asked for anew each time: it does not matter which is made first, it or the meter.

#[cfg(feature = "keyed")]
mod keyed;
mod meter;
mod names;
mod series;
mod tally;

#[cfg(feature = "keyed")]
pub use keyed::KeyedMeter;
pub use meter::{AlreadyMetered, Meter};
pub use names::describe;
pub(crate) use tally::{Outcome, Tally};
