//! The settings of a keyed limiter. `builder/build.rs` checks the settings and builds the limiter.

mod build;

use super::map::{QuotasBy, WeightBy};
use super::quotas::Quotas;
#[cfg(feature = "state")]
use super::state::KeyedState;
use crate::clock::{Chosen, Clock};
use crate::core::claim_scope::ClaimScope;
use crate::core::parent::Parent;
use crate::set_twice::SetTwice;
use crate::{AsLimiter, Quota};
#[cfg(feature = "distributed")]
pub(super) use build::DEFAULT_MAX_KEYS;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
#[cfg(feature = "state")]
use std::time::SystemTime;

/// A builder for a [`KeyedLimiter`](crate::KeyedLimiter), returned by
/// [`KeyedLimiter::builder`](crate::KeyedLimiter::builder).
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
    settings: Settings,
    by_key: ByKey<K>,
    hasher: S,
}

/// The settings that do not depend on the type of the keys.
#[derive(Debug, Default)]
struct Settings {
    quotas: Quotas,
    max_keys: Option<u64>,
    max_in_flight: Option<u64>,
    max_waiting: Option<u64>,
    max_cost: Option<u64>,
    parent: Option<Parent>,
    clock: Option<Chosen>,
    shards: Option<usize>,
    top: Option<Duration>,
    /// `Some` once [`hasher`](KeyedBuilder::hasher) was called.
    has_hasher: Option<()>,
    dry_run: bool,
    set_twice: SetTwice,
}

/// The settings for which the type of the keys is known.
struct ByKey<K> {
    quotas: Option<QuotasBy<K>>,
    weight: Option<WeightBy<K>>,
    #[cfg(feature = "state")]
    restore: Option<(KeyedState<K>, SystemTime)>,
}

impl<K> KeyedBuilder<K> {
    pub(super) fn new() -> Self {
        let by_key = ByKey {
            quotas: None,
            weight: None,
            #[cfg(feature = "state")]
            restore: None,
        };
        Self { settings: Settings::default(), by_key, hasher: RandomState::new() }
    }
}

