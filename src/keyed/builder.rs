//! Building a keyed limiter: every configuration check.

use super::KeyedLimiter;
#[cfg(feature = "redis")]
use super::distributed::{Config, DistributedKeyedBuilder};
use super::driver_pool::DriverPool;
use super::live::LiveTemplate;
use super::map::{Map, Parts, QuotaBy};
use super::rate::Rate;
use crate::builder::check_cap;
use crate::clock::{Chosen, Clock, Time};
use crate::core::ChildLimiter;
#[cfg(feature = "redis")]
use crate::distributed::Stores;
use crate::error::ConfigError;
use crate::observe::Observers;
use crate::{Limiter, Quota};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

/// How many rooms there are without a bound on keys: so many that a table of a million keys is rebuilt in small pieces, a tenth
/// of a millisecond each, and so few that the tables of a crowd lie on few more pages than they fill. Not a power of two, so
/// that these tables and those of maps with shards by powers of two do not fill up at the same counts.
const SHARDS: usize = 270;
/// How many keys a room is for, if their number is bounded: a table of 512 slots holds 448.
const KEYS_PER_SHARD: u64 = 384;
const MAX_SHARDS: u64 = 8_192;

/// What a [`KeyedLimiter`] will be; from [`KeyedLimiter::builder`].
///
/// ```
/// use tollgate::{KeyedLimiter, Quota};
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let users: KeyedLimiter<u64> = KeyedLimiter::builder()
///     .quota(Quota::per_second(10).burst(20)) // each
///     .max_keys(100_000)
///     .max_waiting(50)                        // in each user's store
///     .build()?;
/// # let _ = users; Ok(()) }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct KeyedBuilder<K, S = RandomState> {
    quota: Option<Quota>,
    quota_by: Option<QuotaBy<K>>,
    max_keys: Option<u64>,
    overflow: Option<Quota>,
    max_in_flight: Option<u64>,
    max_waiting: Option<usize>,
    parent: Option<Limiter>,
    clock: Option<Chosen>,
    shards: Option<usize>,
    hasher: S,
}

impl<K> KeyedBuilder<K> {
    pub(super) fn new() -> Self {
        Self {
            quota: None,
            quota_by: None,
            max_keys: None,
            overflow: None,
            max_in_flight: None,
            max_waiting: None,
            parent: None,
            clock: None,
            shards: None,
            hasher: RandomState::new(),
        }
    }
}

