//! The node's store: Redis, and a record of its answers.

use crate::law::SECOND;
use crate::report::{Lease, Report, now, say};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tollgate::distributed::{LeaseGrant, LeaseRequest, Outage, Store, StoreCounters, StoreError};
use tollgate_redis::RedisStore;

/// How long an answer is remembered after its last token has come, in nanoseconds: longer than the node can take to
/// receive it.
const REMEMBERED: u64 = 1_000_000_000;

/// Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct RecordedStore {
    store: RedisStore,
    /// Tokens per second of the quota.
    rate: u64,
    /// Until when the round trip of an answer counts, and its nanoseconds.
    trips: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl RecordedStore {
    pub(crate) fn new(store: RedisStore, rate: u64) -> Self {
        Self { store, rate, trips: Arc::default() }
    }

    /// The longest round trip, in nanoseconds, of the answers whose tokens may come now. Redis counts the instants of the
    /// tokens from its answer, and the node from the arrival: so the node's are later by at most that much.
    pub(crate) fn longest_trip(&self) -> u64 {
        self.trips().iter().map(|(_, took)| *took).max().unwrap_or(0)
    }

    fn trips(&self) -> std::sync::MutexGuard<'_, Vec<(u64, u64)>> {
        self.trips.lock().expect("no thread panics with the lock")
    }

    fn record(&self, answer: &LeaseGrant, sent: u64) {
        let arrived = now();
        let tokens = answer.queued_before + answer.promised;
        let until = if answer.promised > 0 { arrived + tokens * SECOND / self.rate } else { arrived };
        let took = arrived.saturating_sub(sent);
        let mut trips = self.trips();
        trips.retain(|(until, _)| *until >= arrived);
        trips.push((until + REMEMBERED, took));
        drop(trips);
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
        Store::outage(&self.store)
    }

    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.store.backoff(failures)
    }

    fn shard(&self) -> Option<u64> {
        self.store.shard()
    }
}
