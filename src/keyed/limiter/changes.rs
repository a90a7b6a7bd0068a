//! The operator's verbs.

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
    /// Changes the quota of all keys, except for those that were given [one of their own](Self::set_quota_for); it replaces
    /// [`quota_by`](crate::KeyedBuilder::quota_by) too. What each key holds stays, as far as the new burst, and waiters are timed
    /// anew.
    ///
    /// The change counts from the instant of this call: what a key has accrued until then is settled at the old rate, exactly.
    /// Keys that have waiters are told at once, one after the other. All others are brought to the new quota later, a few
    /// hundred at a time, by the next call that comes to one of them; if no call does, by later changes. So this costs a
    /// short lock for each shard of the map, and a look at each key that is waited on. Calls made meanwhile meet the old quota
    /// or the new one.
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
    /// [`max_keys`](crate::KeyedBuilder::max_keys).
    ///
    /// # Errors
    ///
    /// What is wrong with the quota, or [`TooManyKeys`](ConfigError::TooManyKeys); nothing changes then.
    pub fn set_quota_for(&self, key: &K, quota: Quota) -> Result<(), ConfigError> {
        builder::check(&quota)?;
        let most = self.map.key_limit.most().unwrap_or(u64::MAX);
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
}
