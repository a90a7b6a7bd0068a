//! Building a keyed limiter: all configuration checks.

use super::KeyedLimiter;
#[cfg(feature = "distributed")]
use super::distributed::{self, Config, Namer};
use super::driver_pool::DriverPool;
use super::dry_run::KeyedDryRun;
use super::keys::Keys;
use super::live::LiveTemplate;
use super::map::{Map, Parts, QuotasBy, WeightBy};
use super::quotas::Quotas;
use super::rates::Rates;
#[cfg(feature = "state")]
use super::state::Restore;
use crate::clock::{Chosen, Clock, Time};
use crate::core::limiter_ref::ClaimScope;
use crate::core::parent::Parent;
use crate::core::state::{ChildLimiter, MAX_COST};
#[cfg(feature = "distributed")]
use crate::distributed::Stores;
use crate::error::ConfigError;
use crate::observe::Observers;
use crate::quota::check_cap;
use crate::set_twice::SetTwice;
use crate::sync::AtomicU64;
use crate::{AsLimiter, Quota};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The number of shards without a bound on keys, and with the default bound. Large enough that a table of a million keys
/// is rebuilt in small pieces; small enough that the tables fill most of the memory pages they occupy. Not a power of
/// two, so that these tables and those of other maps, with powers of two, do not fill up at the same counts.
const SHARDS: usize = 270;
/// Keys per shard, if the number of keys is bounded: a table of 512 slots holds 448.
const KEYS_PER_SHARD: u64 = 384;
const MAX_SHARDS: u64 = 8_192;
/// The bound on keys if the builder sets none. Some 30 MB of small keys; a limit per second or minute reaches it only
/// under attack, because a key that owes nothing is forgotten.
const DEFAULT_MAX_KEYS: u64 = 1_000_000;

/// The number of the next keyed limiter.
static NEXT_NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// A builder for a [`KeyedLimiter`], returned by [`KeyedLimiter::builder`].
///
/// ```
/// use tollgate::{KeyedLimiter, Quota};
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let users: KeyedLimiter<u64> = KeyedLimiter::builder()
///     .quota(Quota::per_second(10).burst(20)) // each
///     .max_keys(100_000)
///     .max_waiting(50)                        // in each user's queue
///     .build()?;
/// # let _ = users; Ok(()) }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct KeyedBuilder<K, S = RandomState> {
    quotas: Quotas,
    quota_by: Option<QuotasBy<K>>,
    max_keys: Option<u64>,
    overflow: Option<Quotas>,
    max_in_flight: Option<u64>,
    max_waiting: Option<usize>,
    parent: Option<Parent>,
    weight_by: Option<WeightBy<K>>,
    clock: Option<Chosen>,
    shards: Option<usize>,
    top: Option<Duration>,
    #[cfg(feature = "state")]
    restore: Option<Restore<K>>,
    #[cfg(feature = "distributed")]
    distributed: Option<(Arc<dyn Stores>, Namer<K>)>,
    hasher: S,
    /// `Some` once [`hasher`](Self::hasher) was called.
    has_hasher: Option<()>,
    dry_run: bool,
    set_twice: SetTwice,
}

impl<K> KeyedBuilder<K> {
    pub(super) fn new() -> Self {
        Self {
            quotas: Quotas::default(),
            quota_by: None,
            max_keys: None,
            overflow: None,
            max_in_flight: None,
            max_waiting: None,
            parent: None,
            weight_by: None,
            clock: None,
            shards: None,
            top: None,
            #[cfg(feature = "state")]
            restore: None,
            #[cfg(feature = "distributed")]
            distributed: None,
            hasher: RandomState::new(),
            has_hasher: None,
            dry_run: false,
            set_twice: SetTwice::default(),
        }
    }
}

