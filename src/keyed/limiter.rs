//! The public methods.

mod changes;
mod view;

use super::grant::GrantOfKey;
use super::map::{Map, Taken};
use super::to_key::{HeldKey, MapRef};
use super::{
    KeyedBuilder, KeyedConsume, KeyedConsumeOwned, KeyedGrant, KeyedReplenisher, OwnedKeyedGrant, Quotas, ToKey,
};
use crate::Limiter;
use crate::core::in_use::InUse;
use crate::deadline::Allowed;
use crate::error::{ConfigError, ConsumeError, ReleaseError, TryAcquireError};
use crate::wait::Wait;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// A waiting rate limiter with a bucket and a queue for each key: user, address, API key.
///
/// The methods are those of [`Limiter`](crate::Limiter), with the key as the first argument, and give the same
/// guarantees for each key separately. Cloning is cheap; clones share all state.
///
/// A key is kept in memory while it owes tokens, which takes the size of the key and 8 bytes for a quota or 16 for two,
/// or while callers wait for it. A key that owes nothing is forgotten sooner or later, and then behaves like a new key.
/// Without a quota, with only a parent or an in-flight cap, a key owes nothing.
/// The number of keys is bounded, by 1,000,000 or by [`max_keys`](KeyedBuilder::max_keys): a client that cycles through
/// random keys resets no limit and does not fill the memory.
///
/// Many machines share the quota of each key with a `DistributedKeyedLimiter` (feature `distributed`).
///
/// `Eq`, `Hash` and `Clone` of the keys, and the hasher, must not call this limiter, because they run under its locks.
/// They may panic.
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
    pub(super) map: Arc<Map<K, S>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> KeyedLimiter<K> {
    /// Creates a limiter with the same quota, or the same quotas, for each key and the defaults of
    /// [`builder`](Self::builder).
    ///
    /// At most 1,000,000 keys can owe tokens at the same time; new keys are refused then. Set another bound with
    /// [`max_keys`](KeyedBuilder::max_keys), or none with [`unbounded_keys`](KeyedBuilder::unbounded_keys).
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the quota is invalid or not supported for keys.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let users = KeyedLimiter::new(Quota::per_second(10))?;
    /// assert_eq!(users.available(&"ann"), 10);
    /// # Ok(()) }
    /// ```
    pub fn new(quotas: impl Into<Quotas>) -> Result<Self, ConfigError> {
        Self::builder().quotas(quotas).build()
    }
}

