//! The public methods of a distributed keyed limiter.

use super::builder::DistributedKeyedBuilder;
use super::claim::KeyClaim;
use super::map::DistributedMap;
use super::one_key::OneKey;
use super::route_shard::Known;
use super::{DistributedKeyedConsume, DistributedKeyedGrant, DistributedKeyedSnapshot};
use crate::core::drop_quietly;
use crate::deadline::Allowed;
use crate::distributed::Stores;
use crate::error::{ConfigError, ConsumeError, TryAcquireError};
use crate::keyed::ToKey;
use crate::keyed::quotas::Quotas;
use crate::{Limiter, QuotaSnapshot};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A [`KeyedLimiter`](crate::KeyedLimiter) with quotas that many machines share.
///
/// Each key has a store, named by the key's text. All machines that use the same quota and the same stores together are
/// granted no more than the burst and the rate of each key, as by a single [`Limiter`] that is
/// [distributed](crate::Builder::distributed).
///
/// **Most keys are seen once.** They cost one round trip and no memory: a claim requests its tokens from the key's
/// store, all of them at once or none. A denial takes nothing from any node. The reply is cached: until the tokens can
/// be available, [`within`](DistributedKeyedConsume::within) and [`try_acquire`](Self::try_acquire) refuse without a
/// request.
///
/// **A busy key**, with eight requests within a second or with waiting callers, gets a [limiter](Self::limiter) on this
/// node, with its own queue, a lease and a refill task. Callers then do not wait for the network while the node has
/// tokens, and waiting callers are served in order. After a time without calls the limiter returns its tokens and is
/// forgotten.
///
/// **Memory** holds the busy keys and the cached replies that are still useful;
/// [`max_keys`](DistributedKeyedBuilder::max_keys) bounds the number of each. A caller that uses many different keys
/// cannot reset the limit of any key, because the limits are kept in the store. It can only evict cached replies, at a
/// cost of one round trip each. A claim that has to wait while as many other keys have limiters is refused with
/// `TooManyKeys`.
///
/// While the stores cannot be reached, callers wait, fail or use this node's own quota, as the store's
/// [`Outage`](crate::distributed::Outage) says. This is decided for each key separately.
///
/// Cloning is cheap; clones share all state. `Eq` and `Clone` of the keys run under locks of the limiter, so they must
/// not call it. They may panic.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{DistributedKeyedLimiter, Quota, distributed::MemoryStore};
///
/// let stores = MemoryStore::new(); // or RedisStore::connect("redis://...", "users").await?
/// let quota = Quota::per_second(10).burst(5);
/// let node = || DistributedKeyedLimiter::builder(stores.clone()).quota(quota).max_keys(100_000).build();
/// let (one, two) = (node()?, node()?);
/// let begun = tokio::time::Instant::now();
/// for _ in 0..5 {
///     one.consume(&"ann", 1).await?;
///     two.consume(&"ann", 1).await?;
/// }
/// assert!(begun.elapsed() >= std::time::Duration::from_millis(500)); // both nodes together had 5 at once
/// two.consume(&"bob", 5).await?; // independent of ann
/// # Ok(()) }
/// ```
pub struct DistributedKeyedLimiter<K> {
    pub(super) map: Arc<DistributedMap<K>>,
}

