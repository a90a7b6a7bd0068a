//! Keyed limiters: one quota per user, address or API key, in bounded memory.
//!
//! | file | its noun |
//! |---|---|
//! | `mod.rs`, `builder.rs`, `snapshot.rs` | the face: documents and delegates, checks configurations |
//! | `claim.rs`, `grant.rs`, `hold.rs` | what callers hold |
//! | `map.rs` | which room a key is in, and what happens when a room cannot go on by itself |
//! | `room.rs`, `table.rs` | a shard: keys, words, seats, and who may be forgotten |
//! | `bound.rs` | how many keys there may be |
//! | `rate.rs` | levels and words; pure |
//! | `seat.rs` | a level becomes a limiter's core, and a core a level |
//! | `hub.rs`, `agenda.rs` | who sleeps for all keys, and until when |
//! | `top.rs` | who is refused most |

mod agenda;
mod bound;
mod builder;
mod claim;
mod grant;
mod hold;
mod hub;
mod map;
mod rate;
mod room;
mod seat;
mod snapshot;
mod table;
mod top;

pub use builder::KeyedBuilder;
pub use claim::{KeyedConsume, KeyedConsumeOwned, KeyedWithin, KeyedWithinOwned};
pub use grant::{KeyedGrant, OwnedKeyedGrant};
pub use snapshot::KeyedSnapshot;

use crate::error::{ConfigError, ConsumeError, ReleaseError, TryAcquireError};
use crate::{Quota, blocking};
use grant::Pass;
use hold::{Borrowed, Owned};
use map::{Arrival, Map};
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A waiting rate limiter with a bucket and a line for each key: user, address, API key.
///
/// The verbs are those of [`Limiter`](crate::Limiter), with the key first, and so are their promises, for each key by
/// itself. Cheap to clone; clones share everything.
///
/// A key is kept in memory while it owes tokens, which takes itself and 8 bytes, or is waited on. A key that owes nothing is
/// forgotten sooner or later; it cannot be told from one that was never there. With [`max_keys`](KeyedBuilder::max_keys)
/// the number of keys is bounded, and churning through random keys resets nobody's limit.
///
/// `Eq`, `Hash` and `Clone` of the keys, and the hasher, must not call this limiter: they run under its locks. They may
/// panic.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{KeyedLimiter, Quota};
///
/// let users: KeyedLimiter<String> =
///     KeyedLimiter::builder().quota(Quota::per_second(1_000).burst(5)).max_keys(100_000).build()?;
/// let (ann, bob) = ("ann".to_owned(), "bob".to_owned());
/// for _ in 0..10 {
///     let _grant = users.consume(&ann, 1).await?; // 5 at once, then one each millisecond
/// }
/// assert_eq!(users.available(&bob), 5); // whatever ann does
/// # Ok(()) }
/// ```
pub struct KeyedLimiter<K, S = RandomState> {
    map: Arc<Map<K, S>>,
}

impl<K> KeyedLimiter<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    /// A limiter of one quota for each key, with the defaults of [`builder`](Self::builder). Its memory grows with the keys
    /// that owe tokens at the same time.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] if the quota makes no sense for keys.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let users = KeyedLimiter::new(Quota::per_second(10))?;
    /// assert_eq!(users.available(&"ann"), 10);
    /// # Ok(()) }
    /// ```
    pub fn new(quota: Quota) -> Result<Self, ConfigError> {
        Self::builder().quota(quota).build()
    }
}

impl<K> KeyedLimiter<K> {
    /// A limiter with a bound on its keys, a quota for each key, or another hasher or clock.
    pub fn builder() -> KeyedBuilder<K> {
        KeyedBuilder::new()
    }
}