impl<K, S> KeyedBuilder<K, S> {
    /// Adds a quota for each key. Each grant takes its cost from all quotas of its key, or from none.
    ///
    /// A key can have up to four quotas. With one or two, a key that owes tokens takes 8 or 16 bytes beside the key;
    /// with more, some 200.
    ///
    /// ```
    /// use tollgate::{Bound, KeyedLimiter, Quota, TryAcquireError};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).quota(Quota::per_day(1_000));
    /// let users: KeyedLimiter<&str> = builder.max_keys(100_000).build()?;
    /// let _ten = users.try_acquire(&"ann", 10)?;
    /// let Err(TryAcquireError::Denied(denied)) = users.try_acquire(&"ann", 1) else { panic!() };
    /// assert_eq!(denied.by, Bound::Quota(0)); // the first: 10 per second
    /// # Ok(()) }
    /// ```
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quotas = self.quotas.quota(quota);
        self
    }

    /// Adds a quota for each key, with a name that [`KeyedLimiter::quotas`] returns and that refusals
    /// [carry](crate::Denied::quota_name). Each distinct name [stays in memory](Quotas::quota_named).
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).quota_named("day", Quota::per_day(1_000));
    /// let users = builder.build()?;
    /// assert_eq!(users.quotas(&"ann").name(1), Some("day"));
    /// # Ok(()) }
    /// ```
    pub fn quota_named(mut self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        self.quotas = self.quotas.quota_named(name, quota);
        self
    }

    /// Adds several quotas for each key, such as those of a configuration file.
    pub fn quotas(mut self, quotas: impl Into<Quotas>) -> Self {
        self.quotas = quotas.into().named().cloned().fold(self.quotas, Quotas::and);
        self
    }

    /// Asks `quota_by` for the quotas of each key, whenever a key comes that is not in memory. It returns a [`Quota`],
    /// an array of them, or [`Quotas`]. It is called outside of all locks. A key that owes nothing is forgotten, and
    /// `quota_by` is asked again when the key comes back; a key that owes tokens keeps its quotas, until
    /// [`renew_quotas`](KeyedLimiter::renew_quotas) is called.
    ///
    /// # Panics
    ///
    /// Calls on the limiter panic if `quota_by` returns a quota that is invalid or not supported for keys.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota, Quotas};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let plans = |user: &String| -> Quotas {
    ///     match user.strip_prefix("paid-") {
    ///         Some(_) => Quota::per_second(100).into(),
    ///         None => [Quota::per_second(5), Quota::per_day(500)].into(),
    ///     }
    /// };
    /// let users = KeyedLimiter::builder().quota_by(plans).build()?;
    /// assert_eq!(users.available(&"paid-ann".to_owned()), 100);
    /// assert_eq!(users.available(&"bob".to_owned()), 5);
    /// # Ok(()) }
    /// ```
    pub fn quota_by<Q: Into<Quotas>>(mut self, quota_by: impl Fn(&K) -> Q + Send + Sync + 'static) -> Self {
        let quota_by: QuotasBy<K> = Box::new(move |key| quota_by(key).into());
        self.set_twice.set("quota_by", &mut self.quota_by, quota_by);
        self
    }

    /// Keeps at most this many keys in memory. A key is kept while it owes tokens, has waiters, has tokens in flight,
    /// or has a quota of its own. When the map is full, new keys are refused with `TooManyKeys`, or share a bucket if
    /// there is an [`overflow`](Self::overflow). The default is 1,000,000 keys;
    /// [`unbounded_keys`](Self::unbounded_keys) removes the bound.
    ///
    /// A new key that finds the map full looks for a key to forget, in the shards that may contain one that owes
    /// nothing any more. After a change of the common quota, or after many cancelled waits, these may be all shards:
    /// one call visits some thousand keys at most, and is refused if it finds none; the next call continues with the
    /// rest.
    ///
    /// Debts from [`KeyedGrant::settle`](super::KeyedGrant::settle) are always recorded, even if this exceeds
    /// `max_keys`: at most one extra key per outstanding grant.
    pub fn max_keys(mut self, keys: u64) -> Self {
        self.set_twice.set("max_keys", &mut self.max_keys, keys);
        self
    }

    /// Keeps as many keys in memory as owe tokens at the same time, however many those are. For keys that are not chosen
    /// by clients, or are bounded elsewhere: otherwise a client that uses a new key for each request fills the memory.
    pub fn unbounded_keys(self) -> Self {
        self.max_keys(u64::MAX)
    }

    /// Lets new keys share one bucket of this quota, or of these quotas, while the map is full, instead of refusing
    /// them. Such a key gets a
    /// bucket of its own once there is space again. One key can therefore use both, and all new keys together never get
    /// more than this quota on top.
    pub fn overflow(mut self, quotas: impl Into<Quotas>) -> Self {
        self.set_twice.set("overflow", &mut self.overflow, quotas.into());
        self
    }

    /// Caps the tokens that each key has in flight; see [`Builder::max_in_flight`](crate::Builder::max_in_flight). It can
    /// stand alone, without a quota. A key with tokens in flight takes some 750 bytes instead of 16.
    pub fn max_in_flight(mut self, tokens: u64) -> Self {
        self.set_twice.set("max_in_flight", &mut self.max_in_flight, tokens);
        self
    }

    /// Refuses callers with `QueueFull` once this many are waiting for the same key.
    pub fn max_waiting(mut self, callers: usize) -> Self {
        self.set_twice.set("max_waiting", &mut self.max_waiting, callers);
        self
    }

    /// Sets a parent for all keys, a limiter or a class of one: a grant takes its cost from the key's bucket and from the parent, or from
    /// neither. The parent can also be used directly, and by other keyed limiters.
    ///
    /// * Only the caller at the front of a key's queue enters the parent's queue, and only once the key's own tokens
    ///   are available. So keys take turns there, however many callers wait for one of them, and a key that still waits
    ///   for its own tokens delays no other key. The parent's `max_waiting` refuses none of them.
    /// * With a parent that has [classes](crate::Builder::classes), each key is a class of it while it waits: the keys that
    ///   wait share the parent by tokens, in proportion to [their weights](Self::weight_by), whatever their claims cost.
    ///   Without classes, they take turns by claim. A keyed limiter without a quota is then a fair share of the parent:
    ///   the keys that are active share it equally.
    /// * [Settling](super::KeyedGrant::settle) counts in both. So do tokens in flight, if the parent has a cap.
    /// * Closing the parent closes the keyed limiter.
    /// * While a key has waiters, its estimates are `None`: how long the parent will delay them cannot be predicted.
    ///
    /// Both should use the same clock. With different clocks, a grant counts in each limiter at the moment at which
    /// that limiter learns of it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Limiter, Quota};
    /// let upstream = Limiter::new(Quota::per_minute(6_000).burst(5))?;
    /// let builder = KeyedLimiter::builder().quota(Quota::per_minute(600).burst(3)); // each
    /// let users = builder.parent(&upstream).build()?;                               // all of them together
    /// let _grants = [users.try_acquire(&"ann", 3)?, users.try_acquire(&"bob", 2)?];
    /// assert!(users.try_acquire(&"bob", 1).is_err());
    /// assert_eq!(upstream.available(), 0);
    /// users.wait(&"bob", 1).await?; // 10 ms later
    /// # Ok(()) }
    /// ```
    ///
    /// The parent can be a class of a limiter: the keys then share what the class receives. So parents nest, users within a
    /// tenant and tenants within the limiter:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Limiter, Quota, Share};
    /// let limiter = Limiter::builder().quota(Quota::per_second(1_000)).classes().build()?;
    /// let tenant = limiter.class("tenant-7", Share::weight(2).ceiling(Quota::per_second(400)))?;
    /// let users: KeyedLimiter<&str> = KeyedLimiter::builder().parent(&tenant).build()?;
    /// users.wait(&"ann", 5).await?;
    /// # Ok(()) }
    /// ```
    pub fn parent(mut self, parent: &impl AsLimiter) -> Self {
        let scope = parent.clone().into_scope();
        let flags = scope.flags().map(Arc::clone);
        let parent = Parent::new(parent.limiter().clone().into_core(), scope.class(), flags, Arc::new(scope));
        self.set_twice.set("parent", &mut self.parent, parent);
        self
    }

    /// Chooses the weight of each key, from 1 to 1,000,000, among all keys and classes with the same parent, which must
    /// have [classes](crate::Builder::classes). Keys have the weight 1 if this is not set. Other weights count as the
    /// nearest one in the range.
    ///
    /// `weight_by` is called when a key begins to wait, and when a grant is settled for more than its cost; never while
    /// a lock is held.
    pub fn weight_by(mut self, weight_by: impl Fn(&K) -> u64 + Send + Sync + 'static) -> Self {
        let weight_by: WeightBy<K> = Box::new(weight_by);
        self.set_twice.set("weight_by", &mut self.weight_by, weight_by);
        self
    }

    /// Shares the quota of each key with all keyed limiters, on any machine, that use the same quota and the same
    /// stores: each key has a store, named by the key's text. For each key, all machines together are granted no more
    /// than its burst and its rate, as by a single [`Limiter`](crate::Limiter) that is [distributed](crate::Builder::distributed).
    ///
    /// The text is part of a key in Redis. If a key's text is long, or a secret, use
    /// [`distributed_by`](Self::distributed_by) to choose another name.
    ///
    /// **Most keys are seen once.** They cost one round trip and no memory: a claim requests its tokens from the key's
    /// store, all of them at once or none. A denial takes nothing from any node. The reply is cached: until the tokens
    /// can be available, [`within`](super::KeyedConsume::within) and [`try_acquire`](KeyedLimiter::try_acquire) refuse
    /// without a request.
    ///
    /// **A busy key**, with eight requests within a second or with waiting callers, gets a
    /// [limiter](KeyedLimiter::limiter) on this node, with its own queue, a lease and a refill task. Callers then do not
    /// wait for the network while the node has tokens, and waiting callers are served in order. After a time without
    /// calls the limiter returns its tokens and is forgotten.
    ///
    /// **Memory** holds the busy keys and the cached replies that are still useful; [`max_keys`](Self::max_keys) bounds
    /// the number of each. A caller that uses many different keys cannot reset the limit of any key, because the limits
    /// are kept in the store. It can only evict cached replies, at a cost of one round trip each. A claim that has to
    /// wait while as many other keys have limiters is refused with `TooManyKeys`.
    ///
    /// **`try_acquire`** cannot send a request. A key without a limiter on this node is therefore denied once, without a
    /// time to retry; a retry after a round trip finds the tokens. At most half of the burst can be taken this way. For
    /// keys that are rarely seen, use `consume(..).within(..)`, which sends a request.
    ///
    /// **[`settle`](super::KeyedGrant::settle)** above the cost charges a debt of the key, which the key's limiter pays
    /// to the store; it is made if there is none, even beyond `max_keys`. Below the cost, the difference goes to the
    /// key's limiter as far as its allowance permits. If the key has no limiter, or the allowance is used, the
    /// difference is lost: the store has promised the following tokens to other nodes.
    ///
    /// While the stores cannot be reached, callers wait, fail or use this node's own quota, as the store's
    /// [`Outage`](crate::distributed::Outage) says. This is decided for each key separately.
    ///
    /// The settings `overflow`, `max_in_flight`, `parent`, `clock` and `top`, and changes of quotas at run time, are not
    /// supported: they return [`DistributedKeyed`](ConfigError::DistributedKeyed).
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
    ///     one.wait(&"ann", 1).await?;
    ///     two.wait(&"ann", 1).await?;
    /// }
    /// assert!(begun.elapsed() >= std::time::Duration::from_millis(500)); // both nodes together had 5 at once
    /// two.wait(&"bob", 5).await?; // independent of ann
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "distributed")]
    pub fn distributed(self, stores: impl Stores) -> Self
    where
        K: fmt::Display + 'static,
    {
        self.distributed_by(stores, |key| key.to_string())
    }

    /// Like [`distributed`](Self::distributed), with stores that are named by `name`. Two keys with the same name share
    /// one quota. `name` is called outside of all locks, whenever a key comes that has no limiter in this process.
    #[cfg(feature = "distributed")]
    pub fn distributed_by(mut self, stores: impl Stores, name: impl Fn(&K) -> String + Send + Sync + 'static) -> Self {
        let stores: Arc<dyn Stores> = Arc::new(stores);
        let name: Namer<K> = Box::new(name);
        self.set_twice.set("distributed", &mut self.distributed, (stores, name));
        self
    }

    /// Puts the quotas of all keys in dry run: they hold back no caller, and report what they would have done.
    ///
    /// Each key is simulated as [`Builder::dry_run`](crate::Builder::dry_run) describes. A key whose simulated queue is
    /// not empty takes as much memory as one with a waiter, and 24 bytes for each run of calls of one cost in that queue;
    /// [`max_waiting`](Self::max_waiting) bounds it. All keys that owe tokens count toward [`max_keys`](Self::max_keys),
    /// which stays enforced, as `max_in_flight` and pauses do.
    ///
    /// A keyed limiter that is distributed ([`ConfigError::DistributedKeyed`]) or has a parent
    /// ([`ConfigError::DryRunUnsupported`]) cannot be in dry run: try the quota on one that is neither.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, ManualClock, Quota};
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(10).burst(1)).clock(ManualClock::new());
    /// let users = builder.dry_run().build()?;
    /// for wait in [0, 100, 200].map(Duration::from_millis) {
    ///     assert_eq!(users.consume(&"ann", 1).await?.would_have_waited(), Some(wait));
    /// }
    /// assert!(users.try_acquire(&"ann", 1)?.would_have_been_refused().is_some());
    /// assert_eq!(users.consume(&"bob", 1).await?.would_have_waited(), Some(Duration::ZERO));
    /// assert_eq!((users.snapshot().would_wait, users.snapshot().would_refuse), (2, 1));
    /// # Ok(()) }
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Uses `clock` instead of tokio's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.set_twice.set("clock", &mut self.clock, Chosen::new(clock));
        self
    }

    /// Hashes keys with `hasher` instead of the standard library's hasher, which has a secret random seed. If the
    /// collisions of `hasher` can be predicted, an attacker can make every call slow, but not wrong.
    pub fn hasher<H: BuildHasher>(mut self, hasher: H) -> KeyedBuilder<K, H> {
        self.set_twice.set("hasher", &mut self.has_hasher, ());
        KeyedBuilder {
            hasher,
            has_hasher: self.has_hasher,
            quotas: self.quotas,
            quota_by: self.quota_by,
            max_keys: self.max_keys,
            overflow: self.overflow,
            max_in_flight: self.max_in_flight,
            max_waiting: self.max_waiting,
            parent: self.parent,
            weight_by: self.weight_by,
            clock: self.clock,
            shards: self.shards,
            top: self.top,
            #[cfg(feature = "state")]
            restore: self.restore,
            #[cfg(feature = "distributed")]
            distributed: self.distributed,
            dry_run: self.dry_run,
            set_twice: self.set_twice,
        }
    }

    /// Counts which keys are granted, refused and made to wait most, for [`KeyedLimiter::top`], within about the last
    /// `window`. Off by default, and then it costs nothing.
    ///
    /// The memory is bounded, whatever the keys are: some 40 kB for each of the three ranks with 8-byte keys, plus what
    /// about a thousand keys own elsewhere. With [`max_keys`](Self::max_keys) above 400,000, it is two counters for each
    /// 384 keys and rank. What a grant costs more is in docs/BENCHMARKS.md.
    pub fn top(mut self, window: Duration) -> Self {
        self.set_twice.set("top", &mut self.top, window);
        self
    }

    #[cfg(feature = "state")]
    pub(super) fn set_restore(&mut self, restore: Restore<K>) {
        self.set_twice.set("restore", &mut self.restore, restore);
    }

    /// Fixes the number of shards, for tests.
    #[doc(hidden)]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards.max(1));
        self
    }
}

