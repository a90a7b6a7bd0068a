//! A connection with a latency of its own to a store in memory.

use crate::fixture::*;
use tollgate::distributed::{LeaseGrant, LeaseRequest, Store, StoreCounters, StoreError};

/// Clones share the connection.
#[derive(Clone, Debug)]
pub struct Distant {
    store: MemoryStore,
    latency: Duration,
    /// Each message takes up to this time longer.
    jitter: Duration,
    /// One answer in so many is lost; 0: none.
    losses: u32,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl Distant {
    /// `latency` is the time to the store, and the same back.
    pub fn new(store: &MemoryStore, latency: Duration, seed: u64) -> Self {
        let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { store: store.beside(""), latency, jitter: Duration::ZERO, losses: 0, random }
    }

    pub fn unreliable(self, jitter: Duration, losses: u32) -> Self {
        Self { jitter, losses, ..self }
    }

    async fn travel(&self) {
        let part = self.random.lock().unwrap().f64();
        sleep(self.latency + self.jitter.mul_f64(part)).await;
    }
}

impl Store for Distant {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            self.travel().await;
            let answer = self.store.ask(ask).await;
            self.travel().await;
            if self.losses > 0 && self.random.lock().unwrap().u32(..self.losses) == 0 {
                return Err(StoreError::Unreachable("the answer was lost".to_owned()));
            }
            answer
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.store.tally()
    }
}
