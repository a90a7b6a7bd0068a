//! A connection with a latency of its own to a store in memory.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::sleep;
use tollgate::distributed::{LeaseGrant, LeaseRequest, MemoryStore, Store, StoreCounters, StoreError};

/// Clones share the connection.
#[derive(Clone, Debug)]
pub struct Distant {
    store: MemoryStore,
    latency: Duration,
}

impl Distant {
    /// `latency` is the time to the store, and the same back.
    pub fn new(store: &MemoryStore, latency: Duration) -> Self {
        Self { store: store.beside(""), latency }
    }
}

impl Store for Distant {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            sleep(self.latency).await;
            let answer = self.store.ask(ask).await;
            sleep(self.latency).await;
            answer
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.store.tally()
    }
}