impl<K> KeyedLimiter<K> {
    /// Returns a builder, for a bound on the number of keys, different quotas for different keys, or another hasher or
    /// clock.
    pub fn builder() -> KeyedBuilder<K> {
        KeyedBuilder::new()
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedLimiter<K, S> {
    /// Returns the parent limiter, if there is one.
    pub fn parent(&self) -> Option<Limiter> {
        self.map.template.parent.as_ref().map(|parent| Limiter::from_core(Arc::clone(&parent.limiter)))
    }

    /// Waits in the key's queue until `cost` tokens are available. Each key has its own queue; see
    /// [`Limiter::consume`](crate::Limiter::consume) for how it works.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::consume`](crate::Limiter::consume),
    /// [`TooManyKeys`](crate::ConsumeError::TooManyKeys) for a new key while as many keys owe tokens as
    /// [`max_keys`](KeyedBuilder::max_keys) allows, and [`BadQuota`](crate::ConsumeError::BadQuota) of
    /// [`quota_by`](KeyedBuilder::quota_by).
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
    /// let _grant = users.consume(&17, 1).await?;
    /// let _grant = users.consume(&17, 1).await?; // 10 ms later
    /// assert!(users.consume(&17, 5).within(Duration::from_millis(1)).await.is_err());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn consume<'a, 'k, Q>(&'a self, key: &'k Q, cost: u64) -> KeyedConsume<'a, 'k, K, S, Q>
    where
        Q: ToKey<K> + ?Sized,
    {
        KeyedConsume::new(&self.map, key, cost)
    }

    /// Waits like [`consume`](Self::consume), and returns no grant: for a limiter where neither the keys nor the parent
    /// have an in-flight cap; see [`Limiter::wait`](crate::Limiter::wait).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`consume`](Self::consume), and [`MustHold`](crate::ConsumeError::MustHold), at once and
    /// always, if the keys or the parent have an in-flight cap.
    ///
    /// # Cancel safety
    ///
    /// Same as [`consume`](Self::consume).
    ///
    /// # Panics
    ///
    /// See [`KeyedConsume`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Quota};
    /// let users = KeyedLimiter::new(Quota::per_second(1_000).burst(1))?;
    /// users.wait(&17, 1).await?;
    /// users.wait(&17, 1).await?; // a millisecond later
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn wait<'a, 'k, Q>(&'a self, key: &'k Q, cost: u64) -> Wait<KeyedConsume<'a, 'k, K, S, Q>>
    where
        Q: ToKey<K> + ?Sized,
    {
        Wait::new(self.consume(key, cost), self.map.holds_in_flight())
    }

    /// Like [`consume`](Self::consume), with a future that owns the limiter and the key, for spawned tasks.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`consume`](Self::consume).
    ///
    /// # Cancel safety
    ///
    /// Same as [`consume`](Self::consume).
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
        KeyedConsumeOwned::new(self.map, key, cost)
    }

    /// Like [`consume`](Self::consume), for a thread without a runtime: blocks the thread until the tokens are
    /// available.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`consume`](Self::consume), except [`NoRuntime`](ConsumeError::NoRuntime).
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
    ///     let _grant = users.blocking_consume(&"ann", 1)?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn blocking_consume(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
    ) -> Result<KeyedGrant<'_, K, S>, ConsumeError> {
        self.map.consume_on_thread(key, cost, Allowed::ANY)
    }

    /// Like [`blocking_consume`](Self::blocking_consume), for at most `allowed`; see
    /// [`Consume::within`](crate::Consume::within).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`blocking_consume`](Self::blocking_consume), [`TooLate`](ConsumeError::TooLate) and
    /// [`TimedOut`](ConsumeError::TimedOut).
    ///
    /// # Panics
    ///
    /// See [`KeyedConsume`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ConsumeError, KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_hour(1))?;
    /// let _grant = users.blocking_consume_within(&"ann", 1, Duration::from_millis(200))?;
    /// let refusal = users.blocking_consume_within(&"ann", 1, Duration::from_millis(200)).unwrap_err();
    /// assert!(matches!(refusal, ConsumeError::TooLate { .. }));
    /// # Ok(()) }
    /// ```
    pub fn blocking_consume_within(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
        allowed: Duration,
    ) -> Result<KeyedGrant<'_, K, S>, ConsumeError> {
        self.map.consume_on_thread(key, cost, Allowed::at_most(allowed))
    }

    /// Takes `cost` tokens of the key if they are available and no caller waits for the key. Never waits, and never
    /// overtakes a waiter.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::try_acquire`](crate::Limiter::try_acquire),
    /// [`TooManyKeys`](TryAcquireError::TooManyKeys) for a new key while as many keys owe tokens as
    /// [`max_keys`](KeyedBuilder::max_keys) allows, and [`BadQuota`](TryAcquireError::BadQuota) of
    /// [`quota_by`](KeyedBuilder::quota_by).
    ///
    /// # Panics
    ///
    /// Panics if `Hash`, `Eq` or `Clone` of the key panics, or `quota_by`. The limiter is then as it was before.
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
    pub fn try_acquire<Q>(&self, key: &Q, cost: u64) -> Result<KeyedGrant<'_, K, S>, TryAcquireError>
    where
        Q: ToKey<K> + ?Sized,
    {
        try_acquire::<_, _, Q>(&*self.map, key, cost)
    }

    /// Like [`try_acquire`](Self::try_acquire), with a grant that owns the limiter and the key, for spawned tasks.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_acquire`](Self::try_acquire).
    ///
    /// # Panics
    ///
    /// See [`try_acquire`](Self::try_acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Quota};
    /// let users = KeyedLimiter::new(Quota::per_second(100))?;
    /// let grant = users.clone().try_acquire_owned("ann".to_owned(), 3)?;
    /// tokio::spawn(async move { grant.cost() }).await?;
    /// # Ok(()) }
    /// ```
    pub fn try_acquire_owned(self, key: K, cost: u64) -> Result<OwnedKeyedGrant<K, S>, TryAcquireError> {
        try_acquire(self.map, key, cost)
    }

    /// Returns the limiter of a key: for [joint claims](crate::join), streams, sockets and services. It is the same
    /// bucket and the same queue that the methods with the key use. The key is kept in memory, where it takes some 800
    /// bytes, for as long as a handle to its limiter exists.
    ///
    /// A [parent](KeyedBuilder::parent) has to grant each claim too, also a joint one.
    ///
    /// Changes that are made through the handle hold for this key. A pause lasts until its end, as with
    /// [`pause_for`](Self::pause_for), and `resume` ends the pause of the key and not that of all keys. `set_quota` and
    /// `close` are undone some time after the last handle was dropped and the key has neither waiters nor tokens in
    /// flight. For a lasting quota, use [`set_one_quota_for`](Self::set_one_quota_for).
    ///
    /// # Errors
    ///
    /// * [`TooManyKeys`](ConfigError::TooManyKeys) for a new key, while as many other keys as
    ///   [`max_keys`](KeyedBuilder::max_keys) allows owe tokens. After its last handle
    ///   was dropped, a key is forgotten up to a second later.
    /// * The error of the quotas that [`quota_by`](KeyedBuilder::quota_by) returned, if no key can have them.
    ///
    /// # Panics
    ///
    /// See [`KeyedConsume`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Quota, join};
    /// let hosts = KeyedLimiter::new(Quota::per_second(10).burst(2))?;
    /// let users = KeyedLimiter::new([Quota::per_second(5), Quota::per_day(1_000)])?;
    /// let (host, user) = (hosts.limiter(&"a.example")?, users.limiter(&17)?);
    /// let _grants = join([(&host, 1), (&user, 1)]).await?; // both, or none
    /// assert_eq!((hosts.available(&"a.example"), users.available(&17)), (1, 4));
    /// # Ok(()) }
    /// ```
    pub fn limiter(&self, key: &(impl ToKey<K> + ?Sized)) -> Result<Limiter, ConfigError> {
        let map = &self.map;
        let found = map.enter(map.hashed(key), false, |shard, request, context| {
            let live = shard.live(request, context)?;
            shard.expect_handles(context);
            Ok((live.into_arc(), shard.is_closed()))
        });
        let (live, is_closed) = found?.expect("a live entry is returned as it is");
        live.weigh(|| map.weight(key));
        if is_closed {
            live.close_anyway();
        }
        Ok(Limiter::from_core(live))
    }

    /// Releases `tokens` of grants that were [forgotten](KeyedGrant::forget), and serves the key's queue.
    ///
    /// The tokens are also released in the [parent limiter](KeyedBuilder::parent), if it has a cap.
    ///
    /// # Errors
    ///
    /// Returns a [`ReleaseError`] if `tokens` is more than is owed, or if there is no in-flight cap. Nothing is
    /// released then.
    pub fn release(&self, key: &(impl ToKey<K> + ?Sized), tokens: u64) -> Result<(), ReleaseError> {
        let template = &self.map.template;
        let key = self.map.hashed(key);
        if let Some(live) = self.map.in_shard(self.map.shard_of(key.hash), |shard, _| shard.find_live(key)) {
            return live.release_owed(tokens);
        }
        match (&template.cap, template.parent.as_ref().filter(|parent| parent.capped)) {
            (Some(_), _) if tokens == 0 => Ok(()),
            (Some(_), _) => Err(ReleaseError::TooMuch { asked: tokens, owed: 0 }),
            (None, Some(parent)) => parent.release_owed(tokens),
            (None, None) => Err(ReleaseError::NotCapped),
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn observers(&self) -> &crate::observe::Observers {
        &self.map.template.observers
    }

    /// Whether the quotas of all keys are in dry run.
    #[cfg(feature = "metrics")]
    pub(crate) fn is_in_dry_run(&self) -> bool {
        self.map.template.dry_run.is_on()
    }

    /// Returns the background task, for users that spawn it themselves, on a runtime of their choice. This is optional:
    /// the first waiter of each runtime spawns one, for all keys.
    pub fn replenisher(&self) -> KeyedReplenisher {
        self.map.pool.by_hand()
    }
}

impl<K, S> Clone for KeyedLimiter<K, S> {
    fn clone(&self) -> Self {
        Self { map: Arc::clone(&self.map) }
    }
}

impl<K, S> fmt::Debug for KeyedLimiter<K, S> {
    /// Prints no keys: they may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyedLimiter").field(&self.map).finish()
    }
}

#[inline]
fn try_acquire<M: MapRef, F: HeldKey<Q>, Q: ToKey<M::Key> + ?Sized>(
    of: M,
    held: F,
    cost: u64,
) -> Result<GrantOfKey<M, F::Kept>, TryAcquireError> {
    let map = of.map();
    let key = map.hashed(held.borrow());
    let taken = match map.take_at_once(key, cost, false) {
        Ok(left) => Taken { left, live: InUse::default() },
        Err(missed) => map.try_acquire(key, cost, missed)?,
    };
    let hash = key.hash;
    Ok(GrantOfKey::new(of, held.kept(), hash, cost, taken))
}
