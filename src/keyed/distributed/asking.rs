//! A request for one claim: all its tokens at once, or none. The store does not remember a node for it, and this
//! limiter keeps only the cached reply.

use super::map::DistributedMap;
use crate::deadline::Allowed;
use crate::distributed::{
    LeaseGrant, LeaseRequest, Outage, QuotaTerms, Store, StoreError, answered, first, random_node,
};
use crate::error::QuotaConflict;
use crate::sync::Ordering;
use std::hash::Hash;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The pause after an unanswered request, in nanoseconds: meanwhile no other single-claim request goes to the same
/// shard, unless the shard answers a request.
const PAUSE: u64 = 100_000_000;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreReply {
    /// The tokens were granted; `remaining` are left in the store.
    Granted { remaining: u64 },
    /// The tokens are not available, and nothing was taken.
    NotThere,
    /// The store did not answer with tokens. If only the answer was lost, the claim's tokens are lost with it.
    Failed,
    /// The store has another quota of the same version.
    QuotaConflict(QuotaConflict),
    /// The request was not sent, so nothing was taken.
    NotSent,
    /// The request was not sent within the wait that the caller allows.
    TimedOut { waited: Duration },
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DistributedMap<K> {
    /// Requests the tokens of a claim from the key's store. A request that was not sent is repeated once the store can
    /// be reached, for the allowed wait at most, if callers wait during an outage.
    ///
    /// If this future is dropped while the request is under way, the store may have granted the tokens: then they are
    /// lost.
    pub(super) async fn ask(&self, key: &K, hash: u64, cost: u64, allowed: Allowed, terms: QuotaTerms) -> StoreReply {
        let store = self.store(key);
        let began = Instant::now();
        for failures in 1.. {
            let asked = self.ask_once(&*store, key, hash, terms, cost).await;
            if asked != StoreReply::NotSent || self.stores.outage() != Outage::Wait {
                return asked;
            }
            let again = first(self.closing(), store.backoff(failures));
            match allowed.nanos() {
                None => again.await,
                Some(allowed) => {
                    let left = Duration::from_nanos(allowed).saturating_sub(began.elapsed());
                    if timeout(left, again).await.is_err() {
                        return StoreReply::TimedOut { waited: began.elapsed() };
                    }
                }
            }
            if self.is_closed() || self.limiter_here(key, hash).is_some() {
                return StoreReply::NotThere;
            }
        }
        StoreReply::Failed
    }

    async fn ask_once(&self, store: &dyn Store, key: &K, hash: u64, terms: QuotaTerms, cost: u64) -> StoreReply {
        let pause = store.shard().map(|shard| self.pause(shard));
        if pause.is_some_and(|pause| self.time.now() < pause.load(Ordering::Acquire)) {
            return StoreReply::Failed;
        }
        let ask = LeaseRequest { want: cost, at_once: true, leave: true, ..LeaseRequest::new(random_node(), 1, terms) };
        let sent = Instant::now();
        let answer = answered(store, ask).await;
        let (now, took) = (self.time.now(), sent.elapsed().as_nanos() as u64);
        match answer {
            Ok(answer) => {
                if let Some(pause) = pause.filter(|pause| pause.load(Ordering::Relaxed) != 0) {
                    pause.store(0, Ordering::Release);
                }
                store.tally().note_answer(store, &ask, &answer, sent);
                // A cached reply is read by the terms of this limiter.
                if answer.terms.is_none() {
                    self.shards.note(key, hash, now, |cached| cached.record_answer(&terms, &answer, now, took));
                }
                Self::outcome(cost, &answer)
            }
            Err(error) => {
                if let (StoreError::Unreachable(_), Some(pause)) = (&error, pause) {
                    pause.store(now.saturating_add(PAUSE), Ordering::Release);
                }
                store.tally().lose(store, &error, took);
                match error.conflict() {
                    Some(conflict) => StoreReply::QuotaConflict(conflict),
                    None if matches!(error, StoreError::NotSent(_)) => StoreReply::NotSent,
                    None => StoreReply::Failed,
                }
            }
        }
    }

    fn outcome(cost: u64, answer: &LeaseGrant) -> StoreReply {
        if answer.now >= cost { StoreReply::Granted { remaining: answer.remaining } } else { StoreReply::NotThere }
    }
}
