//! The snapshot of a distributed keyed limiter.

use crate::distributed::StoreSnapshot;

/// A snapshot of a distributed keyed limiter; from
/// [`DistributedKeyedLimiter::snapshot`](super::DistributedKeyedLimiter::snapshot). The keys are read one after the
/// other, not at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DistributedKeyedSnapshot {
    /// Keys that have a limiter on this node: with frequent requests, with waiters, or until recently.
    pub limiters: u64,
    /// Keys that have no limiter but a cached reply of their store.
    pub remembered: usize,
    /// Keys with waiting callers on this node.
    pub keys_waiting: usize,
    /// How many callers wait, over all keys.
    pub waiting_tasks: usize,
    /// Tokens kept on this node unused, over all keys.
    pub kept: u64,
    /// How many callers were refused by a cached reply, without a request.
    pub spared: u64,
    /// The counters of all requests and grants, over all keys.
    pub store: StoreSnapshot,
    /// True after the limiter was closed.
    pub closed: bool,
}
