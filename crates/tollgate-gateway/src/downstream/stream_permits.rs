//! Places for the requests of HTTP/2 connections.
//!
//! One connection has many requests at a time. So that a bound on connections is still one on requests, and on the memory
//! and the files that they need, each request counts like a connection of its address.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection_limit::{ConnectionGuard, ConnectionLimit};

/// The permits for the requests of one connection.
#[derive(Clone)]
pub(crate) struct StreamPermits {
    /// Those of all connections together.
    all: Arc<Semaphore>,
    /// Those of the connection's address; `None` if it may have any number.
    own: Option<(ConnectionLimit, IpAddr)>,
}

/// A request has it until its client has the whole response.
pub(crate) struct StreamPermit {
    _all: OwnedSemaphorePermit,
    _own: Option<ConnectionGuard>,
}

impl StreamPermits {
    pub(crate) fn new(all: Arc<Semaphore>, own: Option<(ConnectionLimit, IpAddr)>) -> Self {
        Self { all, own }
    }

    /// Takes a permit. `None` if all are taken.
    pub(crate) fn try_acquire(&self) -> Option<StreamPermit> {
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let own = match &self.own {
            Some((addresses, address)) => Some(addresses.try_acquire(*address)?),
            None => None,
        };
        Some(StreamPermit { _all: all, _own: own })
    }
}

#[test]
fn a_place_is_taken_until_it_is_dropped() {
    let address = "192.0.2.1".parse().unwrap();
    let (all, addresses) = (Arc::new(Semaphore::new(3)), ConnectionLimit::new(2));
    let [own, any] = [Some((addresses, address)), None].map(|own| StreamPermits::new(Arc::clone(&all), own));
    let of_own = [own.try_acquire(), own.try_acquire()];
    assert!(of_own.iter().all(Option::is_some) && own.try_acquire().is_none(), "of the address");
    let third = any.try_acquire();
    assert!(third.is_some() && any.try_acquire().is_none(), "of all");
    drop(of_own);
    assert!(own.try_acquire().is_some());
}
