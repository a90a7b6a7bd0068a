//! Changes by the operator: quotas, closing, ticking.

use super::KeyedLimiter;
use crate::Quota;
use crate::error::ConfigError;
use crate::keyed::builder;
use crate::keyed::keys::Keys;
use crate::keyed::map::Map;
use std::hash::{BuildHasher, Hash};

impl<K, S> KeyedLimiter<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Changes the quota of all keys, except those that were given [one of their own](Self::set_quota_for). The new
    /// quota replaces [`quota_by`](crate::KeyedBuilder::quota_by) too. The tokens of each key stay, up to the new
    /// burst, and waiters are timed anew.
    ///
    /// The change takes effect at the instant of this call: what a key has accrued until then is computed at the old
    /// rate, exactly. Keys with waiters are changed at once, one after the other. All others are changed later, a few
    /// hundred at a time, by the next call on one of them, or by later changes if there is no such call. So this call
    /// costs a short lock for each shard of the map, and a look at each key that has waiters. Concurrent calls see the
    /// old quota or the new one.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the new quota is invalid, or if the limiter is
    /// distributed; nothing changes then.
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
        self.map("set_quota")?.set_quota(quota);
        Ok(())
    }

    /// Gives one key a quota of its own, which it keeps until [`reset_quota_for`](Self::reset_quota_for). The tokens of
    /// the key stay, up to the new burst. A key with a quota of its own is never forgotten, and counts toward
    /// [`max_keys`](crate::KeyedBuilder::max_keys).
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the quota is invalid or the limiter is
    /// distributed, or [`TooManyKeys`](ConfigError::TooManyKeys); nothing changes
    /// then.
    pub fn set_quota_for(&self, key: &K, quota: Quota) -> Result<(), ConfigError> {
        builder::check(&quota)?;
        let map = self.map("set_quota_for")?;
        let most = map.key_limit.most().unwrap_or(u64::MAX);
        if map.set_quota_for(key, Some(quota)) { Ok(()) } else { Err(ConfigError::TooManyKeys { most }) }
    }

    /// Gives a key the quota that a new key would have. The tokens of the key stay.
    pub fn reset_quota_for(&self, key: &K) {
        // A key of a distributed limiter has no other quota.
        if let Keys::Local(map) = &self.keys {
            map.set_quota_for(key, None);
        }
    }

    /// Mints what is due by now, serves all queues, and forgets keys that owe nothing. Needed only for a limiter on a
    /// [manual clock](crate::ManualClock). Visits all keys.
    pub fn tick(&self) {
        // A distributed limiter is never on a manual clock.
        if let Keys::Local(map) = &self.keys {
            map.tick();
        }
    }

    /// Closes the limiter: every waiter and every later caller gets `Closed`. Existing grants stay valid. A distributed
    /// limiter is closed on this node.
    pub fn close(&self) {
        match &self.keys {
            Keys::Local(map) => map.close(),
            Keys::Distributed(keys) => keys.close(),
        }
    }

    /// The map, for a change that a distributed limiter does not support: all nodes use the same quotas.
    pub(in crate::keyed) fn map(&self, setting: &'static str) -> Result<&Map<K, S>, ConfigError> {
        match &self.keys {
            Keys::Local(map) => Ok(map),
            Keys::Distributed(_) => Err(ConfigError::DistributedKeyed { setting }),
        }
    }
}
