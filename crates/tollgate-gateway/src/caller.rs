//! Who is at the other end of a connection, and what its requests need.

use std::net::SocketAddr;
use std::sync::Arc;

use super::books::Books;
use super::limits::Limits;
use super::proxy::Proxy;

/// Threads that count clones of one thing wait for each other: so each connection has one of these, which its requests share.
pub(crate) struct Caller {
    pub(crate) peer: SocketAddr,
    pub(crate) limits: Arc<Limits>,
    pub(crate) books: Arc<Books>,
    pub(crate) proxy: Proxy,
}