impl<K, S> KeyedBuilder<K, S> {
    /// The quota of each key.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota = Some(quota);
        self
    }

    /// Asks for the quota of each key instead, whenever a key comes that is not in memory. Called outside of all locks. A key
    /// that owes nothing is forgotten, and asked for again when it comes back; one that does keeps its quota.
    ///
    /// # Panics
    ///
    /// Calls on the limiter do, if `quota_by` returns a quota that no keyed limiter could be built from.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let plans = |user: &String| Quota::per_second(if user.starts_with("paid-") { 100 } else { 5 });
    /// let users = KeyedLimiter::builder().quota_by(plans).build()?;
    /// assert_eq!(users.available(&"paid-ann".to_owned()), 100);
    /// assert_eq!(users.available(&"bob".to_owned()), 5);
    /// # Ok(()) }
    /// ```
    pub fn quota_by(mut self, quota_by: impl Fn(&K) -> Quota + Send + Sync + 'static) -> Self {
        self.quota_by = Some(Box::new(quota_by));
        self
    }

    /// Keeps at most so many keys in memory. A key is kept while it owes tokens, somebody waits on it, holds its tokens in
    /// flight, or it has a quota of its own. When so many are, newcomers are refused with `TooManyKeys`, or share a
    /// bucket if there is an [`overflow`](Self::overflow). Without this, memory grows with the keys that owe at the same time.
    ///
    /// A newcomer to a full map looks for a key that owes nothing any more where there may be one. After a change of the common
    /// quota, or after many waits that were given up, that can be the whole map: one call goes through some thousand keys of
    /// it at most, and is refused if it finds none; the next one goes on with the rest.
    ///
    /// What a grant is [settled](super::KeyedGrant::settle) for above its cost is written down beyond this bound if need be:
    /// that adds no more keys than there are such grants alive.
    pub fn max_keys(mut self, keys: u64) -> Self {
        self.max_keys = Some(keys);
        self
    }

    /// Lets newcomers share one bucket of this quota while the map is full, instead of refusing them. Who shares it gets a
    /// bucket of its own when there is room again: so one key can have both, and all newcomers together never more than this
    /// quota on top.
    pub fn overflow(mut self, quota: Quota) -> Self {
        self.overflow = Some(quota);
        self
    }

    /// Caps the tokens that each key has in flight; see [`Builder::max_in_flight`](crate::Builder::max_in_flight). A key with
    /// tokens in flight takes some 750 bytes instead of 16.
    pub fn max_in_flight(mut self, tokens: u64) -> Self {
        self.max_in_flight = Some(tokens);
        self
    }

    /// Turns callers away once this many are waiting for the same key.
    pub fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = Some(callers);
        self
    }

    /// Puts a limiter above all keys: a grant takes its cost from the key's bucket and from this limiter, both or neither.
    /// The limiter can be used by others too, and by other keyed limiters.
    ///
    /// * Of each key only the caller at the front of its line stands in the limiter's line, and only once the key's own
    ///   tokens are there. So keys take turns there, however many wait for one of them, and who is slow is in nobody's way.
    ///   The limiter's `max_waiting` turns none of them away.
    /// * [Settling](super::KeyedGrant::settle) counts in both, and so does what is in flight, where the limiter has a cap.
    /// * Closing the limiter closes the keyed limiter.
    /// * While somebody waits for a key, its estimates are `None`: how long the limiter will hold up those before a newcomer
    ///   cannot be said.
    ///
    /// Both should read the same clock: else it is the moment at which each line learns of a grant that counts there.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Limiter, Quota};
    /// let upstream = Limiter::new(Quota::per_minute(6_000).burst(5))?;
    /// let builder = KeyedLimiter::builder().quota(Quota::per_minute(600).burst(3)); // each
    /// let users = builder.parent(&upstream).build()?;                      // and all of them together
    /// let _grants = [users.try_acquire(&"ann", 3)?, users.try_acquire(&"bob", 2)?];
    /// assert!(users.try_acquire(&"bob", 1).is_err());
    /// assert_eq!(upstream.available(), 0);
    /// users.consume(&"bob", 1).await?; // 10 ms later
    /// # Ok(()) }
    /// ```
    pub fn parent(mut self, limiter: &Limiter) -> Self {
        self.parent = Some(limiter.clone());
        self
    }

    /// Shares the quota of each key with all keyed limiters, on whatever machines, that have the same quota on the same lines: a
    /// line for each key, named by the key's text. What is built then is a [`DistributedKeyedLimiter`](super::SharedKeyedLimiter),
    /// which can have `quota` or `quota_by`, `max_keys`, `max_waiting` and a `hasher`.
    ///
    /// The text is part of a key in Redis, so keys whose text is long, or a secret, are better named by
    /// [`distributed_by`](Self::shared_by).
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{KeyedLimiter, Quota, RedisStore};
    /// let stores = RedisStore::connect("redis://127.0.0.1/", "users").await?;
    /// let users = KeyedLimiter::builder().quota(Quota::per_second(10)).max_keys(100_000).distributed(stores).build()?;
    /// users.consume(&"ann".to_owned(), 1).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn distributed(self, stores: impl Stores) -> DistributedKeyedBuilder<K, S>
    where
        K: fmt::Display + 'static,
    {
        self.distributed_by(stores, |key| key.to_string())
    }

    /// [`core`](Self::shared), with lines that are named by `name`. Two keys of one name share one quota. Called outside of all
    /// locks, whenever a key is asked for that has no limiter here.
    #[cfg(feature = "redis")]
    pub fn distributed_by(
        self,
        stores: impl Stores,
        name: impl Fn(&K) -> String + Send + Sync + 'static,
    ) -> DistributedKeyedBuilder<K, S> {
        let Self { quota, quota_by, max_keys, overflow, max_in_flight, max_waiting, parent, clock, shards: _, hasher } =
            self;
        let cannot = [
            ("overflow", overflow.is_some()),
            ("max_in_flight", max_in_flight.is_some()),
            ("within_limiter", parent.is_some()),
            ("clock", clock.is_some()),
        ];
        let cannot = cannot.into_iter().find(|(_, is_set)| *is_set).map(|(setting, _)| setting);
        let (stores, name) = (Arc::new(stores), Box::new(name));
        DistributedKeyedBuilder::new(Config { quota, quota_by, max_keys, max_waiting, hasher, stores, name, cannot })
    }

    /// Takes time from `clock` instead of tokio's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Chosen::new(clock));
        self
    }

    /// Hashes keys by this instead of the standard library's hasher, whose seed nobody can know. A hasher whose collisions can be
    /// foreseen lets an attacker make every call slow, not wrong.
    pub fn hasher<H: BuildHasher>(self, hasher: H) -> KeyedBuilder<K, H> {
        let Self { quota, quota_by, max_keys, overflow, max_in_flight, max_waiting, parent, clock, shards, hasher: _ } =
            self;
        KeyedBuilder { quota, quota_by, max_keys, overflow, max_in_flight, max_waiting, parent, clock, shards, hasher }
    }

    /// Fixes the number of rooms, for tests.
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
    /// Checks everything and builds the limiter. Its time begins now, and stepped quotas count their periods from here.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the field and says what to write instead.
    pub fn build(self) -> Result<KeyedLimiter<K, S>, ConfigError> {
        let quota = match (self.quota, &self.quota_by) {
            (Some(quota), _) => quota,
            // Never used: whoever comes brings a quota.
            (None, Some(_)) => Quota::per_second(1),
            (None, None) => return Err(ConfigError::NoQuota),
        };
        check(&quota)?;
        self.overflow.as_ref().map_or(Ok(()), check)?;
        self.max_in_flight.map_or(Ok(()), check_cap)?;
        if self.max_keys == Some(0) {
            return Err(ConfigError::NoKeys);
        }
        let of_bound = |keys: u64| (keys / KEYS_PER_SHARD).clamp(1, MAX_SHARDS) as usize;
        let shards = self.shards.unwrap_or(self.max_keys.map_or(SHARDS, of_bound));
        let time = self.clock.map_or_else(Time::tokio, Time::other);
        let parent = self.parent.map(Limiter::into_core);
        let map = Arc::new_cyclic(|map: &std::sync::Weak<Map<K, S>>| {
            let pool = Arc::new(DriverPool::new(map.clone(), time.clone(), parent.clone()));
            let max_waiting = self.max_waiting.unwrap_or(usize::MAX);
            let (cap, driver) = (self.max_in_flight, Arc::new(Arc::clone(&pool)));
            let observers = Observers::default();
            let template = LiveTemplate { time, cap, max_waiting, driver, parent: parent.clone(), observers };
            Map::new(Parts {
                hasher: self.hasher,
                rate: Arc::new(Rate::new(quota)),
                quota_by: self.quota_by,
                shards,
                max_keys: self.max_keys,
                template,
                overflow: self.overflow.map(|quota| Arc::new(Rate::new(quota))),
                pool,
            })
        });
        let child: Arc<dyn ChildLimiter> = map.clone();
        if parent.is_some_and(|parent| !parent.add_child(Arc::downgrade(&child))) {
            map.close();
        }
        Ok(KeyedLimiter { map })
    }
}

/// What a quota of a keyed limiter must be, beside what every quota must be.
pub(super) fn check(quota: &Quota) -> Result<(), ConfigError> {
    quota.check(0)?;
    if quota.is_manual() {
        return Err(ConfigError::KeyedManual);
    }
    let (initial, burst) = (quota.filled_at_start(), quota.capacity());
    if initial != burst { Err(ConfigError::KeyedInitial { initial, burst }) } else { Ok(()) }
}

impl<K, S> fmt::Debug for KeyedBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBuilder")
            .field("quota", &self.quota)
            .field("quota_by", &self.quota_by.is_some())
            .field("max_keys", &self.max_keys)
            .field("overflow", &self.overflow)
            .field("max_in_flight", &self.max_in_flight)
            .field("max_waiting", &self.max_waiting)
            .field("within_limiter", &self.parent.is_some())
            .finish_non_exhaustive()
    }
}
