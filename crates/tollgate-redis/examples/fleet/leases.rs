//! The node's store, with a record of its answers.

use crate::clock::StepClock;
use crate::law::SECOND;
use crate::report::{Lease, Report, now, say};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tollgate::distributed::{LeaseGrant, LeaseRequest, Outage, Store, StoreCounters, StoreError};

/// Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct RecordedStore {
    store: Arc<dyn Store>,
    /// Tokens per second of the quota.
    rate: u64,
    /// The clock of the limiter that takes the answers.
    clock: StepClock,
}

impl RecordedStore {
    pub(crate) fn new(store: Arc<dyn Store>, rate: u64, clock: StepClock) -> Self {
        Self { store, rate, clock }
    }

    fn record(&self, answer: &LeaseGrant, sent: u64) {
        let arrived = now();
        let tokens = if answer.promised > 0 { answer.queued_before + answer.promised } else { 0 };
        let lasts = tokens * SECOND / self.rate;
        let (until, took) = (arrived + lasts, arrived.saturating_sub(sent));
        self.clock.answered(sent, lasts);
        let lease = Lease { tokens: answer.now + answer.promised, until, took, busy: answer.busy };
        // Without a parent the node ends.
        _ = say(Report::Leased(lease));
    }
}

impl Store for RecordedStore {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            let sent = now();
            let answer = self.store.ask(ask).await?;
            self.record(&answer, sent);
            Ok(answer)
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.store.tally()
    }

    fn outage(&self) -> Outage {
        self.store.outage()
    }

    fn quota_version(&self) -> u32 {
        self.store.quota_version()
    }

    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.store.backoff(failures)
    }

    fn shard(&self) -> Option<u64> {
        self.store.shard()
    }
}
