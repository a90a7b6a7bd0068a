//! One server that keeps stores, or one master of a cluster, with its circuit breaker.

use std::sync::Arc;
use tollgate::distributed::{Breaker, Circuit};

/// A server, or one master of a cluster, as seen from this process; from
/// [`RedisStore::servers`](crate::RedisStore::servers).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RedisServerSnapshot {
    /// Host and port of the master in a cluster; empty otherwise.
    pub address: String,
    /// Whether requests are sent.
    pub circuit: Circuit,
    /// How many times the circuit has opened.
    pub opened: u64,
    /// How many times the server was tried while the circuit was open or the connection was broken.
    pub trials: u64,
    /// Requests that were sent and not answered in time.
    pub timeouts: u64,
    /// Requests that were not sent, because the circuit was open or too many others were under way.
    pub not_sent: u64,
    /// Requests that are under way now.
    pub in_flight: usize,
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
        Self { number, address, breaker: Arc::new(Breaker::new()) }
    }

    pub(super) fn snapshot(&self, connections: u64) -> RedisServerSnapshot {
        let breaker = self.breaker.snapshot();
        RedisServerSnapshot {
            address: self.address.clone(),
            circuit: breaker.circuit,
            opened: breaker.opened,
            trials: breaker.trials,
            timeouts: breaker.timeouts,
            not_sent: breaker.not_sent,
            in_flight: breaker.in_flight,
            connections,
        }
    }
}
