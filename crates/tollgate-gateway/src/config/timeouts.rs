//! The time-outs of the clients and of the upstream.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// How long the upstream may take until it responds, from the last part of the request that it was sent.
    pub(crate) upstream: Duration,
    /// How long the upstream may pause within a response.
    pub(crate) upstream_idle: Duration,
    /// How long a client may take for the part of a body that is buffered, pause within the rest of it, and read nothing
    /// of its response.
    pub(crate) client: Duration,
    /// How long a connection may take until it has sent the head of its first request.
    pub(crate) header: Duration,
    /// How long a connection may take after a response until it has sent the head of the next request.
    pub(crate) idle: Duration,
    /// How long a WebSocket may pass nothing in either direction.
    pub(crate) websocket_idle: Duration,
}
