//! The number of connections of each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_tower::key::ClientAddress;

/// Counts the connections of each client address: an IPv4 address, or the /64 network of IPv6.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit {
    max: usize,
    counts: Arc<Mutex<HashMap<ClientAddress, usize>>>,
}

/// One connection of an address.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    client: ClientAddress,
    addresses: ConnectionLimit,
}

impl ConnectionLimit {
    /// Each may have `max` connections.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, counts: Arc::default() }
    }

    /// Counts a connection until the result is dropped. `None` if the address has as many as it may have.
    pub(crate) fn try_acquire(&self, address: IpAddr) -> Option<ConnectionGuard> {
        let client = ClientAddress::from(address);
        let mut counts = self.lock();
        let count = counts.entry(client).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(ConnectionGuard { client, addresses: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientAddress, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.addresses.lock().entry(self.client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[test]
fn an_address_without_connections_is_forgotten() {
    let addresses = ConnectionLimit::new(2);
    let enter = |address: &str| addresses.try_acquire(address.parse().unwrap());
    let first = [enter("2001:db8::1"), enter("2001:db8::2")];
    assert!(first.iter().all(Option::is_some) && enter("2001:db8::3").is_none() && enter("2001:db8:0:1::").is_some());
    assert_eq!(addresses.lock().len(), 1);
    drop(first);
    assert!(addresses.lock().is_empty());
}
