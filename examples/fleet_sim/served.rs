//! A line that takes its time for each ask, one after the other, as Redis does on its one core.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tollgate::distributed::{LeaseGrant, LeaseRequest, MemoryStore, Store, StoreCounters, StoreError};

/// Clones are the same line.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    line: MemoryStore,
    /// For one ask.
    time: Duration,
    /// When all asks so far are done.
    free: Arc<Mutex<Instant>>,
}

impl Served {
    pub(crate) fn new(line: MemoryStore, time: Duration) -> Served {
        Served { line, time, free: Arc::new(Mutex::new(Instant::now())) }
    }

    /// When an ask that comes now is done.
    fn queue(&self) -> Instant {
        let mut free = self.free.lock().expect("nobody panics with it");
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
            self.line.ask(ask).await
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.line.tally()
    }
}
