//! A claim: its tokens come through a single request, or through the queue of the key's limiter.

use super::cached_reply::CachedReply;
use super::one_key::OneKey;
use super::route_shard::Known;
use crate::Limiter;
use crate::claim::Claim;
use crate::clock::whole_nanos;
use crate::core::state::MAX_COST;
use crate::core::{Core, quietly};
use crate::deadline::Allowed;
use crate::distributed::{LeaseRequest, Outage, QuotaTerms, Store, StoreError, first, random_node, send};
use crate::error::{Bound, ConsumeError, Denied, TryAcquireError};
use crate::permit::Permit;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

/// A claim on `cost` tokens of a key.
pub(super) struct KeyClaim<K> {
    pub(super) key: OneKey<K>,
    pub(super) cost: u64,
    pub(super) allowed: Allowed,
}

/// The origin of granted tokens.
pub(super) enum Tokens {
    OfLimiter(Permit<Arc<Core>>),
    OfStore { cost: u64, remaining: u64 },
}

/// The way of a claim to its tokens.
enum Way {
    /// The store granted them, and has this many left.
    Granted(u64),
    /// The queue of the key's limiter.
    Queue(Limiter),
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> KeyClaim<K> {
    /// Takes the tokens if they are on this node.
    pub(super) fn try_acquire(&self) -> Result<Tokens, TryAcquireError> {
        let (observers, cost) = (&self.key.map.observers, self.cost);
        let limiter = self.try_limiter().inspect_err(|error| observers.refused(cost, *error))?;
        let Some(limiter) = limiter else { return Ok(Tokens::OfStore { cost: 0, remaining: self.key.available() }) };
        // The limiter reports its own refusals.
        let core = limiter.into_core();
        let word = core.try_acquire(cost)?;
        Ok(Tokens::OfLimiter(Permit::new(core, cost, word)))
    }

    /// The limiter that a `try_acquire` asks; `None` if nothing is asked for.
    fn try_limiter(&self) -> Result<Option<Limiter>, TryAcquireError> {
        let (map, cost, now) = (&self.key.map, self.cost, self.key.map.time.now());
        if map.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(None);
        }
        let terms = self.key.terms().map_err(|error| TryAcquireError::of_key(&error))?;
        if cost > terms.most_held() {
            let (most, quota_name) = (terms.most_held(), map.quota_name().text());
            return Err(TryAcquireError::TooLarge { cost, most, by: Bound::Quota(0), quota_name });
        }
        match self.key.known(&terms, cost, now) {
            Some(Known::Limiter(limiter)) => Ok(Some(limiter)),
            Some(Known::Reply(cached)) => {
                map.spared.fetch_add(1, Relaxed);
                let retry_after = Some(Duration::from_nanos(cached.earliest(&terms, cost) - now));
                let remaining = cached.remaining();
                Err(Denied { retry_after, remaining, by: Bound::Quota(0), name: map.quota_name() }.into())
            }
            None => self.key.place(false).map(Some).map_err(|error| TryAcquireError::of_key(&error)),
        }
    }

    /// Waits for the tokens.
    pub(super) async fn acquire(&self) -> Result<Tokens, ConsumeError> {
        let (map, cost, began) = (&self.key.map, self.cost, Instant::now());
        let core = match self.way().await {
            Ok(Way::Granted(remaining)) => {
                map.shards.granted.fetch_add(cost, Relaxed);
                return Ok(Tokens::OfStore { cost, remaining });
            }
            Ok(Way::Queue(limiter)) => limiter.into_core(),
            Err(error) => {
                map.count_refusal();
                map.observers.refused(cost, error);
                return Err(error);
            }
        };
        // The requests were a part of the wait.
        let mut claim = pin!(Claim::with_limit(core, cost, self.allowed.after(began.elapsed())));
        let mut has_entered = false;
        let queued = poll_fn(|cx| {
            let is_first = !std::mem::replace(&mut has_entered, true);
            let answer = ready!(claim.as_mut().poll(cx));
            match answer {
                Err(ConsumeError::TimedOut { .. }) => self.miss(),
                // A claim that had entered the queue was not refused.
                Err(_) if is_first => map.count_refusal(),
                _ => {}
            }
            Poll::Ready(answer)
        });
        queued.await.map(Tokens::OfLimiter)
    }

