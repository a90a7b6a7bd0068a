//! What a shared keyed limiter looks like from outside.

use crate::distributed::StoreSnapshot;

/// A picture of a shared keyed limiter; from [`DistributedKeyedLimiter::snapshot`](super::SharedKeyedLimiter::snapshot). The keys are
/// looked at one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DistributedKeyedSnapshot {
    /// Keys that have a limiter here: asked for often, waited for, or lately.
    pub limiters: u64,
    /// Keys that have none, of which it is remembered what their lines said.
    pub remembered: usize,
    /// Keys that somebody waits on here.
    pub keys_waiting: usize,
    /// How many callers wait, on all keys.
    pub waiting_tasks: usize,
    /// Tokens that are kept here unused, of all keys.
    pub kept: u64,
    /// How often somebody was refused by what a line had said before, without asking it.
    pub spared: u64,
    /// What was asked for and granted, on all keys.
    pub store: StoreSnapshot,
    /// True once it was closed.
    pub closed: bool,
}