impl<K, S> KeyedBuilder<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Checks the configuration and builds the limiter. Its time begins now: stepped quotas count their periods from
    /// this instant.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the field and says what to write instead.
    pub fn build(self) -> Result<KeyedLimiter<K, S>, ConfigError> {
        self.set_twice.check()?;
        #[cfg(feature = "distributed")]
        if let Some((stores, name)) = self.distributed {
            let config = Self { distributed: None, ..self }.into_config(stores, name)?;
            return Ok(KeyedLimiter { keys: Keys::Distributed(distributed::build(config)?) });
        }
        let quotas = match (self.quotas.is_empty(), &self.quota_by) {
            (false, None) => self.quotas,
            // Never used: the quotas of each key come from `quota_by`.
            (true, Some(_)) => Quota::per_second(1).into(),
            // Only the parent or the cap limits the keys.
            (true, None) if self.parent.is_some() || self.max_in_flight.is_some() => boundless().into(),
            (true, None) => return Err(ConfigError::NoQuota),
            (false, Some(_)) => return Err(ConfigError::QuotaAndQuotaBy),
        };
        quotas.check()?;
        self.overflow.as_ref().map_or(Ok(()), Quotas::check)?;
        self.max_in_flight.map_or(Ok(()), check_cap)?;
        let has_classes = self.parent.as_ref().is_some_and(|parent| parent.has_classes);
        if self.weight_by.is_some() && !has_classes {
            return Err(ConfigError::WeightsWithoutClasses);
        }
        if self.parent.as_ref().is_some_and(|parent| parent.core().has_dry_run()) {
            return Err(ConfigError::DryRunUnsupported { setting: "parent" });
        }
        if self.max_keys == Some(0) {
            return Err(ConfigError::NoKeys);
        }
        if self.dry_run && self.parent.is_some() {
            return Err(ConfigError::DryRunUnsupported { setting: "parent" });
        }
        if self.top == Some(Duration::ZERO) {
            return Err(ConfigError::NoWindow);
        }
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let max_keys = bound(self.max_keys);
        let shards = self.shards.unwrap_or(shards_for(self.max_keys));
        let overflow = self.overflow.map(|quotas| (Arc::new(Rates::new(quotas)), None));
        let time = self.clock.map_or_else(Time::tokio, Time::other);
        let parent = self.parent;
        if let Some(parent) = parent.as_ref().filter(|_| has_classes) {
            parent.with(|state, _, _| state.add_keys(parent.group))?;
        }
        #[cfg(feature = "state")]
        let (time, overflow) = match &self.restore {
            Some(restore) => {
                let common = Some(&quotas).filter(|_| self.quota_by.is_none());
                restore.check(common, overflow.as_ref().map(|(rates, _)| &rates.quotas))?;
                restore.begin(time, overflow)
            }
            None => (time, overflow),
        };
        let map = Arc::new_cyclic(|map: &std::sync::Weak<Map<K, S>>| {
            let pool = Arc::new(DriverPool::new(
                map.clone(),
                time.clone(),
                parent.as_ref().map(|parent| Arc::clone(&parent.limiter)),
            ));
            let max_waiting = self.max_waiting.unwrap_or(usize::MAX);
            let (cap, driver) = (self.max_in_flight.map(AtomicU64::new), Arc::new(Arc::clone(&pool)));
            let observers = Observers::default();
            let (parent, dry_run) = (parent.clone(), KeyedDryRun::new(self.dry_run));
            let template = LiveTemplate { time, cap, max_waiting, driver, parent, number, observers, dry_run };
            Map::new(Parts {
                hasher: self.hasher,
                rates: Arc::new(Rates::new(quotas)),
                quota_by: self.quota_by,
                weight_by: self.weight_by,
                shards,
                max_keys,
                template,
                overflow,
                pool,
                top: self.top,
            })
        });
        #[cfg(feature = "state")]
        self.restore.map_or(Ok(()), |restore| restore.apply(&map))?;
        let child: Arc<dyn ChildLimiter> = map.clone();
        if parent.is_some_and(|parent| !parent.add_child(parent.group, Arc::downgrade(&child))) {
            map.close();
        }
        Ok(KeyedLimiter { keys: Keys::Local(map) })
    }

    /// The settings of a distributed keyed limiter.
    #[cfg(feature = "distributed")]
    fn into_config(self, stores: Arc<dyn Stores>, name: Namer<K>) -> Result<Config<K, S>, ConfigError> {
        let cannot = [
            ("a second quota", self.quotas.len() > 1),
            ("overflow", self.overflow.is_some()),
            ("max_in_flight", self.max_in_flight.is_some()),
            ("parent", self.parent.is_some()),
            ("weight_by", self.weight_by.is_some()),
            ("dry_run", self.dry_run),
            ("clock", self.clock.is_some()),
            ("top", self.top.is_some()),
            #[cfg(feature = "state")]
            ("restore", self.restore.is_some()),
        ];
        let cannot = cannot.into_iter().find(|(_, is_set)| *is_set).map(|(setting, _)| setting);
        let max_keys = bound(self.max_keys);
        let Self { quotas, quota_by, max_waiting, hasher, .. } = self;
        if !quotas.is_empty() && quota_by.is_some() {
            return Err(ConfigError::QuotaAndQuotaBy);
        }
        let (quota, quota_by) = (quotas.named().next().cloned(), quota_by.map(only_quota));
        Ok(Config { quota, quota_by, max_keys, max_waiting, hasher, stores, name, cannot })
    }
}

