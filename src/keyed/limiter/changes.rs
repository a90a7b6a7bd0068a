//! Changes by the operator: quotas, closing, ticking.

use super::KeyedLimiter;
use crate::Quota;
use crate::error::ConfigError;
use crate::keyed::builder;
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
    /// Returns a [`ConfigError`] if the new quota is invalid; nothing changes then.
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

    /// Gives one key a quota of its own, which it keeps until [`reset_quota_for`](Self::reset_quota_for). The tokens of
    /// the key stay, up to the new burst. A key with a quota of its own is never forgotten, and counts toward
    /// [`max_keys`](crate::KeyedBuilder::max_keys).
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the quota is invalid, or [`TooManyKeys`](ConfigError::TooManyKeys); nothing changes
    /// then.
    pub fn set_quota_for(&self, key: &K, quota: Quota) -> Result<(), ConfigError> {
        builder::check(&quota)?;
        let most = self.map.key_limit.most().unwrap_or(u64::MAX);
        if self.map.set_quota_for(key, Some(quota)) { Ok(()) } else { Err(ConfigError::TooManyKeys { most }) }
    }

    /// Gives a key the quota that a new key would have. The tokens of the key stay.
    pub fn reset_quota_for(&self, key: &K) {
        self.map.set_quota_for(key, None);
    }

    /// Mints what is due by now, serves all queues, and forgets keys that owe nothing. Needed only for a limiter on a
    /// [manual clock](crate::ManualClock). Visits all keys.
    pub fn tick(&self) {
        self.map.tick();
    }

    /// Closes the limiter: every waiter and every later caller gets `Closed`. Existing grants stay valid.
    pub fn close(&self) {
        self.map.close();
    }
}
