//! A store in memory that fails as it is told.

use crate::fixture::*;
use tollgate::distributed::{Circuit, LeaseGrant, LeaseRequest, Store, StoreCounters, StoreError};

#[derive(Clone, Debug)]
pub(crate) struct Failing {
    pub store: MemoryStore,
    error: Arc<Mutex<Option<StoreError>>>,
}

impl Failing {
    pub fn over(store: MemoryStore) -> Self {
        Self { store, error: Arc::default() }
    }

    /// What requests fail with from now on.
    pub fn fail(&self, error: impl Into<Option<StoreError>>) {
        *self.error.lock().unwrap() = error.into();
    }
}

impl Store for Failing {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        let error = self.error.lock().unwrap().clone();
        match error {
            Some(error) => {
                if let StoreError::Reply { kind, .. } = error {
                    self.tally().count_error_reply(kind);
                }
                Box::pin(async { Err(error) })
            }
            None => self.store.ask(ask),
        }
    }

    fn tally(&self) -> &StoreCounters {
        self.store.tally()
    }

    fn outage(&self) -> Outage {
        Store::outage(&self.store)
    }

    /// One that answers, and one that does not while requests fail.
    fn circuits(&self) -> Vec<Circuit> {
        let fails = self.error.lock().unwrap().is_some();
        vec![Circuit::Closed, if fails { Circuit::Open } else { Circuit::Closed }]
    }
}
