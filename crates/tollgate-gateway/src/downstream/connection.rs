//! One connection: the address of its client, and the state that its requests use.

use std::net::SocketAddr;
use std::sync::Arc;

use super::connection_limit::ConnectionGuard;
use crate::limits::Limits;
use crate::proxy::Proxy;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::counters::Counters;
use crate::telemetry::stats::Stats;

/// Each connection has one, which its requests share: threads that clone and drop the same `Arc` slow each other down.
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) limits: Arc<Limits>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) proxy: Proxy,
    pub(crate) stats: Arc<Stats>,
    pub(crate) access_log: AccessLog,
    /// False to measure the cost of the limits.
    pub(crate) is_limited: bool,
    /// Counts the connection until it is dropped; `None` if its peer may have any number.
    pub(crate) _counted: Option<ConnectionGuard>,
}
