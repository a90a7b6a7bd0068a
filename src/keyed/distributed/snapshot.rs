//! A snapshot of a distributed keyed limiter, for metrics.

use crate::distributed::StoreSnapshot;
use std::time::Duration;

/// A snapshot of a distributed keyed limiter, returned by
/// [`DistributedKeyedLimiter::snapshot`](super::DistributedKeyedLimiter::snapshot). The data of each key is consistent;
/// keys are read one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DistributedKeyedSnapshot {
    /// Keys that have a limiter on this node: with frequent requests, with waiters, or until recently.
    pub keys: u64,
    /// Keys that have waiters.
    pub keys_waiting: u64,
    /// The number of callers that wait, for all keys.
    pub waiting_tasks: u64,
    /// The number of tokens that they wait for.
    pub waiting_tokens: u64,
    /// Tokens granted since the limiter was built, for all keys, including those charged by `settle`.
    pub granted: u64,
    /// Tokens that came back unused.
    pub refunded: u64,
    /// Calls that were refused, including denied calls of `try_acquire`.
    pub refused: u64,
    /// The longest time by which the timer delivered tokens later than the schedule granted them, among the keys that
    /// have a limiter.
    pub lateness: Duration,
    /// True once the limiter was closed.
    pub closed: bool,
    /// Keys that have no limiter on this node but a cached reply of their store.
    pub cached: u64,
    /// Tokens kept on this node unused, over all keys.
    pub kept: u64,
    /// How many callers were refused by a cached reply, without a request.
    pub spared: u64,
    /// The counters of all requests, over all keys.
    pub store: StoreSnapshot,
}
