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
mod calendar;
mod cooperation;
mod decisions;
mod design;
mod distributed;
mod dry_run;
#[cfg(not(miri))]
mod fine_timer;
mod fixture;
mod fuzz_corpus;
mod io;
mod join;
mod keyed;
mod metrics;
mod must_use;
mod observed_events;
mod oracle;
mod oracle_histories;
mod oracle_itself;
mod pair;
mod paused_time;
mod queue;
mod quota_text;
mod rate_law;
mod reservations;
mod seeds;
mod semantics;
mod shared_keys;
mod shares;
mod shutdown;
mod state;
mod stream;
mod threads;
mod tracing;
