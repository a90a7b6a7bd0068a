//! The side of the clients: listeners, connections, and the steps of a request until the upstream gets it.

pub(crate) mod admission;
pub(crate) mod connection;
pub(crate) mod connection_limit;
pub(crate) mod follow_upstream;
pub(crate) mod handler;
pub(crate) mod http1;
pub(crate) mod http_service;
pub(crate) mod open_files;
pub(crate) mod prefixed_io;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod stream_permits;
pub(crate) mod streams;
