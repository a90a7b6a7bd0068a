//! The public verbs. They document and delegate.

use super::core::{Core, Course};
use super::{SharedKeyedConsume, SharedKeyedGrant, SharedKeyedSnapshot};
use crate::error::{Bound, ConsumeError, Denied, TryAcquireError};
use crate::lease::LineSnapshot;
use crate::{Limiter, Quota};
use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A waiting rate limiter with a bucket for each key - user, address, API key - that many machines share; from
/// [`KeyedBuilder::shared`](crate::KeyedBuilder::shared).
///
/// Of each key, all machines together are granted no more than its burst and its rate, as if one
/// [`Limiter`] that is [shared](crate::Builder::shared) stood there. Cheap to clone; clones share everything.
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
/// [`Outage`](crate::lease::Outage) says, for each key by itself.
///
/// `Eq`, `Hash` and `Clone` of the keys must not call this limiter. They may panic.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{KeyedLimiter, Quota, lease::MemoryLine};
///
/// let lines = MemoryLine::new(); // or RedisLine::connect("redis://...", "users").await?
/// let node = || KeyedLimiter::builder().quota(Quota::per_second(10).burst(5)).max_keys(100_000).shared(lines.clone()).build();
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
pub struct SharedKeyedLimiter<K, S = RandomState> {
    pub(super) core: Arc<Core<K, S>>,
}

impl<K, S> SharedKeyedLimiter<K, S>
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
    /// The future can be dropped at any time; see [`SharedKeyedConsume`].
    ///
    /// # Panics
    ///
    /// See [`SharedKeyedConsume`].
    pub fn consume<'k>(&self, key: &'k K, cost: u64) -> SharedKeyedConsume<'k, K, S> {
        SharedKeyedConsume::new(&self.core, Cow::Borrowed(key), cost)
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
    /// See [`SharedKeyedConsume`].
    pub fn consume_owned(self, key: K, cost: u64) -> SharedKeyedConsume<'static, K, S> {
        SharedKeyedConsume::new(&self.core, Cow::Owned(key), cost)
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
    /// See [`SharedKeyedConsume`].
    pub fn try_acquire(&self, key: &K, cost: u64) -> Result<SharedKeyedGrant<K, S>, TryAcquireError> {
        let (core, hash) = (&self.core, self.core.hash(key));
        if core.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        if cost == 0 {
            return Ok(SharedKeyedGrant::of_line(core, key.clone(), hash, 0, 0));
        }
        let terms = core.terms(key);
        if cost > terms.most_held() {
            return Err(TryAcquireError::TooLarge { cost, most: terms.most_held() });
        }
        let now = core.time.now();
        let limiter = match core.course(key, hash, &terms, cost, now) {
            Course::Limiter(limiter) => Some(limiter),
            Course::Later { at, remaining } => {
                core.spare();
                let retry_after = Some(Duration::from_nanos(at - now));
                return Err(Denied { retry_after, remaining, by: Bound::Quota(0) }.into());
            }
            Course::Ask => core.limiter(key, hash, false),
        };
        let limiter = limiter.ok_or_else(|| core.too_many_at_once())?;
        limiter.try_acquire_owned(cost).map(SharedKeyedGrant::of_limiter)
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
    /// See [`SharedKeyedConsume`].
    pub fn limiter(&self, key: &K) -> Result<Limiter, ConsumeError> {
        self.core.limiter(key, self.core.hash(key), false).ok_or_else(|| self.core.too_many())
    }

    /// How many tokens of the key [`try_acquire`](Self::try_acquire) could take now: what is here.
    pub fn available(&self, key: &K) -> u64 {
        self.core.limiter_here(key, self.core.hash(key)).map_or(0, |limiter| limiter.available())
    }

    /// How long a [`consume`](Self::consume) of `cost` on the key made now would wait at least, by what is known here; `None` if
    /// that is nothing.
    ///
    /// # Panics
    ///
    /// See [`SharedKeyedConsume`].
    pub fn estimate(&self, key: &K, cost: u64) -> Option<Duration> {
        let (core, now) = (&self.core, self.core.time.now());
        if cost == 0 && !core.is_closed() {
            return Some(Duration::ZERO);
        }
        match core.course(key, core.hash(key), &core.terms(key), cost, now) {
            Course::Limiter(limiter) => limiter.estimate(cost),
            Course::Later { at, .. } => Some(Duration::from_nanos(at - now)),
            Course::Ask => None,
        }
    }

    /// The quota of the key.
    pub fn quota(&self, key: &K) -> Quota {
        self.core.quota(key)
    }
}

impl<K, S> SharedKeyedLimiter<K, S> {
    /// Ends it on this node: every waiter and every later caller gets `Closed`. Grants already out stay valid.
    pub fn close(&self) {
        self.core.close();
    }

    /// True once [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// A picture for metrics. Looks at each limiter there is.
    pub fn snapshot(&self) -> SharedKeyedSnapshot {
        let core = &self.core;
        let mut snapshot = SharedKeyedSnapshot {
            remembered: core.shelves.remembered(),
            spared: core.spared.load(Relaxed),
            line: self.line_snapshot(),
            closed: core.is_closed(),
            ..SharedKeyedSnapshot::default()
        };
        core.shelves.each_limiter(|limiter| {
            let waiting = limiter.snapshot().waiting_tasks;
            snapshot.limiters += 1;
            snapshot.keys_waiting += usize::from(waiting > 0);
            snapshot.waiting_tasks += waiting;
            snapshot.kept += limiter.available();
        });
        snapshot
    }

    fn line_snapshot(&self) -> LineSnapshot {
        self.core.lines.tally().snapshot()
    }
}

impl<K, S> Clone for SharedKeyedLimiter<K, S> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<K, S> fmt::Debug for SharedKeyedLimiter<K, S> {
    /// Without the keys: they are the users' users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedKeyedLimiter").field(&self.core).finish()
    }
}
