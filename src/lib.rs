//! An async **waiting** rate limiter for tokio.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]

mod alarm;
mod blocking;
mod bucket;
mod builder;
mod clock;
mod consume;
mod drivers;
mod error;
mod grant;
mod join;
mod knot;
mod limiter;
mod queue;
mod quota;
mod replenisher;
mod rovers;
mod schedule;
mod shared;
mod snapshot;
mod state;
mod supply;
mod sync;
mod wakes;
mod which;

#[cfg(feature = "quanta")]
pub use clock::QuantaClock;
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
