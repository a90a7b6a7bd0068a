//! Changes at run time: pauses, the in-flight cap, and tokens added by hand.

use super::KeyedLimiter;
use crate::clock::whole_nanos;
use crate::core::Core;
use crate::error::ConfigError;
use crate::keyed::ToKey;
use crate::keyed::shard::Shard;
use crate::quota::check_cap;
use crate::sync::Ordering;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedLimiter<K, S> {
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
        self.map.visit_all(|shard| see(shard.synced), |live| see(live.state.lock().supply.synced()));
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
        let refresh = |live: &Arc<Core>| {
            live.with(|state, rovers, _| state.pause_in_common(rovers, self.map.template.gate()));
        };
        self.map.visit_all(Shard::close_fast_path, refresh);
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
        let refresh = |live: &Arc<Core>| {
            // The cap is read under the entry's lock, so after several concurrent changes the entry has the last cap.
            live.with(|state, rovers, _| state.set_max_in_flight(rovers, cap.load(Ordering::Acquire)))
                .expect("every entry of a capped limiter is capped");
        };
        // Before any shard is visited: a live entry that is created behind the visit gets the new cap.
        cap.store(tokens, Ordering::Release);
        self.map.visit_all(|_| {}, refresh);
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
