//! Changes by the operator: quotas, closing, ticking.

use super::KeyedLimiter;
use crate::core::Core;
use crate::error::ConfigError;
use crate::keyed::shard::Assigned;
use crate::keyed::{Quotas, ToKey};
use crate::{Quota, Which};
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedLimiter<K, S> {
    /// Changes the quotas of all keys, except those that were given [quotas of their own](Self::set_quota_for). The new
    /// quotas replace [`quota_by`](crate::KeyedBuilder::quota_by) too. Waiters are timed anew.
    ///
    /// The tokens of each key stay, up to the new burst, quota by quota in their order. A quota that is added behind
    /// the others starts full; a quota that is left out at the end is gone, with what the key owed to it.
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
    pub fn set_quota(&self, quotas: impl Into<Quotas>) -> Result<(), ConfigError> {
        let quotas = quotas.into();
        quotas.check()?;
        self.map.set_quotas(quotas);
        Ok(())
    }

    /// Gives one key quotas of its own, which it keeps until [`reset_quota_for`](Self::reset_quota_for). The tokens of
    /// the key stay, as with [`set_quota`](Self::set_quota). A key with quotas of its own is never forgotten, and
    /// counts toward [`max_keys`](crate::KeyedBuilder::max_keys).
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the quota is invalid, or [`TooManyKeys`](ConfigError::TooManyKeys); nothing changes
    /// then.
    pub fn set_quota_for(&self, key: &(impl ToKey<K> + ?Sized), quotas: impl Into<Quotas>) -> Result<(), ConfigError> {
        let quotas = quotas.into();
        quotas.check()?;
        self.map.assign(key, &Assigned::Own(self.map.rates(quotas)), false)
    }

    /// Changes one quota of one key, selected by index or by name. The key keeps its other quotas, and the name. From
    /// now on the key has quotas of its own: see [`set_quota_for`](Self::set_quota_for).
    ///
    /// # Errors
    ///
    /// Returns [`UnknownQuota`](ConfigError::UnknownQuota), or an error of `set_quota_for`; nothing changes then.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).quota_named("day", Quota::per_day(1_000));
    /// let users = builder.build()?;
    /// users.set_one_quota_for(&"ann", "day", Quota::per_day(5_000))?;
    /// assert_eq!(users.quotas(&"ann").to_string(), "10/s; day: 5000/d");
    /// assert_eq!(users.quotas(&"bob").to_string(), "10/s; day: 1000/d");
    /// # Ok(()) }
    /// ```
    pub fn set_one_quota_for<'q>(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        which: impl Into<Which<'q>>,
        quota: Quota,
    ) -> Result<(), ConfigError> {
        self.map.assign(key, &Assigned::One(which.into(), quota), false)
    }

    /// Gives a key the quotas that a new key would have, if they are valid. The tokens of the key stay.
    pub fn reset_quota_for(&self, key: &(impl ToKey<K> + ?Sized)) {
        _ = self.map.assign(key, &Assigned::AsNew, false);
    }

    /// Asks [`quota_by`](crate::KeyedBuilder::quota_by) again for each key in memory, and gives the key the quotas that
    /// it returns: for example after the table of plans has changed. The tokens of each key stay, as with
    /// [`set_quota`](Self::set_quota), and waiters are timed anew. Keys with [quotas of their own](Self::set_quota_for)
    /// keep them, and a key for which it returns no valid quotas keeps those that it has. Without `quota_by`, or after
    /// `set_quota` has replaced it, this does nothing.
    ///
    /// Visits all keys, one after the other: each key changes at the instant at which it is visited. `quota_by` is
    /// called outside of all locks.
    ///
    /// # Panics
    ///
    /// Panics if `quota_by` panics, and where `Clone`, `Hash` or `Eq` of a key panics. Some keys may already have their
    /// new quotas then.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use tollgate::{KeyedLimiter, ManualClock, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let burst = Arc::new(AtomicU64::new(5));
    /// let plans = Arc::clone(&burst);
    /// let quota_by = move |_: &&str| Quota::per_second(plans.load(Relaxed));
    /// let users = KeyedLimiter::builder().quota_by(quota_by).clock(ManualClock::new()).build()?;
    /// let _grant = users.try_acquire(&"ann", 1)?;
    /// burst.store(3, Relaxed);
    /// assert_eq!(users.available(&"ann"), 4); // ann is in memory, with the quota that she came with
    /// users.renew_quotas();
    /// assert_eq!(users.available(&"ann"), 3);
    /// # Ok(()) }
    /// ```
    pub fn renew_quotas(&self) {
        let map = &self.map;
        if map.common_rates().is_some() {
            return;
        }
        for number in 0..map.shards.len() {
            map.list_shard(number, |listed| {
                let keys = listed.into_iter().filter(|listed| !listed.pinned).map(|listed| listed.key);
                keys.for_each(|key| _ = map.assign(&key, &Assigned::AsNewUnlessOwn, false));
            });
        }
    }

    /// Puts the quotas of all keys in [dry run](crate::KeyedBuilder::dry_run), or enforces them again, as
    /// [`Limiter::set_dry_run`](crate::Limiter::set_dry_run) does: each key has the level of its simulation then.
    ///
    /// Visits each key that has a queue, real or simulated.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the limiter has a parent; nothing changes then. Also if a [joint claim](crate::join)
    /// waits for a key: that key stays enforced, and the others are in dry run. Try again when none waits.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, ManualClock, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).clock(ManualClock::new());
    /// let users = builder.dry_run().build()?;
    /// let _passes = users.try_acquire(&"ann", 4)?;
    /// users.set_dry_run(false)?;
    /// assert_eq!(users.available(&"ann"), 6);
    /// assert!(users.try_acquire(&"ann", 7).is_err());
    /// # Ok(()) }
    /// ```
    pub fn set_dry_run(&self, dry_run: bool) -> Result<(), ConfigError> {
        if self.map.template.parent.is_some() {
            return Err(ConfigError::DryRunUnsupported { setting: "parent" });
        }
        let template = &self.map.template;
        template.dry_run.set(dry_run);
        let refused = Cell::new(None);
        let set = |live: &Arc<Core>| live.set_dry_run_of_all(|| template.dry_run.is_on());
        self.map.visit_all(|_| {}, |live| set(live).err().into_iter().for_each(|error| refused.set(Some(error))));
        refused.into_inner().map_or(Ok(()), Err)
    }

    /// Mints what is due by now, serves all queues, and forgets keys that owe nothing. Needed only for a limiter on a
    /// [manual clock](crate::ManualClock). Visits all keys.
    pub fn tick(&self) {
        let map = &self.map;
        if let Some(parent) = &map.template.parent {
            parent.tick();
        }
        map.visit_all(|_| {}, |live| live.tick());
        for number in 0..map.shards.len() {
            let now = map.now();
            map.in_shard(number, |shard, context| shard.sweep_at(now, context));
        }
    }

    /// Closes the limiter: every waiter and every later caller gets `Closed`. Existing grants stay valid.
    pub fn close(&self) {
        self.map.close();
    }
}
