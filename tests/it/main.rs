//! The integration tests, in one binary: a folder or a file for each subject.
//!
//! Some tests are binaries of their own, because they need a process of their own: `alloc.rs` (its allocator counts),
//! `fine_timer_files.rs` (it counts open files) and `loom` (another build of the crate). A test here must not need a
//! process to itself: under `cargo test` all share one, under cargo-nextest each has its own.
#![allow(clippy::incompatible_msrv, reason = "tests are built by the newest compiler")]
#![cfg(not(tollgate_loom))]
#![allow(clippy::duplicate_mod, reason = "fine_timer runs the tests of two other subjects again, with another limiter")]

mod adaptive;
mod adversarial;
mod assert_traits;
mod auto_traits;
#[cfg(feature = "calendar")]
mod calendar;
mod cooperation;
mod decisions;
mod design;
#[cfg(feature = "distributed")]
mod distributed;
mod dry_run;
#[cfg(all(feature = "fine-timer", not(miri)))]
mod fine_timer;
mod fixture;
mod fuzz_corpus;
#[cfg(feature = "io")]
mod io;
mod join;
#[cfg(feature = "keyed")]
mod keyed;
#[cfg(feature = "metrics")]
mod metrics;
mod must_use;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod observed_events;
mod oracle;
mod oracle_histories;
mod oracle_itself;
#[cfg(any(feature = "io", feature = "stream"))]
mod pair;
mod paused_time;
mod queue;
mod quota_text;
mod rate_law;
mod reservations;
mod seeds;
mod semantics;
#[cfg(all(feature = "distributed", feature = "keyed"))]
mod shared_keys;
mod shares;
mod shutdown;
#[cfg(all(feature = "keyed", feature = "state"))]
mod state;
#[cfg(feature = "stream")]
mod stream;
mod threads;
#[cfg(feature = "tracing")]
mod tracing;
