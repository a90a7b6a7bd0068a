//! One server that keeps stores, or one master of a cluster, with its circuit breaker.

use std::sync::Arc;
use tollgate::distributed::{Breaker, BreakerSnapshot};

/// A server, or one master of a cluster, as seen from this process; from
/// [`RedisStore::servers`](crate::RedisStore::servers).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RedisServerSnapshot {
    /// Host and port of the master in a cluster; empty otherwise.
    pub address: String,
    /// Whether requests are sent, and how many.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub breaker: BreakerSnapshot,
    /// Connections made so far, to all servers of this store.
    pub connections: u64,
}

pub(super) struct Shard {
    pub(super) number: u64,
    pub(super) address: String,
    pub(super) breaker: Arc<Breaker>,
}

impl Shard {
    pub(super) fn new(number: u64, address: String) -> Self {
        Self { number, address, breaker: Arc::new(Breaker::default()) }
    }

    pub(super) fn snapshot(&self, connections: u64) -> RedisServerSnapshot {
        RedisServerSnapshot { address: self.address.clone(), breaker: self.breaker.snapshot(), connections }
    }
}
