//! Reports waits and refusals to the observers of a limiter: meters (feature `metrics`) and tracing subscribers
//! (feature `tracing`).
//!
//! A report ends in foreign code, a recorder or a subscriber, which may panic or call this very limiter. So reports
//! are made outside of the lock, when the claim already waits in the queue or has left it for good. Panics of foreign
//! code end here: the panic hook reports them, and no caller loses a place, a token or a wake-up.
//!
//! A grant without waiting never calls this module.
//!
//! | file | holds |
//! |---|---|
//! | `wait_record.rs`, `none.rs` | the interface for limiters and claims, with either feature and with neither |
//! | `refusal.rs` | the reason of a refusal |
//! | `counted.rs`, `uncounted.rs` | reports to a meter, with `metrics` and without |
//! | `traced.rs`, `untraced.rs` | reports to a subscriber, with `tracing` and without |

#[cfg_attr(any(feature = "metrics", feature = "tracing"), path = "observe/wait_record.rs")]
#[cfg_attr(not(any(feature = "metrics", feature = "tracing")), path = "observe/none.rs")]
mod imp;

use std::time::Duration;

pub(crate) use imp::{Observers, WaitRecord};
#[cfg(feature = "metrics")]
pub(crate) use imp::{REASONS, Reason};

/// The state of the queue when a claim enters it.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "only spans report all of it"))]
pub(crate) struct QueueInfo {
    /// When the claim enters the queue, in the limiter's nanoseconds.
    pub(crate) since: u64,
    /// How many callers are in front of it.
    pub(crate) ahead: usize,
    /// How long it will wait according to the schedule; `None` if no observer asks, or if the answer takes a step per
    /// waiter.
    pub(crate) estimate: Option<Duration>,
}
