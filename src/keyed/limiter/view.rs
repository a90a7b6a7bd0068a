//! The verbs of those who only look.

use super::KeyedLimiter;
use crate::Quota;
use crate::keyed::{KeyedEntries, KeyedSnapshot};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

impl<K, S> KeyedLimiter<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// How many tokens of the key [`try_acquire`](Self::try_acquire) could take now: 0 while anybody waits for it. No more
    /// than the limiter [above all keys](crate::KeyedBuilder::within_limiter) has.
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
    /// [`Limiter::estimate`](crate::Limiter::estimate). Under a [limiter](crate::KeyedBuilder::within_limiter) `None` while anybody
    /// waits for the key.
    pub fn estimate(&self, key: &K, cost: u64) -> Option<Duration> {
        self.map.estimate(key, cost)
    }

    /// A picture for metrics. Takes one small lock at a time, and does not go through the keys; but those that are waited on or
    /// have tokens in flight are looked at one by one.
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

    /// Every key in memory, with what it holds: those that owe tokens, are waited on or have quotas of their own, and those
    /// that owe nothing and have not been forgotten yet.
    ///
    /// Goes from room to room, some hundred keys under each small lock, as far as the iterator is driven. So it is no picture
    /// of one instant: a key that comes or goes meanwhile may be in it or not, every other one is in it once.
    ///
    /// # Panics
    ///
    /// Where `Clone` of a key does.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_hour(10))?;
    /// let _ = (users.try_acquire(&"ann", 9)?, users.try_acquire(&"bob", 2)?);
    /// let poorest = users.entries().min_by_key(|entry| entry.available);
    /// assert_eq!(poorest.map(|entry| (entry.key, entry.available)), Some(("ann", 1)));
    /// # Ok(()) }
    /// ```
    pub fn entries(&self) -> KeyedEntries<'_, K, S> {
        KeyedEntries::new(&self.map)
    }
}