/// A quota that refuses nothing: the largest claim there is takes no more than its burst, and after any usual cost it is
/// full again within a nanosecond. A higher rate would have no packed levels, and without these each call takes the slow
/// path.
fn boundless() -> Quota {
    Quota::new(1 << 24, Duration::from_nanos(1)).burst(MAX_COST)
}

/// The number of shards, by what `max_keys` was set to. The default bound is far above what most limiters hold, so it
/// does not decide.
fn shards_for(max_keys: Option<u64>) -> usize {
    match max_keys {
        None | Some(u64::MAX) => SHARDS,
        Some(keys) => (keys / KEYS_PER_SHARD).clamp(1, MAX_SHARDS) as usize,
    }
}

/// The bound on keys, by what `max_keys` was set to; `None` if there is none.
fn bound(max_keys: Option<u64>) -> Option<u64> {
    Some(max_keys.unwrap_or(DEFAULT_MAX_KEYS)).filter(|keys| *keys < u64::MAX)
}

/// Checks the only quota of a key of a distributed limiter.
#[cfg(feature = "distributed")]
pub(super) fn check(quota: &Quota) -> Result<(), ConfigError> {
    Quotas::from(*quota).check()
}

/// Of a function that chooses the quotas of a key, the only one.
#[cfg(feature = "distributed")]
fn only_quota<K: 'static>(quota_by: QuotasBy<K>) -> super::map::QuotaBy<K> {
    Box::new(move |key| {
        let quotas = quota_by(key);
        match quotas.named().next() {
            Some(quota) if quotas.len() == 1 => quota.clone(),
            _ => panic!("quota_by returned {} quotas for a key of a distributed limiter: return one", quotas.len()),
        }
    })
}

