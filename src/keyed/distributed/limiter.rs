//! The public methods of the distributed keyed limiter. They document and delegate.

use super::map::{DistributedMap, Route};
use super::{DistributedKeyedConsume, DistributedKeyedGrant, DistributedKeyedSnapshot};
use crate::distributed::StoreSnapshot;
use crate::error::{Bound, ConsumeError, Denied, TryAcquireError};
use crate::{Limiter, Quota};
use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A waiting rate limiter with a bucket for each key (user, address, API key), shared by many machines; from
/// [`KeyedBuilder::distributed`](crate::KeyedBuilder::distributed).
///
/// For each key, all machines together are granted no more than its burst and its rate, as by a single [`Limiter`] that
/// is [distributed](crate::Builder::distributed). Cloning is cheap; clones share everything.
///
/// **Most keys are seen once.** They cost one round trip and no memory: a claim requests its tokens from the key's
/// store, all of them at once or none. A denial takes nothing from any node. The reply is cached: until the tokens can
/// be available, [`within`](DistributedKeyedConsume::within) and [`try_acquire`](Self::try_acquire) refuse without a
/// request.
///
/// **A busy key**, with eight requests within a second or with waiting callers, gets a limiter on this node, with its
/// own queue, a lease and a refill task. Callers then do not wait for the network while the node has tokens, and
/// waiting callers are served in order. After a time without calls the limiter returns its tokens and is forgotten.
///
/// **Memory** holds the busy keys and the cached replies that are still useful;
/// [`max_keys`](crate::KeyedBuilder::max_keys) bounds the number of each. A caller that uses many different keys cannot
/// reset the limit of any key, because the limits are kept in the store. It can only evict cached replies, at a cost of
/// one round trip each.
///
/// While the stores cannot be reached, callers wait, fail or use this node's own quota, as the store's
/// [`Outage`](crate::distributed::Outage) says. This is decided for each key separately.
///
/// `Eq`, `Hash` and `Clone` of the keys must not call this limiter. They may panic.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{KeyedLimiter, Quota, distributed::MemoryStore};
///
/// let stores = MemoryStore::new(); // or RedisStore::connect("redis://...", "users").await?
/// let quota = Quota::per_second(10).burst(5);
/// let node = || KeyedLimiter::builder().quota(quota).max_keys(100_000).distributed(stores.clone()).build();
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
pub struct DistributedKeyedLimiter<K, S = RandomState> {
    pub(super) map: Arc<DistributedMap<K, S>>,
}

