//! A store that needs time for each request, one after the other, as Redis does on its one core.

use crate::fixture::*;
use tollgate::distributed::{LeaseGrant, LeaseRequest, Store, StoreCounters, StoreError};

/// Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    store: MemoryStore,
    /// The time of one request.
    time: Duration,
    /// The instant at which all requests so far are finished.
    free: Arc<Mutex<Instant>>,
}

impl Served {
    pub(crate) fn new(store: MemoryStore, time: Duration) -> Served {
        Served { store, time, free: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Adds a request that arrives now, and returns the instant at which it is finished.
    fn queue(&self) -> Instant {
        let mut free = self.free.lock().expect("no thread panics with the lock");
        *free = Instant::now().max(*free) + self.time;
        *free
    }
}

impl Store for Served {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            if !self.time.is_zero() {
                sleep_until(self.queue()).await;
            }
            self.store.ask(ask).await
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.store.tally()
    }
}