impl<K: 'static> DistributedKeyedLimiter<K> {
    /// Returns a builder of a limiter in which the text of a key names its store.
    ///
    /// The text is part of a key in Redis. If a key's text is long, or a secret, use [`builder_by`](Self::builder_by).
    pub fn builder(stores: impl Stores) -> DistributedKeyedBuilder<K>
    where
        K: fmt::Display,
    {
        Self::builder_by(stores, K::to_string)
    }

    /// Returns a builder of a limiter with stores that are named by `name`. Two keys with the same name share one
    /// quota. `name` is called outside of all locks, whenever a key is used that has no limiter in this process.
    pub fn builder_by(
        stores: impl Stores,
        name: impl Fn(&K) -> String + Send + Sync + 'static,
    ) -> DistributedKeyedBuilder<K> {
        DistributedKeyedBuilder::new(Arc::new(stores), Box::new(name))
    }

    /// Returns true once [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.map.is_closed()
    }

    /// Closes the limiter on this node: every waiter and every later caller gets `Closed`. Existing grants stay valid.
    pub fn close(&self) {
        self.map.close();
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn observers(&self) -> &crate::observe::Observers {
        &self.map.observers
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn circuits(&self) -> Vec<crate::distributed::Circuit> {
        self.map.stores.circuits()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DistributedKeyedLimiter<K> {
    /// Waits until `cost` tokens of the key are available. The future owns the limiter and the key.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::consume`], and [`TooManyKeys`](ConsumeError::TooManyKeys) if the claim has to
    /// wait while as many other keys have limiters as `max_keys` allows.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time; see [`DistributedKeyedConsume`].
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn consume(&self, key: &(impl ToKey<K> + ?Sized), cost: u64) -> DistributedKeyedConsume<K> {
        DistributedKeyedConsume::new(self.claim(key, cost))
    }

    /// Takes `cost` tokens of the key if they are on this node.
    ///
    /// This cannot send a request. A key without a limiter on this node is therefore denied once, without a time to
    /// retry; a retry after a round trip finds the tokens. At most half of the burst can be taken this way. For keys
    /// that are rarely seen, use `consume(..).within(..)`, which sends a request.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::try_acquire`], and [`TooManyKeys`](TryAcquireError::TooManyKeys) as
    /// [`consume`](Self::consume) does.
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn try_acquire(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
    ) -> Result<DistributedKeyedGrant<K>, TryAcquireError> {
        let claim = self.claim(key, cost);
        match claim.try_acquire() {
            Ok(tokens) => Ok(DistributedKeyedGrant { key: claim.key, tokens }),
            Err(error) => {
                self.map.count_refusal();
                drop_quietly(claim);
                Err(error)
            }
        }
    }

    /// Blocks the thread, which needs no runtime, until `cost` tokens of the key are available. The key gets a limiter
    /// on this node.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`consume`](Self::consume), except [`NoRuntime`](ConsumeError::NoRuntime).
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn blocking_consume(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
    ) -> Result<DistributedKeyedGrant<K>, ConsumeError> {
        self.consume(key, cost).block()
    }

    /// Blocks the thread until `cost` tokens of the key are available, for at most `allowed`; see
    /// [`blocking_consume`](Self::blocking_consume).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`blocking_consume`](Self::blocking_consume), [`TooLate`](ConsumeError::TooLate) and
    /// [`TimedOut`](ConsumeError::TimedOut).
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn blocking_consume_within(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
        allowed: Duration,
    ) -> Result<DistributedKeyedGrant<K>, ConsumeError> {
        self.consume(key, cost).within(allowed).block()
    }

    /// Returns the limiter of a key, which is created if the key has none: an ordinary node of the key's store, for
    /// [joint claims](crate::join), streams and services, and for calls that this type does not have. It is kept for as
    /// long as a handle to it exists.
    ///
    /// # Errors
    ///
    /// * [`TooManyKeys`](ConfigError::TooManyKeys) while as many other keys have limiters as `max_keys` allows.
    /// * [`KeyTooLong`](ConfigError::KeyTooLong) if the key's name is too long.
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn limiter(&self, key: &(impl ToKey<K> + ?Sized)) -> Result<Limiter, ConfigError> {
        self.with_key(key, |key| key.place(false))
    }

    /// Pauses a key on this node for `duration` from now; see
    /// [`KeyedLimiter::pause_for`](crate::KeyedLimiter::pause_for). The key gets a limiter on this node, even beyond
    /// `max_keys`.
    pub fn pause_for(&self, key: &(impl ToKey<K> + ?Sized), duration: Duration) {
        self.with_key(key, |key| {
            if let Ok(limiter) = key.place(true) {
                limiter.pause_for(duration);
            }
        })
    }

    /// Ends the pause of a key on this node now. Does nothing if the key is not paused.
    pub fn resume(&self, key: &(impl ToKey<K> + ?Sized)) {
        self.with_key(key, |key| {
            if let Some(limiter) = key.limiter_here() {
                limiter.resume();
            }
        })
    }

    /// Returns how many tokens of the key are on this node. If the key has no limiter here, these are the tokens that
    /// its store had left at its last reply, which take a request to get.
    pub fn available(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        self.with_key(key, OneKey::available)
    }

    /// Returns the shortest wait for `cost` tokens of the key as far as this node knows, and `None` if it knows nothing
    /// of the key.
    pub fn estimate(&self, key: &(impl ToKey<K> + ?Sized), cost: u64) -> Option<Duration> {
        self.with_key(key, |key| {
            let now = self.map.time.now();
            if cost == 0 && !self.is_closed() {
                return Some(Duration::ZERO);
            }
            let terms = key.terms().ok()?;
            match key.known(&terms, cost, now)? {
                Known::Limiter(limiter) => limiter.estimate(cost),
                Known::Reply(cached) => Some(Duration::from_nanos(cached.earliest(&terms, cost) - now)),
            }
        })
    }

    /// Returns the quota of the key.
    pub fn quotas(&self, key: &(impl ToKey<K> + ?Sized)) -> Quotas {
        self.with_key(key, |key| Quotas::default().and(key.quota()))
    }

    /// Returns the state of the key's quota as far as this node knows, for a response to its caller.
    pub fn reported_quotas(&self, key: &(impl ToKey<K> + ?Sized)) -> Vec<QuotaSnapshot> {
        self.with_key(key, |key| {
            let available = key.available();
            let more_in = self.estimate(&key.key, available.saturating_add(1));
            if let Some(limiter) = key.limiter_here() {
                let quotas = limiter.snapshot().quotas.into_iter();
                return quotas.map(|quota| QuotaSnapshot { available, more_in, ..quota }).collect();
            }
            let ((name, quota), level) = (key.quota(), available as i64);
            vec![QuotaSnapshot { name, quota, head: 0, level, available, more_in, dry_run: false, would_refuse: 0 }]
        })
    }

    /// Returns a snapshot for metrics. Visits the keys that have a limiter on this node, one by one.
    pub fn snapshot(&self) -> DistributedKeyedSnapshot {
        let map = &self.map;
        let mut snapshot = DistributedKeyedSnapshot {
            granted: map.shards.granted.load(Relaxed),
            refunded: map.shards.refunded.load(Relaxed),
            refused: map.refused.load(Relaxed),
            closed: map.is_closed(),
            cached: map.shards.cached() as u64,
            spared: map.spared.load(Relaxed),
            store: map.stores.tally().snapshot(),
            ..DistributedKeyedSnapshot::default()
        };
        map.shards.each_limiter(|limiter| {
            let seen = limiter.snapshot();
            snapshot.keys += 1;
            snapshot.keys_waiting += u64::from(seen.waiting_tasks > 0);
            snapshot.waiting_tasks += seen.waiting_tasks;
            snapshot.waiting_tokens = snapshot.waiting_tokens.saturating_add(seen.waiting_tokens);
            snapshot.granted = snapshot.granted.wrapping_add(seen.granted);
            snapshot.refunded = snapshot.refunded.wrapping_add(seen.refunded);
            snapshot.lateness = snapshot.lateness.max(seen.lateness);
            snapshot.kept = snapshot.kept.saturating_add(limiter.available());
        });
        snapshot
    }

    fn claim(&self, key: &(impl ToKey<K> + ?Sized), cost: u64) -> KeyClaim<K> {
        KeyClaim { key: OneKey::new(&self.map, key), cost, allowed: Allowed::ANY }
    }

    /// Calls `act` with the owned key. A panic in the `Drop` of that key is no panic of the caller.
    fn with_key<R>(&self, form: &(impl ToKey<K> + ?Sized), act: impl FnOnce(&OneKey<K>) -> R) -> R {
        let key = OneKey::new(&self.map, form);
        let result = act(&key);
        drop_quietly(key);
        result
    }
}

impl<K> Clone for DistributedKeyedLimiter<K> {
    fn clone(&self) -> Self {
        Self { map: Arc::clone(&self.map) }
    }
}

impl<K> fmt::Debug for DistributedKeyedLimiter<K> {
    /// Prints no keys: they may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DistributedKeyedLimiter").field(&self.map).finish()
    }
}
