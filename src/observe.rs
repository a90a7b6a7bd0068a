//! Who is told that somebody waits or was refused: features `metrics` and `tracing`.
//!
//! What is told ends in code that is not ours, a recorder's or a subscriber's: it may panic, or call this very limiter. So it
//! is told outside of the lock, when the claim stands in the line or has left it for good; and its panics end here: the
//! panic hook reports them, and nobody loses a place, a token or a wake-up.
//!
//! A grant without waiting never comes here.
//!
//! | file | its noun |
//! |---|---|
//! | `kept.rs`, `none.rs` | the face towards limiters and claims, with either feature and without |
//! | `refusal.rs` | a refusal of any kind, and its reason |
//! | `counted.rs`, `uncounted.rs` | what a meter is told, with `metrics` and without |
//! | `traced.rs`, `untraced.rs` | what a subscriber is told, with `tracing` and without |

#[cfg_attr(any(feature = "metrics", feature = "tracing"), path = "observe/wait_record.rs")]
#[cfg_attr(not(any(feature = "metrics", feature = "tracing")), path = "observe/none.rs")]
mod imp;

use std::time::Duration;

pub(crate) use imp::{Observers, WaitRecord};
#[cfg(feature = "metrics")]
pub(crate) use imp::{REASONS, Reason};

/// What lies before a claim that enters the line.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "only spans tell all of it"))]
pub(crate) struct QueueInfo {
    /// When it enters, in the limiter's nanoseconds.
    pub(crate) since: u64,
    /// How many callers are in front of it.
    pub(crate) ahead: usize,
    /// How long it will wait, by the schedule; `None` if nobody asks, or if that takes a step per
    /// waiter.
    pub(crate) estimate: Option<Duration>,
}
