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
    busy: Option<Busy>,
}

/// A store that needs this time for each request, one after the other, as Redis does on its one core.
#[derive(Clone, Debug)]
pub struct Busy {
    time: Duration,
    /// When all requests so far are finished.
    free: Arc<Mutex<Instant>>,
}

impl Busy {
    pub fn new(time: Duration) -> Self {
        Self { time, free: Arc::new(Mutex::new(Instant::now())) }
    }

    /// The end of a request that arrives now.
    fn end(&self) -> Instant {
        let mut free = self.free.lock().unwrap();
        *free = Instant::now().max(*free) + self.time;
        *free
    }
}

impl Distant {
    /// `latency` is the time to the store, and the same back.
    pub fn new(store: &MemoryStore, latency: Duration, seed: u64) -> Self {
        let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { store: store.beside(""), latency, jitter: Duration::ZERO, losses: 0, random, busy: None }
    }

    pub fn unreliable(self, jitter: Duration, losses: u32) -> Self {
        Self { jitter, losses, ..self }
    }

    pub fn served(self, busy: &Busy) -> Self {
        Self { busy: Some(busy.clone()), ..self }
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
            if let Some(busy) = &self.busy {
                sleep_until(busy.end()).await;
            }
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
