//! The route of a claim: its tokens come through a single request, or through the queue of the key's limiter.

use super::asking::StoreReply;
use super::map::{DistributedMap, Route};
use crate::Limiter;
use crate::core::Core;
use crate::core::state::MAX_COST;
use crate::deadline::Allowed;
use crate::distributed::{Outage, QuotaTerms};
use crate::error::{Bound, ConsumeError, TryAcquireError};
use crate::permit::Permit;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::runtime::Handle;

/// A claim on `cost` tokens of a key.
#[derive(Clone)]
pub(super) struct KeyClaim<K> {
    pub(super) map: Arc<DistributedMap<K>>,
    pub(super) key: K,
    pub(super) hash: u64,
    pub(super) cost: u64,
    pub(super) allowed: Allowed,
    /// The start of the allowed wait, in the limiter's nanoseconds.
    pub(super) since: u64,
}

/// The origin of granted tokens.
pub(super) enum Tokens {
    OfLimiter(Permit<Arc<Core>>),
    OfStore { cost: u64, remaining: u64 },
}

/// The next step of a claim.
pub(super) enum Step {
    /// Waits for the answer of the store.
    Ask(Asking),
    /// Waits in the queue of the key's limiter.
    Wait(Arc<Core>),
    /// The tokens were granted by the store, which has this many left.
    Granted(u64),
    Refused(ConsumeError),
}

/// The future of a request to a store, which resolves to the next step of the claim.
pub(super) type Asking = Pin<Box<dyn Future<Output = Step> + Send>>;

impl<K: Hash + Eq + Clone + Send + Sync + 'static> KeyClaim<K> {
    /// Takes the tokens if they are on this node.
    pub(super) fn try_acquire(&self) -> Result<Tokens, TryAcquireError> {
        let Self { map, key, hash, cost, .. } = self;
        let limiter = map.try_route(key, *hash, *cost).inspect_err(|error| map.observers.refused(*cost, *error))?;
        let Some(limiter) = limiter else { return Ok(Tokens::OfStore { cost: 0, remaining: 0 }) };
        // The limiter reports its own refusals.
        let core = limiter.into_core();
        let word = core.try_acquire(*cost)?;
        Ok(Tokens::OfLimiter(Permit::new(core, *cost, word)))
    }

    /// The first step.
    pub(super) fn begin(&mut self) -> Step {
        let cost = self.cost;
        self.since = self.map.time.now();
        if self.map.is_closed() {
            return Step::Refused(ConsumeError::Closed);
        }
        if cost == 0 {
            return self.granted(0);
        }
        let terms = match self.map.terms(&self.key) {
            Ok(terms) => terms,
            Err(error) => return Step::Refused(ConsumeError::of_key(&error)),
        };
        let most = MAX_COST.min(terms.most_claimed());
        if cost > most {
            let by = (terms.most_claimed() <= most).then_some(Bound::Quota(0));
            let quota_name = by.and_then(|_| self.map.quota_name().text());
            return Step::Refused(ConsumeError::TooLarge { cost, most, by, quota_name });
        }
        match self.map.route(&self.key, self.hash, &terms, cost, self.since) {
            Route::Limiter(limiter) => Step::Wait(limiter.into_core()),
            Route::Later { not_before, .. } if self.is_too_late(not_before) => {
                self.map.count_spared();
                self.too_late(not_before)
            }
            // Other nodes may have given back tokens since the reply.
            Route::Later { at, .. } if self.is_too_late(at) => self.ask(terms),
            Route::Later { .. } | Route::Paused => self.wait(),
            Route::Request => self.ask(terms),
        }
    }

    /// Sends a request, or lets the key's limiter send it if the key has frequent requests.
    fn ask(&self, terms: QuotaTerms) -> Step {
        if Handle::try_current().is_err() {
            return Step::Refused(ConsumeError::NoRuntime);
        }
        let is_rare = self.map.shards.note(&self.key, self.hash, self.since, |cached| cached.count(self.since));
        // A limiter never has more tokens at once than its allowance. If the map has no place for a limiter, the claim
        // sends a request of its own.
        if !is_rare && self.cost <= terms.most_held() {
            if let Some(limiter) = self.map.place(&self.key, self.hash, false) {
                return Step::Wait(limiter.into_core());
            }
        }
        if self.map.excess_length(&self.key).is_some() {
            return Step::Refused(ConsumeError::of_key(&self.map.no_place(&self.key)));
        }
        let claim = self.clone();
        Step::Ask(Box::pin(async move {
            let reply = claim.map.ask(&claim.key, claim.hash, claim.cost, claim.allowed, terms).await;
            Self { since: claim.map.time.now(), ..claim }.go_on(reply)
        }))
    }

    /// Continues after the store has answered, or could not be reached.
    fn go_on(&self, reply: StoreReply) -> Step {
        match reply {
            StoreReply::Granted { remaining } => self.granted(remaining),
            StoreReply::NotThere => {
                let Ok(terms) = self.map.terms(&self.key) else { return self.wait() };
                match self.map.route(&self.key, self.hash, &terms, self.cost, self.since) {
                    Route::Limiter(limiter) => Step::Wait(limiter.into_core()),
                    Route::Later { minted, .. } if self.is_too_late(minted) => self.too_late(minted),
                    Route::Later { .. } | Route::Request | Route::Paused => self.wait(),
                }
            }
            StoreReply::QuotaConflict(conflict) => Step::Refused(ConsumeError::QuotaConflict(conflict)),
            StoreReply::TimedOut { waited } => {
                let (by, quota_name) = (Bound::Quota(0), self.map.quota_name().text());
                Step::Refused(ConsumeError::TimedOut { waited, by, quota_name })
            }
            StoreReply::Failed | StoreReply::NotSent if self.map.stores.outage() == Outage::Fail => {
                Step::Refused(ConsumeError::Unreachable)
            }
            StoreReply::Failed | StoreReply::NotSent => self.wait(),
        }
    }

    fn granted(&self, remaining: u64) -> Step {
        self.map.granted.fetch_add(self.cost, Relaxed);
        Step::Granted(remaining)
    }

    /// Whether tokens that are available at `at` are too late for the allowed wait.
    fn is_too_late(&self, at: u64) -> bool {
        self.allowed.nanos().is_some_and(|allowed| at.saturating_sub(self.since) > allowed)
    }

    /// Refuses a claim for tokens that are available at `at`.
    fn too_late(&self, at: u64) -> Step {
        let estimate = Duration::from_nanos(at.saturating_sub(self.since));
        let allowed = self.allowed.nanos().map_or(Duration::MAX, Duration::from_nanos);
        let quota_name = self.map.quota_name().text();
        Step::Refused(ConsumeError::TooLate { estimate, allowed, by: Bound::Quota(0), quota_name })
    }

    /// Waits in the queue of the key's limiter.
    fn wait(&self) -> Step {
        match self.limiter() {
            Ok(limiter) => Step::Wait(limiter.into_core()),
            Err(error) => Step::Refused(error),
        }
    }

    pub(super) fn limiter(&self) -> Result<Limiter, ConsumeError> {
        let place = self.map.place(&self.key, self.hash, false);
        place.ok_or_else(|| ConsumeError::of_key(&self.map.no_place(&self.key)))
    }
}