impl<K, S> KeyedBuilder<K, S> {
    /// Adds a quota for each key. Each grant takes its cost from all quotas of its key, or from none.
    ///
    /// A key can have up to four quotas. With one or two, a key that owes tokens takes 8 or 16 bytes beside the key;
    /// with more, some 150. So does a key with a quota whose burst takes more than about 70 years to refill, or of many
    /// tokens in a long period without a common factor, such as `per_day(1_000_003)`.
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
        self.settings.quotas = self.settings.quotas.quota(quota);
        self
    }

    /// Adds a quota for each key, with a name that [`KeyedLimiter::quotas`](crate::KeyedLimiter::quotas) returns and
    /// that refusals [carry](crate::Denied::quota_name). Each distinct name [stays in memory](Quotas::quota_named).
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).quota_named("day", Quota::per_day(1_000));
    /// let users = builder.build()?;
    /// assert_eq!(users.quotas(&"ann").name(1), Some("day"));
    /// # Ok(()) }
    /// ```
    pub fn quota_named(mut self, name: impl AsRef<str>, quota: Quota) -> Self {
        self.settings.quotas = self.settings.quotas.quota_named(name, quota);
        self
    }

    /// Adds several quotas for each key, such as those of a configuration file.
    pub fn quotas(mut self, quotas: impl Into<Quotas>) -> Self {
        self.settings.quotas = quotas.into().0.into_iter().fold(self.settings.quotas, Quotas::and);
        self
    }

    /// Asks `quota_by` for the quotas of a key whenever a key that is not in memory is used. It returns a [`Quota`], an
    /// array of them, or [`Quotas`]. It is called outside of all locks. A key takes some 150 bytes. A key that owes
    /// nothing is forgotten, and `quota_by` is asked again when the key comes back; a key that owes tokens keeps its
    /// quotas, until [`renew_quotas`](crate::KeyedLimiter::renew_quotas) is called.
    ///
    /// If it returns quotas that no keyed limiter can have, see [`Quotas::check`], the calls on the key are refused
    /// with `BadQuota`, and the key counts as having no tokens.
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
        self.settings.set_twice.set("quota_by", &mut self.by_key.quotas, quota_by);
        self
    }

    /// Keeps at most this many keys in memory. A key is kept while it owes tokens, has waiters, has tokens in flight,
    /// or has a quota of its own. When the map is full, new keys are refused with `TooManyKeys`. The default is
    /// 1,000,000 keys; [`unbounded_keys`](Self::unbounded_keys) removes the bound.
    ///
    /// The call of a new key that finds the map full searches the shards that may contain a key that owes nothing any
    /// more, and forgets such a key. After a change of the common quota, or after many cancelled waits, these may be
    /// all shards. One call visits some thousand keys at most, and is refused if none of them can be forgotten; the
    /// next call continues with the rest.
    ///
    /// Debts from [`KeyedGrant::settle`](super::KeyedGrant::settle) are always recorded, even if this exceeds
    /// `max_keys`: at most one extra key per outstanding grant.
    pub fn max_keys(mut self, keys: u64) -> Self {
        self.settings.set_twice.set("max_keys", &mut self.settings.max_keys, keys);
        self
    }

    /// Removes the bound on the number of keys in memory: all keys that owe tokens are kept. Use it only if clients
    /// cannot choose their keys, or the keys are bounded elsewhere: a client that uses a new key for each request would
    /// fill the memory. The map takes 220 kB before its first key.
    pub fn unbounded_keys(self) -> Self {
        self.max_keys(u64::MAX)
    }

    /// Caps the tokens that each key has in flight; see [`Builder::max_in_flight`](crate::Builder::max_in_flight). The
    /// cap can be used without a quota. A key with tokens in flight takes some 800 bytes instead of 16.
    pub fn max_in_flight(mut self, tokens: u64) -> Self {
        self.settings.set_twice.set("max_in_flight", &mut self.settings.max_in_flight, tokens);
        self
    }

    /// Refuses callers with `QueueFull` once this many are waiting for the same key; 0 refuses every caller that would
    /// have to wait.
    pub fn max_waiting(mut self, callers: u64) -> Self {
        self.settings.set_twice.set("max_waiting", &mut self.settings.max_waiting, callers);
        self
    }

    /// Refuses costs above `tokens` with `TooLarge`, and charges a grant that is settled for more `tokens` in all; see
    /// [`Builder::max_cost`](crate::Builder::max_cost).
    pub fn max_cost(mut self, tokens: u64) -> Self {
        self.settings.set_twice.set("max_cost", &mut self.settings.max_cost, tokens);
        self
    }

    /// Sets a parent for all keys, a limiter or a class of one: a grant takes its cost from the key's bucket and from
    /// the parent, or from neither. The parent can also be used directly, and by other keyed limiters.
    ///
    /// * Only the caller at the front of a key's queue enters the parent's queue, and only once the key's own tokens
    ///   are available. So keys take turns there, however many callers wait for one of them, and a key that still waits
    ///   for its own tokens delays no other key. A key that is paused leaves that queue, and enters it anew behind the others. The
    ///   parent's `max_waiting` refuses none of them.
    /// * With a parent that has [classes](crate::Builder::classes), each key is a class of it while it waits: the keys
    ///   that wait share the parent by tokens, in proportion to [their weights](Self::weight_by), whatever their claims
    ///   cost. Without classes, they take turns by claim. A keyed limiter without a quota is then a fair share of the
    ///   parent: the keys that are active share it equally.
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
    /// The parent can be a class of a limiter: the keys then share what the class receives. So parents nest, users
    /// within a tenant and tenants within the limiter:
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
        let parent = Parent::new(parent.limiter().clone().into_core(), scope.class(), Arc::new(scope));
        self.settings.set_twice.set("parent", &mut self.settings.parent, parent);
        self
    }

    /// Chooses the weight of each key among all keys and classes with the same parent, which must have
    /// [classes](crate::Builder::classes). A weight is from 1 to 1,000,000, and one outside of this range counts as the
    /// nearest weight in it. Keys have the weight 1 if this is not set.
    ///
    /// `weight_by` is called when a key begins to wait, and when a grant is settled for more than its cost; never while
    /// a lock is held.
    pub fn weight_by(mut self, weight_by: impl Fn(&K) -> u64 + Send + Sync + 'static) -> Self {
        let weight_by: WeightBy<K> = Box::new(weight_by);
        self.settings.set_twice.set("weight_by", &mut self.by_key.weight, weight_by);
        self
    }

    /// Puts the quotas of all keys in dry run: they hold back no caller, and report what they would have done.
    ///
    /// Each key is simulated as [`Builder::dry_run`](crate::Builder::dry_run) describes. While the simulated queue of a
    /// key is not empty, the key takes as much memory as a key with a waiter, and 24 bytes for each run of calls of one
    /// cost in that queue; [`max_waiting`](Self::max_waiting) bounds it. All keys that owe tokens count toward
    /// [`max_keys`](Self::max_keys), which stays enforced, as `max_in_flight` and pauses do.
    ///
    /// A keyed limiter that has a parent cannot be in dry run
    /// ([`DryRunUnsupported`](crate::ConfigError::DryRunUnsupported)): try the quota on one that has none.
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
        self.settings.dry_run = true;
        self
    }

    /// Uses `clock` instead of tokio's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.set_twice.set("clock", &mut self.settings.clock, Chosen::new(clock));
        self
    }

    /// Hashes keys with `hasher` instead of the standard library's hasher, which has a secret random seed. If the
    /// collisions of `hasher` can be predicted, an attacker can make every call slow, but not wrong.
    pub fn hasher<H: BuildHasher>(mut self, hasher: H) -> KeyedBuilder<K, H> {
        self.settings.set_twice.set("hasher", &mut self.settings.has_hasher, ());
        KeyedBuilder { settings: self.settings, by_key: self.by_key, hasher }
    }

    /// Counts which keys are granted, refused and made to wait most, for
    /// [`KeyedLimiter::top`](crate::KeyedLimiter::top), within about the last `window`. The default is not to count,
    /// which costs nothing.
    ///
    /// The memory is bounded, whatever the keys are: some 40 kB for each of the three ranks with 8-byte keys, plus what
    /// about a thousand keys own elsewhere. With [`max_keys`](Self::max_keys) above 200,000, it is two counters for
    /// each 384 keys and rank. docs/BENCHMARKS.md has the additional cost of a grant.
    pub fn top(mut self, window: Duration) -> Self {
        self.settings.set_twice.set("top", &mut self.settings.top, window);
        self
    }

    /// Continues from `state`, when the wall clock shows `wall_clock`: the buckets of all keys are as full as when they
    /// were saved, plus what the time between has refilled; see [`state`](crate::state).
    ///
    /// [`build`](Self::build) then fails with a [`StateError`](crate::state::StateError) if the state has another
    /// version or an impossible value, or if the quotas are not those of the state, in the same order, unless the state
    /// [converts](KeyedState::convert). All other settings may differ. A key with quotas of its own gets them again.
    /// [`quota_by`](Self::quota_by) is asked for the quotas of each saved key, which keeps its tokens if they have
    /// changed. All keys are restored, even if they are more than [`max_keys`](Self::max_keys).
    ///
    /// # Panics
    ///
    /// `build` panics if `quota_by` does, or `Hash`, `Eq` or `Clone` of a key.
    #[cfg(feature = "state")]
    pub fn restore(mut self, state: KeyedState<K>, wall_clock: SystemTime) -> Self {
        self.settings.set_twice.set("restore", &mut self.by_key.restore, (state, wall_clock));
        self
    }

    /// Fixes the number of shards, for tests.
    #[doc(hidden)]
    pub fn shards(mut self, shards: usize) -> Self {
        self.settings.shards = Some(shards.max(1));
        self
    }
}

impl<K, S> fmt::Debug for KeyedBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