impl<K, S> KeyedLimiter<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Waits in the key's line until `cost` tokens are there. See [`Limiter::consume`](crate::Limiter::consume) for how the
    /// line works; that of each key is its own.
    ///
    /// # Errors
    ///
    /// As [`Limiter::consume`](crate::Limiter::consume), and [`TooManyKeys`](ConsumeError::TooManyKeys) for a key that is
    /// new while as many as [`max_keys`](KeyedBuilder::max_keys) allows owe tokens.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time; see [`KeyedConsume`].
    ///
    /// # Panics
    ///
    /// See [`KeyedConsume`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, Quota};
    /// let users = KeyedLimiter::new(Quota::per_second(100).burst(1))?;
    /// users.consume(&17, 1).await?;
    /// users.consume(&17, 1).await?; // 10 ms later
    /// assert!(users.consume(&17, 5).within(Duration::from_millis(1)).await.is_err());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn consume<'a>(&'a self, key: &'a K, cost: u64) -> KeyedConsume<'a, K, S> {
        KeyedConsume::new(Borrowed { map: &self.map, key }, cost)
    }

    /// [`consume`](Self::consume) that holds limiter and key itself, for spawned tasks.
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
    /// See [`KeyedConsume`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Quota};
    /// let users = KeyedLimiter::new(Quota::per_second(100))?;
    /// let claim = users.clone().consume_owned("ann".to_owned(), 3);
    /// tokio::spawn(async move { claim.await.map(|grant| grant.cost()) }).await??;
    /// # Ok(()) }
    /// ```
    pub fn consume_owned(self, key: K, cost: u64) -> KeyedConsumeOwned<K, S> {
        KeyedConsumeOwned::new(Owned { map: self.map, key }, cost)
    }

    /// [`consume`](Self::consume) for a thread without a runtime: blocks it until the tokens are there.
    ///
    /// # Errors
    ///
    /// As [`consume`](Self::consume), but never [`NoRuntime`](ConsumeError::NoRuntime).
    ///
    /// # Panics
    ///
    /// See [`KeyedConsume`].
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_second(1_000).burst(1))?;
    /// for _ in 0..3 {
    ///     users.blocking_consume(&"ann", 1)?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn blocking_consume<'a>(&'a self, key: &'a K, cost: u64) -> Result<KeyedGrant<'a, K, S>, ConsumeError> {
        let hash = self.map.hash(key);
        let result = match self.map.arrive(key, hash, cost, None) {
            Arrival::Taken(taken) => Ok(taken),
            Arrival::Wait(seat) => {
                let answer = blocking::consume(Arc::clone(&seat), cost).map(|permit| self.map.taken(hash, permit));
                self.map.let_go(hash, seat);
                answer
            }
            Arrival::Refused(error) => {
                self.map.seating.audience.refused(cost, error);
                Err(error)
            }
        };
        if result.is_err() {
            self.map.count_refusal(key, hash);
        }
        result.map(|taken| KeyedGrant(Pass::new(Borrowed { map: &self.map, key }, hash, cost, taken)))
    }

    /// Takes `cost` tokens of the key if they are there and nobody waits for it; never waits, never overtakes.
    ///
    /// # Errors
    ///
    /// As [`Limiter::try_acquire`](crate::Limiter::try_acquire), and
    /// [`TooManyKeys`](TryAcquireError::TooManyKeys) for a key that is new while as many as
    /// [`max_keys`](KeyedBuilder::max_keys) allows owe tokens.
    ///
    /// # Panics
    ///
    /// Where `Hash`, `Eq` or `Clone` of the key do, or `quota_by`: the limiter is then as it was before.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, ManualClock, Quota, TryAcquireError};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(10).burst(3)).clock(ManualClock::new());
    /// let users = builder.build()?;
    /// assert_eq!(users.try_acquire(&"ann", 2)?.remaining(), 1);
    /// let Err(TryAcquireError::Denied(denied)) = users.try_acquire(&"ann", 2) else { panic!() };
    /// assert_eq!(denied.retry_after, Some(std::time::Duration::from_millis(100)));
    /// assert!(users.try_acquire(&"bob", 2).is_ok());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn try_acquire<'a>(&'a self, key: &'a K, cost: u64) -> Result<KeyedGrant<'a, K, S>, TryAcquireError> {
        let hash = self.map.hash(key);
        let taken = self.map.try_acquire(key, hash, cost)?;
        Ok(KeyedGrant(Pass::new(Borrowed { map: &self.map, key }, hash, cost, taken)))
    }

    /// [`try_acquire`](Self::try_acquire) whose grant holds limiter and key itself.
    #[cfg(feature = "tower")]
    pub(crate) fn try_acquire_owned(self, key: K, cost: u64) -> Result<OwnedKeyedGrant<K, S>, TryAcquireError> {
        let hash = self.map.hash(&key);
        let taken = self.map.try_acquire(&key, hash, cost)?;
        Ok(OwnedKeyedGrant(Pass::new(Owned { map: self.map, key }, hash, cost, taken)))
    }

    /// Releases `tokens` of the key's grants that were [forgotten](KeyedGrant::forget), and serves its line. If that is more
    /// than the key owes: of those that the [overflow](KeyedBuilder::overflow) granted, to whomever.
    ///
    /// # Errors
    ///
    /// A [`ReleaseError`] for more than is owed, or without an in-flight cap; nothing moves then.
    pub fn release(&self, key: &K, tokens: u64) -> Result<(), ReleaseError> {
        self.map.release(key, tokens)
    }

    /// How many tokens of the key [`try_acquire`](Self::try_acquire) could take now: 0 while anybody waits for it.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let users = KeyedLimiter::new(Quota::per_hour(10))?;
    /// assert_eq!(users.available(&"never seen"), 10);
    /// # Ok(()) }
    /// ```
    pub fn available(&self, key: &K) -> u64 {
        self.map.available(key)
    }

    /// The quota of the key.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let users = KeyedLimiter::new(Quota::per_second(10))?;
    /// users.set_quota_for(&"ann", Quota::per_second(50))?;
    /// assert_eq!((users.quota(&"ann"), users.quota(&"bob")), (Quota::per_second(50), Quota::per_second(10)));
    /// # Ok(()) }
    /// ```
    pub fn quota(&self, key: &K) -> Quota {
        self.map.quota(key)
    }

    /// By how many tokens claims on the key overrun what there is; see [`Limiter::deficiency`](crate::Limiter::deficiency).
    pub fn deficiency(&self, key: &K) -> u64 {
        self.map.deficiency(key)
    }

    /// How long a [`consume`](Self::consume) of `cost` on the key made now would wait; see
    /// [`Limiter::estimate`](crate::Limiter::estimate).
    pub fn estimate(&self, key: &K, cost: u64) -> Option<Duration> {
        self.map.estimate(key, cost)
    }

    /// Changes the quota of all keys, except for those that were given [one of their own](Self::set_quota_for); it replaces
    /// [`quota_by`](KeyedBuilder::quota_by) too. What each key holds stays, as far as the new burst, and waiters are timed
    /// anew.
    ///
    /// Every key in memory is gone through, a few hundred at a time under one lock: an operator's action, of some 10 ms per
    /// million keys. Calls made meanwhile meet the old quota or the new one.
    ///
    /// # Errors
    ///
    /// What is wrong with the new quota; nothing changes then.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let users = KeyedLimiter::new(Quota::per_second(10))?;
    /// users.set_quota_for(&"ann", Quota::per_second(50))?;
    /// users.set_quota(Quota::per_second(5))?;
    /// assert_eq!((users.available(&"ann"), users.available(&"bob")), (10, 5)); // ann fills up at 50 per second
    /// # Ok(()) }
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        builder::check(&quota)?;
        self.map.set_quota(quota);
        Ok(())
    }

    /// Gives one key a quota of its own, which it keeps until [`reset_quota_for`](Self::reset_quota_for). What it holds
    /// stays, as far as the new burst. A key with a quota of its own is never forgotten, and counts among
    /// [`max_keys`](KeyedBuilder::max_keys).
    ///
    /// # Errors
    ///
    /// What is wrong with the quota, or [`TooManyKeys`](ConfigError::TooManyKeys); nothing changes then.
    pub fn set_quota_for(&self, key: &K, quota: Quota) -> Result<(), ConfigError> {
        builder::check(&quota)?;
        let most = self.map.bound.most().unwrap_or(u64::MAX);
        if self.map.set_quota_for(key, Some(quota)) { Ok(()) } else { Err(ConfigError::TooManyKeys { most }) }
    }

    /// Gives a key the quota that it would have as a new one. What it holds stays.
    pub fn reset_quota_for(&self, key: &K) {
        self.map.set_quota_for(key, None);
    }

    /// Mints what is due by now, serves all lines, and forgets keys that owe nothing: only a limiter on a
    /// [manual clock](crate::ManualClock) needs it. Goes through all keys.
    pub fn tick(&self) {
        self.map.tick();
    }

    /// Ends it: every waiter and every later caller gets `Closed`. Grants already out stay valid.
    pub fn close(&self) {
        self.map.close();
    }

    /// A picture for metrics. Goes through the tables, one small lock at a time, but not through their keys; those that
    /// are waited on or have tokens in flight are looked at one by one.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_hour(1))?;
    /// let _ = users.try_acquire(&"ann", 1)?;
    /// assert!(users.try_acquire(&"ann", 1).is_err());
    /// let snapshot = users.snapshot();
    /// assert_eq!((snapshot.keys, snapshot.most_refused), (1, vec![("ann", 1)]));
    /// # Ok(()) }
    /// ```
    pub fn snapshot(&self) -> KeyedSnapshot<K> {
        KeyedSnapshot::of(&self.map)
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn audience(&self) -> &crate::vigil::Audience {
        &self.map.seating.audience
    }

    /// The background task, for those who want to spawn it themselves, on a runtime of their choice. Nobody has to: the
    /// first waiter of each runtime spawns one, for all keys.
    pub fn replenisher(&self) -> KeyedReplenisher {
        KeyedReplenisher { attendant: self.map.hub.by_hand() }
    }
}

impl<K, S> Clone for KeyedLimiter<K, S> {
    fn clone(&self) -> Self {
        Self { map: Arc::clone(&self.map) }
    }
}

impl<K, S> fmt::Debug for KeyedLimiter<K, S> {
    /// Without the keys: they are the users' users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyedLimiter").field(&self.map).finish()
    }
}

/// A future that serves the lines of all keys; from [`KeyedLimiter::replenisher`]. It ends when the last clone of the
/// limiter is dropped.
///
/// # Cancel safety
///
/// It can be dropped at any time: waiters are woken and look for another one where they are.
///
/// # Panics
///
/// When polled outside of a tokio runtime, or on one without timers, as `tokio::time::sleep` does.
#[must_use = "a replenisher does nothing unless it is spawned or polled"]
#[pin_project::pin_project]
#[derive(Debug)]
pub struct KeyedReplenisher {
    #[pin]
    attendant: hub::Attendant,
}

impl Future for KeyedReplenisher {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().attendant.poll(cx)
    }
}
