//! Changes by the operator: quotas, dry run, pauses, the in-flight cap, tokens added by hand, closing, ticking.

use super::KeyedLimiter;
use crate::clock::whole_nanos;
use crate::core::Core;
use crate::core::in_use::InUse;
use crate::error::ConfigError;
use crate::keyed::shard::{Assigned, Shard};
use crate::keyed::{Quotas, ToKey};
use crate::quota::check_cap;
use crate::sync::Ordering;
use crate::{Quota, Which};
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;
use tokio::time::Instant;

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
            let keys = map.list_shard(number).into_iter().filter(|listed| !listed.pinned).map(|listed| listed.key);
            keys.for_each(|key| _ = map.assign(&key, &Assigned::AsNewUnlessOwn, false));
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
        let set = |live: InUse| live.set_dry_run_of_all(|| template.dry_run.is_on());
        self.map.visit_all(|_| {}).map(set).fold(Ok(()), Result::and)
    }

    /// Mints what is due by now, serves all queues, and forgets keys that owe nothing. Needed only for a limiter on a
    /// [manual clock](crate::ManualClock). Visits all keys.
    pub fn tick(&self) {
        let map = &self.map;
        if let Some(parent) = &map.template.parent {
            parent.tick();
        }
        map.visit_all(|_| {}).for_each(|live| live.tick());
        for number in 0..map.shards.len() {
            let now = map.now();
            map.in_shard(number, |shard, context| shard.sweep_at(now, context));
        }
    }

    /// Closes the limiter: every waiter and every later caller gets `Closed`. Existing grants stay valid.
    pub fn close(&self) {
        self.map.close();
    }

    /// Pauses a key for `duration` from now, for example after the host that the key names returned "429, retry after".
    ///
    /// No claim on the key passes during the pause. Its buckets continue to fill up to their bursts. A shorter pause
    /// never shortens a longer one. [`resume`](Self::resume) ends the pause early. Other keys are not delayed.
    ///
    /// A key that is paused is kept in memory, where it takes some 150 bytes until the pause is over and it owes
    /// nothing, even if this exceeds [`max_keys`](crate::KeyedBuilder::max_keys).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::{Duration, Instant};
    /// use tollgate::{KeyedLimiter, Quota};
    /// let hosts = KeyedLimiter::new(Quota::per_second(1_000))?;
    /// let start = Instant::now();
    /// hosts.pause_for(&"a.example", Duration::from_millis(20));
    /// assert_eq!((hosts.available(&"a.example"), hosts.available(&"b.example")), (0, 1_000));
    /// hosts.wait(&"a.example", 1).await?;
    /// assert!(start.elapsed() >= Duration::from_millis(20));
    /// # Ok(()) }
    /// ```
    pub fn pause_for(&self, key: &(impl ToKey<K> + ?Sized), duration: Duration) {
        let nanos = whole_nanos(duration);
        let pause = |live: &Core| live.with(|state, rovers, sample| state.pause_for(rovers, sample.now, nanos));
        if nanos > 0 {
            self.map.at_live(key, true, pause);
        }
    }

    /// Pauses a key until an instant of tokio's clock; see [`pause_for`](Self::pause_for). An instant in the past does
    /// nothing.
    pub fn pause_until(&self, key: &(impl ToKey<K> + ?Sized), instant: Instant) {
        self.pause_for(key, instant.saturating_duration_since(Instant::now()));
    }

    /// Ends the pause of a key now, for example because the host that the key names answers again. Does nothing if the
    /// key is not paused.
    ///
    /// Callers that wait for the key are served from now on, by its levels and rates. A pause of all keys goes on, and
    /// holds this key too: see [`resume_all`](Self::resume_all). A caller that was refused during the pause is not
    /// told.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hosts = KeyedLimiter::new(Quota::per_hour(1))?;
    /// hosts.pause_for(&"a.example", Duration::from_secs(600));
    /// assert!(hosts.try_acquire(&"a.example", 1).is_err());
    /// hosts.resume(&"a.example");
    /// let _grant = hosts.try_acquire(&"a.example", 1)?;
    /// # Ok(()) }
    /// ```
    pub fn resume(&self, key: &(impl ToKey<K> + ?Sized)) {
        self.map.at_live(key, false, |live| live.with(|state, rovers, _| state.end_pause(rovers)));
    }

    /// Pauses all keys for `duration` from now: those in memory, and those that come later. See
    /// [`pause_for`](Self::pause_for). [`resume_all`](Self::resume_all) ends the pause early.
    ///
    /// Takes a short lock for each shard of the map, and visits each key that has waiters or tokens in flight.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, ManualClock, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// let users = KeyedLimiter::builder().quota(Quota::per_second(10)).clock(clock.clone()).build()?;
    /// users.pause_all_for(Duration::from_secs(2));
    /// assert_eq!((users.available(&"ann"), users.estimate(&"bob", 1)), (0, Some(Duration::from_secs(2))));
    /// clock.advance(Duration::from_secs(2));
    /// assert_eq!(users.available(&"ann"), 10);
    /// # Ok(()) }
    /// ```
    pub fn pause_all_for(&self, duration: Duration) {
        // The clock may have stepped back: the pause counts from the latest time that any key has seen.
        let latest = Cell::new(self.map.now());
        let see = |synced: u64| latest.set(synced.max(latest.get()));
        self.map.visit_all(|shard| see(shard.synced)).for_each(|live| see(live.state.lock().supply.synced()));
        let gate = latest.get().saturating_add(whole_nanos(duration));
        self.map.template.gate.fetch_max(gate, Ordering::AcqRel);
        self.refresh_pauses();
    }

    /// Ends the pause of all keys now. Does nothing if there is none.
    ///
    /// Callers that wait are served from now on, by the levels and rates of their keys. A key that was paused by itself
    /// stays paused: see [`resume`](Self::resume).
    ///
    /// Takes a short lock for each shard of the map, and visits each key that has waiters or tokens in flight.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hosts = KeyedLimiter::new(Quota::per_hour(10))?;
    /// hosts.pause_for(&"a.example", Duration::from_secs(60));
    /// hosts.pause_all_for(Duration::from_secs(600));
    /// assert_eq!((hosts.available(&"a.example"), hosts.available(&"b.example")), (0, 0));
    /// hosts.resume_all();
    /// assert_eq!((hosts.available(&"a.example"), hosts.available(&"b.example")), (0, 10));
    /// # Ok(()) }
    /// ```
    pub fn resume_all(&self) {
        self.map.template.gate.store(0, Ordering::Release);
        self.refresh_pauses();
    }

    /// Tells all keys that the pause of all of them has changed. Each reads its end under the lock of its shard or of
    /// its entry, so after several concurrent changes all keys have the last one.
    fn refresh_pauses(&self) {
        let refresh = |live: InUse| {
            live.with(|state, rovers, _| state.pause_in_common(rovers, self.map.template.gate()));
        };
        self.map.visit_all(Shard::close_fast_path).for_each(refresh);
    }

    /// Changes the in-flight cap of each key; see
    /// [`Limiter::set_max_in_flight`](crate::Limiter::set_max_in_flight).
    ///
    /// Takes a short lock for each shard of the map, and visits each key that has waiters or tokens in flight.
    ///
    /// # Errors
    ///
    /// Returns [`NotCapped`](ConfigError::NotCapped) if the limiter was built without a cap, and
    /// [`BadMaxInFlight`](ConfigError::BadMaxInFlight) if the new cap is invalid.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hosts = KeyedLimiter::builder().quota(Quota::per_second(100)).max_in_flight(1).build()?;
    /// let _held = hosts.try_acquire(&"a.example", 1)?;
    /// assert_eq!(hosts.available(&"a.example"), 0);
    /// hosts.set_max_in_flight(4)?;
    /// assert_eq!(hosts.available(&"a.example"), 3);
    /// # Ok(()) }
    /// ```
    pub fn set_max_in_flight(&self, tokens: u64) -> Result<(), ConfigError> {
        check_cap(tokens)?;
        let template = &self.map.template;
        let cap = template.cap.as_ref().ok_or(ConfigError::NotCapped)?;
        let refresh = |live: InUse| {
            // The cap is read under the entry's lock, so after several concurrent changes the entry has the last cap.
            live.with(|state, rovers, _| state.set_max_in_flight(rovers, cap.load(Ordering::Acquire)))
                .expect("every entry of a capped limiter is capped");
        };
        // Before any shard is visited: a live entry that is created behind the visit gets the new cap.
        cap.store(tokens, Ordering::Release);
        self.map.visit_all(|_| {}).for_each(refresh);
        Ok(())
    }

    /// Adds `tokens` to each quota of the key by hand, up to the bursts, and serves the key's queue; see
    /// [`Limiter::replenish`](crate::Limiter::replenish).
    pub fn replenish(&self, key: &(impl ToKey<K> + ?Sized), tokens: u64) {
        self.map.at_live(key, false, |live| live.with_batch(|state, rovers, _| state.replenish(rovers, tokens)));
    }

    /// Returns true once [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.map.shards.first().is_some_and(|shard| shard.lock().is_closed())
    }
}
