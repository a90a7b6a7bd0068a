//! The public verbs. They document and delegate.

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

/// A waiting rate limiter with a bucket for each key - user, address, API key - that many machines share; from
/// [`KeyedBuilder::distributed`](crate::KeyedBuilder::distributed).
///
/// Of each key, all machines together are granted no more than its burst and its rate, as if one
/// [`Limiter`] that is [shared](crate::Builder::distributed) stood there. Cheap to clone; clones share everything.
///
/// **Most keys are seen once**, and cost one round trip and no memory: a claim asks the key's line for its tokens, to be had at
/// once or not at all. A refusal takes nothing from anybody. What the line said is remembered: until the tokens can be there,
/// [`within`](SharedKeyedConsume::within) and [`try_acquire`](Self::try_acquire) refuse without asking.
///
/// **A key that is busy** - asked for eight times within a second, or waited for - gets a limiter here, with a line of its own, a
/// lease, and a task that asks: so that callers do not wait for the network while tokens are here, and those who wait are
/// served in order. When nobody has called for a while it gives back what it has, and is forgotten.
///
/// **Memory** holds the keys that are busy and those of which something was said that still counts;
/// [`max_keys`](crate::KeyedBuilder::max_keys) bounds the number of each. Churning through keys resets nobody's limit, since that
/// is not kept here: whoever drives out what was said of others costs a round trip each.
///
/// While the lines cannot be reached, callers wait, fail or share a quota of this node's own as the line's
/// [`Outage`](crate::distributed::Outage) says, for each key by itself.
///
/// `Eq`, `Hash` and `Clone` of the keys must not call this limiter. They may panic.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{KeyedLimiter, Quota, lease::MemoryStore};
///
/// let stores = MemoryStore::new(); // or RedisStore::connect("redis://...", "users").await?
/// let node = || KeyedLimiter::builder().quota(Quota::per_second(10).burst(5)).max_keys(100_000).distributed(stores.clone()).build();
/// let (one, two) = (node()?, node()?);
/// let begun = tokio::time::Instant::now();
/// for _ in 0..5 {
///     one.consume(&"ann", 1).await?;
///     two.consume(&"ann", 1).await?;
/// }
/// assert!(begun.elapsed() >= std::time::Duration::from_millis(500)); // 5 at once, of both together
/// two.consume(&"bob", 5).await?; // whatever ann does
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
    /// Waits until `cost` tokens of the key are there.
    ///
    /// # Errors
    ///
    /// As [`Limiter::consume`], [`Unreachable`](ConsumeError::Unreachable) where the line's outage is
    /// `Fail`, and [`TooManyKeys`](ConsumeError::TooManyKeys) for a key that has to be waited for while as many others as
    /// [`max_keys`](crate::KeyedBuilder::max_keys) allows have limiters here.
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

    /// [`consume`](Self::consume) that holds the key itself, for spawned tasks.
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

    /// Takes `cost` tokens of the key if they are here and nobody waits for it; never waits, never overtakes.
    ///
    /// It cannot ask. So a key that has no limiter here is denied once, without saying when, and finds the tokens when it comes
    /// again after a round trip; half of the burst is the most that can be had so. For keys that are seldom seen,
    /// [`consume`](Self::consume)`(..).`[`within`](SharedKeyedConsume::within)`(..)` is what asks.
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
                return Err(Denied { retry_after, remaining, by: Bound::Quota(0) }.into());
            }
            Route::Ask => map.limiter(key, hash, false),
        };
        let limiter = limiter.ok_or_else(|| map.too_many_at_once())?;
        limiter.try_acquire_owned(cost).map(DistributedKeyedGrant::of_limiter)
    }

    /// The key's limiter, which is a node of the key's line: made if there is none, and kept for as long as somebody holds it.
    /// For streams, sockets, services and [joint claims](crate::join).
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

    /// How many tokens of the key [`try_acquire`](Self::try_acquire) could take now: what is here.
    pub fn available(&self, key: &K) -> u64 {
        self.map.limiter_here(key, self.map.hash(key)).map_or(0, |limiter| limiter.available())
    }

    /// How long a [`consume`](Self::consume) of `cost` on the key made now would wait at least, by what is known here; `None` if
    /// that is nothing.
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
            Route::Ask => None,
        }
    }

    /// The quota of the key.
    pub fn quota(&self, key: &K) -> Quota {
        self.map.quota(key)
    }
}

impl<K, S> DistributedKeyedLimiter<K, S> {
    /// Ends it on this node: every waiter and every later caller gets `Closed`. Grants already out stay valid.
    pub fn close(&self) {
        self.map.close();
    }

    /// True once [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.map.is_closed()
    }

    /// A picture for metrics. Looks at each limiter there is.
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
    /// Without the keys: they are the users' users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedKeyedLimiter").field(&self.map).finish()
    }
}