impl<K, S> fmt::Debug for KeyedBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBuilder")
            .field("quotas", &self.quotas)
            .field("quota_by", &self.quota_by.is_some())
            .field("max_keys", &self.max_keys)
            .field("overflow", &self.overflow)
            .field("max_in_flight", &self.max_in_flight)
            .field("max_waiting", &self.max_waiting)
            .field("parent", &self.parent.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bound_that_was_set_decides_the_number_of_shards() {
        let of_default_size = usize::try_from(DEFAULT_MAX_KEYS / KEYS_PER_SHARD).unwrap();
        assert_eq!([None, Some(u64::MAX)].map(shards_for), [SHARDS; 2]);
        assert_eq!(shards_for(Some(DEFAULT_MAX_KEYS)), of_default_size);
        assert_eq!([1, u64::MAX - 1].map(|keys| shards_for(Some(keys))), [1, MAX_SHARDS as usize]);
    }

    #[cfg(feature = "distributed")]
    #[test]
    fn distributed_keys_are_bounded_as_the_builder_was_told() {
        let max_keys = |change: fn(KeyedBuilder<u64>) -> KeyedBuilder<u64>| {
            let builder = KeyedLimiter::<u64>::builder().quota(Quota::per_second(1));
            let stores = Arc::new(crate::distributed::MemoryStore::new());
            let config = change(builder).into_config(stores, Box::new(u64::to_string));
            config.unwrap_or_else(|error| panic!("{error}")).max_keys
        };
        assert_eq!(max_keys(KeyedBuilder::unbounded_keys), None);
        assert_eq!(max_keys(|builder| builder), Some(DEFAULT_MAX_KEYS));
        assert_eq!(max_keys(|builder| builder.max_keys(7)), Some(7));
    }
}