impl<K, S> DistributedKeyedLimiter<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Waits until `cost` tokens of the key are available, and takes them.
    ///
    /// # Errors
    ///
    /// As [`Limiter::consume`]. [`Unreachable`](ConsumeError::Unreachable) if the store's outage behavior is `Fail`.
    /// [`TooManyKeys`](ConsumeError::TooManyKeys) if the claim has to wait for its key while as many other keys as
    /// [`max_keys`](crate::KeyedBuilder::max_keys) allows have limiters on this node.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time; see [`DistributedKeyedConsume`].
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn consume<'k>(&self, key: &'k K, cost: u64) -> DistributedKeyedConsume<'k, K, S> {
        DistributedKeyedConsume::new(&self.map, Cow::Borrowed(key), cost)
    }

    /// Like [`consume`](Self::consume), but owns the key, for spawned tasks.
    ///
    /// # Errors
    ///
    /// As [`consume`](Self::consume).
    ///
    /// # Cancel safety
    ///
    /// As [`consume`](Self::consume).
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn consume_owned(self, key: K, cost: u64) -> DistributedKeyedConsume<'static, K, S> {
        DistributedKeyedConsume::new(&self.map, Cow::Owned(key), cost)
    }

    /// Takes `cost` tokens of the key if they are on this node and no caller waits for the key. It never waits and
    /// never overtakes.
    ///
    /// It cannot send a request. A key without a limiter on this node is therefore denied once, without a time to
    /// retry; a retry after a round trip finds the tokens. At most half of the burst can be taken this way. For keys
    /// that are rarely seen, use [`consume`](Self::consume)`(..).`[`within`](DistributedKeyedConsume::within)`(..)`,
    /// which sends a request.
    ///
    /// # Errors
    ///
    /// As [`Limiter::try_acquire`], and [`TooManyKeys`](TryAcquireError::TooManyKeys) as with
    /// [`consume`](Self::consume).
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn try_acquire(&self, key: &K, cost: u64) -> Result<DistributedKeyedGrant<K, S>, TryAcquireError> {
        let (map, hash) = (&self.map, self.map.hash(key));
        if map.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(DistributedKeyedGrant::of_store(map, key.clone(), hash, 0, 0));
        }
        let terms = map.terms(key);
        if cost > terms.most_held() {
            return Err(TryAcquireError::TooLarge { cost, most: terms.most_held() });
        }
        let now = map.time.now();
        let limiter = match map.route(key, hash, &terms, cost, now) {
            Route::Limiter(limiter) => Some(limiter),
            Route::Later { at, remaining } => {
                map.spare();
                let retry_after = Some(Duration::from_nanos(at - now));
                return Err(Denied::new(retry_after, remaining, Bound::Quota(0)).into());
            }
            Route::Request => map.limiter(key, hash, false),
        };
        let limiter = limiter.ok_or_else(|| map.too_many_at_once())?;
        limiter.try_acquire_owned(cost).map(DistributedKeyedGrant::of_limiter)
    }

    /// Returns the key's limiter, which is a node of the key's store. It is created if there is none, and kept for as
    /// long as a handle to it exists. For streams, sockets, services and [joint claims](crate::join).
    ///
    /// # Errors
    ///
    /// [`TooManyKeys`](ConsumeError::TooManyKeys), as with [`consume`](Self::consume).
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn limiter(&self, key: &K) -> Result<Limiter, ConsumeError> {
        self.map.limiter(key, self.map.hash(key), false).ok_or_else(|| self.map.too_many())
    }

    /// Returns how many tokens of the key [`try_acquire`](Self::try_acquire) could take now: those on this node.
    pub fn available(&self, key: &K) -> u64 {
        self.map.limiter_here(key, self.map.hash(key)).map_or(0, |limiter| limiter.available())
    }

    /// Returns the shortest wait of a [`consume`](Self::consume) of `cost` tokens of the key made now, as far as this
    /// node knows; `None` if it knows nothing.
    ///
    /// # Panics
    ///
    /// See [`DistributedKeyedConsume`].
    pub fn estimate(&self, key: &K, cost: u64) -> Option<Duration> {
        let (map, now) = (&self.map, self.map.time.now());
        if cost == 0 && !map.is_closed() {
            return Some(Duration::ZERO);
        }
        match map.route(key, map.hash(key), &map.terms(key), cost, now) {
            Route::Limiter(limiter) => limiter.estimate(cost),
            Route::Later { at, .. } => Some(Duration::from_nanos(at - now)),
            Route::Request => None,
        }
    }

    /// Returns the quota of the key.
    pub fn quota(&self, key: &K) -> Quota {
        self.map.quota(key)
    }
}

impl<K, S> DistributedKeyedLimiter<K, S> {
    /// Closes the limiter on this node: every waiter and every later caller gets `Closed`. Existing grants stay valid.
    pub fn close(&self) {
        self.map.close();
    }

    /// Returns true after [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.map.is_closed()
    }

    /// Returns a snapshot for metrics. Visits each limiter on this node.
    pub fn snapshot(&self) -> DistributedKeyedSnapshot {
        let map = &self.map;
        let mut snapshot = DistributedKeyedSnapshot {
            remembered: map.shards.remembered(),
            spared: map.spared.load(Relaxed),
            store: self.store_snapshot(),
            closed: map.is_closed(),
            ..DistributedKeyedSnapshot::default()
        };
        map.shards.each_limiter(|limiter| {
            let waiting = limiter.snapshot().waiting_tasks;
            snapshot.limiters += 1;
            snapshot.keys_waiting += usize::from(waiting > 0);
            snapshot.waiting_tasks += waiting;
            snapshot.kept += limiter.available();
        });
        snapshot
    }

    fn store_snapshot(&self) -> StoreSnapshot {
        self.map.stores.tally().snapshot()
    }
}

impl<K, S> Clone for DistributedKeyedLimiter<K, S> {
    fn clone(&self) -> Self {
        Self { map: Arc::clone(&self.map) }
    }
}

impl<K, S> fmt::Debug for DistributedKeyedLimiter<K, S> {
    /// Omits the keys, because they may identify users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DistributedKeyedLimiter").field(&self.map).finish()
    }
}
