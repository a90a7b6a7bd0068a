//! The route of a claim: its tokens come through a single request, or through the queue of the key's limiter.

use super::asking::StoreReply;
use super::map::{DistributedMap, Route};
use crate::Limiter;
use crate::core::state::MAX_COST;
use crate::distributed::{Outage, QuotaTerms};
use crate::error::{Bound, ConsumeError};
use crate::keyed::keys::{Request, Step};
use crate::keyed::map::Taken;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::runtime::Handle;

/// A claim without a route yet.
pub(super) struct Router<'a, K, S> {
    map: &'a DistributedMap<K, S>,
    key: &'a K,
    hash: u64,
    cost: u64,
    allowed: Option<Duration>,
    /// The start of the allowed wait, in the limiter's nanoseconds.
    since: u64,
}

impl<'a, K, S> Router<'a, K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn of(map: &'a DistributedMap<K, S>, request: &Request<'a, K>) -> Self {
        let Request { key, hash, cost, allowed } = *request;
        Self { map, key, hash, cost, allowed: allowed.nanos().map(Duration::from_nanos), since: map.time.now() }
    }

    pub(super) fn begin(&self) -> Step {
        let cost = self.cost;
        if self.map.is_closed() {
            return Step::Done(Err(ConsumeError::Closed));
        }
        if cost == 0 {
            return self.granted(0);
        }
        let terms = match self.map.terms(self.key) {
            Ok(terms) => terms,
            Err(error) => return Step::Done(Err(ConsumeError::of_key(&error))),
        };
        let most = MAX_COST.min(terms.most_claimed());
        if cost > most {
            let by = (terms.most_claimed() <= most).then_some(Bound::Quota(0));
            let quota_name = by.and_then(|_| self.map.quota_name(self.key).text());
            return Step::Done(Err(ConsumeError::TooLarge { cost, most, by, quota_name }));
        }
        match self.map.route(self.key, self.hash, &terms, cost, self.since) {
            Route::Limiter(limiter) => self.wait_in_queue(limiter),
            Route::Later { not_before, .. } if self.is_too_late(not_before) => {
                self.map.count_spared();
                self.too_late(not_before)
            }
            // Other nodes may have given back tokens since the reply.
            Route::Later { at, .. } if self.is_too_late(at) && cost <= terms.burst() => self.ask(terms),
            Route::Later { .. } => self.wait(),
            Route::Paused => self.wait(),
            // A cost above the burst is never available at once.
            Route::Request if cost > terms.burst() => self.wait(),
            Route::Request => self.ask(terms),
        }
    }

    /// Sends a request, or lets the key's limiter send it if the key has frequent requests.
    fn ask(&self, terms: QuotaTerms) -> Step {
        if Handle::try_current().is_err() {
            return Step::Done(Err(ConsumeError::NoRuntime));
        }
        let is_rare = self.map.shards.note(self.key, self.hash, self.since, |cached| cached.count(self.since));
        // A limiter never has more tokens at once than its allowance. If the map has no place for a limiter, the claim
        // sends a request of its own.
        if !is_rare
            && self.cost <= terms.most_held()
            && let Some(limiter) = self.map.place(self.key, self.hash, false)
        {
            return self.wait_in_queue(limiter);
        }
        if self.map.excess_length(self.key).is_some() {
            return Step::Done(Err(ConsumeError::of_key(&self.map.no_place(self.key))));
        }
        let (map, key) = (self.map.owned(), self.key.clone());
        let Self { hash, cost, allowed, .. } = *self;
        Step::Ask(Box::pin(async move {
            let reply = map.ask(&key, hash, terms, cost, allowed).await;
            Router { map: &*map, key: &key, hash, cost, allowed, since: map.time.now() }.go_on(reply)
        }))
    }

    /// Continues after the store has answered, or could not be reached.
    fn go_on(&self, asked: StoreReply) -> Step {
        match asked {
            StoreReply::Granted { remaining } => self.granted(remaining),
            StoreReply::NotThere => {
                let Ok(terms) = self.map.terms(self.key) else { return self.wait() };
                match self.map.route(self.key, self.hash, &terms, self.cost, self.since) {
                    Route::Limiter(limiter) => self.wait_in_queue(limiter),
                    Route::Later { minted, .. } if self.is_too_late(minted) => self.too_late(minted),
                    Route::Later { .. } => self.wait(),
                    Route::Request | Route::Paused => self.wait(),
                }
            }
            StoreReply::QuotaConflict(conflict) => Step::Done(Err(ConsumeError::QuotaConflict(conflict))),
            StoreReply::TimedOut { waited } => {
                let (by, quota_name) = (Bound::Quota(0), self.map.quota_name(self.key).text());
                Step::Done(Err(ConsumeError::TimedOut { waited, by, quota_name }))
            }
            StoreReply::Failed | StoreReply::NotSent if self.map.stores.outage() == Outage::Fail => {
                Step::Done(Err(ConsumeError::Unreachable))
            }
            StoreReply::Failed | StoreReply::NotSent => self.wait(),
        }
    }

    fn granted(&self, remaining: u64) -> Step {
        self.map.granted.fetch_add(self.cost, Relaxed);
        Step::Done(Ok(Taken::whole(remaining)))
    }

    /// Whether tokens that are available at `at` are too late for the allowed wait.
    fn is_too_late(&self, at: u64) -> bool {
        self.allowed.is_some_and(|allowed| Duration::from_nanos(at.saturating_sub(self.since)) > allowed)
    }

    /// Refuses a claim for tokens that are available at `at`.
    fn too_late(&self, at: u64) -> Step {
        let estimate = Duration::from_nanos(at.saturating_sub(self.since));
        let allowed = self.allowed.unwrap_or(Duration::MAX);
        // A distributed key has one quota.
        let quota_name = self.map.quota_name(self.key).text();
        Step::Done(Err(ConsumeError::TooLate { estimate, allowed, by: Bound::Quota(0), quota_name }))
    }

    /// Waits in the queue of the key's limiter.
    fn wait(&self) -> Step {
        match self.map.place(self.key, self.hash, false) {
            Some(limiter) => self.wait_in_queue(limiter),
            None => Step::Done(Err(ConsumeError::of_key(&self.map.no_place(self.key)))),
        }
    }

    fn wait_in_queue(&self, limiter: Limiter) -> Step {
        Step::Wait(limiter.into_core())
    }
}