    /// Finds the way to the tokens. If the map has no limiter for the key, this may send a request.
    ///
    /// If this future is dropped while the request is under way, the store may have granted the tokens: then they are
    /// lost.
    async fn way(&self) -> Result<Way, ConsumeError> {
        let (map, cost, now) = (&self.key.map, self.cost, self.key.map.time.now());
        if map.is_closed() {
            return Err(ConsumeError::Closed);
        }
        if cost == 0 {
            return Ok(Way::Granted(self.key.available()));
        }
        let terms = self.key.terms().map_err(|error| ConsumeError::of_key(&error))?;
        let most = MAX_COST.min(terms.burst());
        if cost > most {
            let by = (terms.burst() <= most).then_some(Bound::Quota(0));
            let quota_name = by.and_then(|_| map.quota_name().text());
            return Err(ConsumeError::TooLarge { cost, most, by, quota_name });
        }
        match self.key.known(&terms, cost, now) {
            Some(Known::Limiter(limiter)) => return Ok(Way::Queue(limiter)),
            Some(Known::Reply(cached)) => {
                self.check_in_time(cached.not_before(&terms, cost), now)
                    .inspect_err(|_| _ = map.spared.fetch_add(1, Relaxed))?;
                // If only this is too late, other nodes may have given back tokens since the reply.
                if self.check_in_time(cached.earliest(&terms, cost), now).is_ok() {
                    return self.limiter().map(Way::Queue);
                }
            }
            None => {}
        }
        if Handle::try_current().is_err() {
            return Err(ConsumeError::NoRuntime);
        }
        let is_rare = map.shards.note(&self.key.key, self.key.hash, now, |cached| cached.count(now));
        // A limiter never has more tokens at once than its allowance. If the map has no place for a limiter, the claim
        // sends a request of its own.
        if !is_rare && cost <= terms.most_held() {
            if let Ok(limiter) = self.key.place(false) {
                return Ok(Way::Queue(limiter));
            }
        }
        let store = self.key.store().map_err(|error| ConsumeError::of_key(&error))?;
        if let Some(way) = self.ask(&*store, terms).await? {
            return Ok(way);
        }
        if let Ok(terms) = self.key.terms() {
            if let Some(Known::Reply(cached)) = self.key.known(&terms, cost, map.time.now()) {
                self.check_in_time(cached.minted(&terms, cost), now)?;
            }
        }
        self.limiter().map(Way::Queue)
    }

    /// Requests the tokens from the key's store: all at once, or none. The store does not remember a node for it. A
    /// request that was not sent is repeated once the store can be reached, for the allowed wait at most, if callers
    /// wait during an outage. Returns `None` if the tokens are not there.
    async fn ask(&self, store: &dyn Store, terms: QuotaTerms) -> Result<Option<Way>, ConsumeError> {
        let (map, began) = (&self.key.map, Instant::now());
        for failures in 1.. {
            let error = match self.ask_once(store, terms).await {
                Ok(remaining) => return Ok(remaining.map(Way::Granted)),
                Err(error) => error,
            };
            if let Some(conflict) = error.conflict() {
                return Err(ConsumeError::QuotaConflict(conflict));
            }
            match map.stores.outage() {
                Outage::Wait if matches!(error, StoreError::NotSent(_)) => {}
                Outage::Fail => return Err(ConsumeError::Unreachable),
                // If only the answer was lost, the claim's tokens are lost with it.
                Outage::Wait | Outage::Share(_) => return self.limiter().map(Way::Queue).map(Some),
            }
            let again = first(map.closing(), store.backoff(failures));
            if timeout(self.allowed().saturating_sub(began.elapsed()), again).await.is_err() {
                let (waited, by, quota_name) = (began.elapsed(), Bound::Quota(0), map.quota_name().text());
                return Err(ConsumeError::TimedOut { waited, by, quota_name });
            }
            if map.is_closed() || self.key.limiter_here().is_some() {
                break;
            }
        }
        Ok(None)
    }

    /// Sends the request once. Returns how many tokens are left in the store, if it has granted the claim's: else nothing was
    /// taken.
    async fn ask_once(&self, store: &dyn Store, terms: QuotaTerms) -> Result<Option<u64>, StoreError> {
        let (map, want) = (&self.key.map, self.cost);
        let mut ask = LeaseRequest { want, at_once: true, leave: true, ..LeaseRequest::new(random_node(), 1, terms) };
        let sent = Instant::now();
        let answer = send(store, &mut ask).await;
        let (now, took) = (map.time.now(), sent.elapsed());
        match answer {
            Ok(answer) => {
                // A cached reply is read by the terms of this limiter.
                if answer.terms.is_none() {
                    let record =
                        |cached: &mut CachedReply| cached.record_answer(&terms, &answer, now, whole_nanos(took));
                    // The store has granted the tokens: a key that panics must not lose them.
                    quietly(|| map.shards.note(&self.key.key, self.key.hash, now, record));
                }
                Ok((answer.now >= want).then_some(answer.remaining))
            }
            // The key's limiter asks until a node says the period that has begun.
            Err(StoreError::OtherPeriod { .. }) => Ok(None),
            Err(error) => {
                store.tally().lose(store, &error, took);
                Err(error)
            }
        }
    }

    /// Refuses a claim made at `now` whose tokens are available at `at`, if that is too late for its allowed wait.
    fn check_in_time(&self, at: u64, now: u64) -> Result<(), ConsumeError> {
        let (estimate, allowed) = (Duration::from_nanos(at.saturating_sub(now)), self.allowed());
        if estimate <= allowed {
            return Ok(());
        }
        let quota_name = self.key.map.quota_name().text();
        Err(ConsumeError::TooLate { estimate, allowed, by: Bound::Quota(0), quota_name })
    }

    fn allowed(&self) -> Duration {
        self.allowed.nanos().map_or(Duration::MAX, Duration::from_nanos)
    }

    /// The key's limiter, in whose queue the claim waits.
    pub(super) fn limiter(&self) -> Result<Limiter, ConsumeError> {
        if self.key.map.is_closed() {
            return Err(ConsumeError::Closed);
        }
        self.key.place(false).map_err(|error| ConsumeError::of_key(&error))
    }

    /// Records that the deadline came before the answer of the store.
    fn miss(&self) {
        let limiter = self.key.limiter_here();
        if let Some(limiter) = limiter.filter(|_| self.key.terms().is_ok_and(|terms| self.cost <= terms.most_held())) {
            limiter.core().miss(self.cost);
        }
    }
}
