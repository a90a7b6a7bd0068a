//! Places for the requests of HTTP/2 connections.
//!
//! One connection has many requests at a time. So that a bound on connections is still one on requests, and on the memory
//! and the files that they need, each request counts like a connection of its address.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::addresses::{Addresses, Counted};

/// The places for the requests of one connection.
#[derive(Clone)]
pub(crate) struct Places {
    /// Those of all connections together.
    all: Arc<Semaphore>,
    /// Those of the connection's address; `None` if it may have any number.
    own: Option<(Addresses, IpAddr)>,
}

/// A request has it until its client has the whole response.
pub(crate) struct Place {
    _all: OwnedSemaphorePermit,
    _own: Option<Counted>,
}

impl Places {
    pub(crate) fn new(all: Arc<Semaphore>, own: Option<(Addresses, IpAddr)>) -> Self {
        Self { all, own }
    }

    /// Takes a place. `None` if all are taken.
    pub(crate) fn enter(&self) -> Option<Place> {
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let own = match &self.own {
            Some((addresses, address)) => Some(addresses.enter(*address)?),
            None => None,
        };
        Some(Place { _all: all, _own: own })
    }
}

#[test]
fn a_place_is_taken_until_it_is_dropped() {
    let address = "192.0.2.1".parse().unwrap();
    let (all, addresses) = (Arc::new(Semaphore::new(3)), Addresses::new(2));
    let [own, any] = [Some((addresses, address)), None].map(|own| Places::new(Arc::clone(&all), own));
    let of_own = [own.enter(), own.enter()];
    assert!(of_own.iter().all(Option::is_some) && own.enter().is_none(), "of the address");
    let third = any.enter();
    assert!(third.is_some() && any.enter().is_none(), "of all");
    drop(of_own);
    assert!(own.enter().is_some());
}
