//! Methods that only read.

use super::KeyedLimiter;
use crate::core::classes::ROOT;
use crate::core::in_use::InUse;
use crate::core::parent::Parent;
use crate::core::rovers::Rovers;
use crate::core::state::State;
use crate::keyed::rates::{Kind, Levels, Rates};
use crate::keyed::{KeyedEntry, KeyedSnapshot, KeyedTop, Quotas, ToKey};
use crate::quota::Quota;
use crate::snapshot::{QuotaSnapshot, Snapshot};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedLimiter<K, S> {
    /// Returns how many tokens of the key [`try_acquire`](Self::try_acquire) could take now: 0 while the key has
    /// waiters, and at most what the [parent limiter](crate::KeyedBuilder::parent) has.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let users = KeyedLimiter::new(Quota::per_hour(10))?;
    /// assert_eq!(users.available(&"never seen"), 10);
    /// # Ok(()) }
    /// ```
    pub fn available(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        let own = self.look(key, 0, |state, rovers, now| state.shown_available(rovers, ROOT, now));
        own.min(self.map.template.parent.as_ref().map_or(u64::MAX, Parent::available))
    }

    /// Returns the quotas of the key: [`Quota::unlimited`] if it has none, but only a parent or an in-flight cap.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota, Quotas};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let users = KeyedLimiter::new(Quota::per_second(10))?;
    /// let own = Quotas::from([Quota::per_second(50), Quota::per_day(9_000)]);
    /// users.set_quota_for(&"ann", own.clone())?;
    /// assert_eq!((users.quotas(&"ann"), users.quotas(&"bob")), (own, Quota::per_second(10).into()));
    /// # Ok(()) }
    /// ```
    pub fn quotas(&self, key: &(impl ToKey<K> + ?Sized)) -> Quotas {
        let key = self.map.hashed(key);
        let rates = self.map.enter(key, false, |shard, request, context| shard.rates_of(request, context));
        rates.ok().and_then(Result::ok).map_or(Quotas::default(), |rates| rates.quotas.clone())
    }

    /// Returns the state of each quota of the key, in the order of [`quotas`](Self::quotas). The positions in
    /// [`head`](QuotaSnapshot::head) cannot be compared with those of other calls.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, ManualClock, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).quota_named("day", Quota::per_day(86_400));
    /// let users = builder.clock(ManualClock::new()).build()?;
    /// let _grant = users.try_acquire(&"ann", 4)?;
    /// let [second, day] = &users.quota_snapshots(&"ann")[..] else { panic!() };
    /// assert_eq!((second.available, second.more_in), (6, Some(Duration::from_millis(100))));
    /// assert_eq!((day.name.as_deref(), day.available, day.more_in), (Some("day"), 86_396, Some(Duration::from_secs(1))));
    /// # Ok(()) }
    /// ```
    pub fn quota_snapshots(&self, key: &(impl ToKey<K> + ?Sized)) -> Vec<QuotaSnapshot> {
        self.look(key, 0, |state, rovers, now| Snapshot::of(state, rovers, now).quotas)
    }

    /// Returns the state of each quota of the key for a response to its caller, with one look at the limiter where that
    /// is possible.
    ///
    /// It is the same as [`quota_snapshots`](Self::quota_snapshots) for several quotas. For a single quota,
    /// [`available`](QuotaSnapshot::available) and [`more_in`](QuotaSnapshot::more_in) also take a pause and the
    /// in-flight cap into account.
    ///
    /// The [parent limiter](crate::KeyedBuilder::parent) is left out: its state would disclose to the caller how much
    /// the other keys use. A key without a quota reports none.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Limiter, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let all = Limiter::new(Quota::per_second(4))?;
    /// let users = KeyedLimiter::builder().quota(Quota::per_second(10)).parent(&all).build()?;
    /// assert_eq!((users.available(&"ann"), users.reported_quotas(&"ann")[0].available), (4, 10));
    /// # Ok(()) }
    /// ```
    pub fn reported_quotas(&self, key: &(impl ToKey<K> + ?Sized)) -> Vec<QuotaSnapshot> {
        let read = |state: &mut State, rovers: &Rovers, now| {
            let mut quotas = Snapshot::of(state, rovers, now).quotas;
            if let [only] = &mut quotas[..] {
                if state.closed || state.cap.is_some() || state.supply.is_paused() || !state.queue.is_empty() {
                    only.available = state.shown_available(rovers, ROOT, now);
                    only.more_in = state.shown_estimate(rovers, only.available.saturating_add(1), now);
                }
            }
            quotas
        };
        let is_plain = self.map.template.cap.is_none() && !self.map.template.dry_run.is_on();
        // The usual case without a `State`, because servers call this for each request.
        let at_levels =
            |rates: &Rates, levels: &Levels| (is_plain && !levels.is_paused()).then(|| rates.snapshots(levels));
        let mut reported = self.look_or(key, 1, at_levels, read);
        let may_be_none = matches!(&reported[..], [only] if only.quota == Quota::unlimited());
        if may_be_none && self.map.common_rates().is_some_and(|rates| rates.kind == Kind::NoQuota) {
            reported.clear();
        }
        reported
    }

    /// Returns an address that only this limiter and its clones have.
    #[doc(hidden)]
    pub fn address(&self) -> *const () {
        Arc::as_ptr(&self.map).cast()
    }

    /// Returns by how many tokens the claims on the key exceed its tokens; see
    /// [`Limiter::deficiency`](crate::Limiter::deficiency).
    pub fn deficiency(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        self.look(key, 0, |state, rovers, now| state.shown_deficiency(rovers, now))
    }

    /// Returns how long a [`consume`](Self::consume) of `cost` on the key would wait if it were called now; see
    /// [`Limiter::estimate`](crate::Limiter::estimate). With a [parent limiter](crate::KeyedBuilder::parent), `None`
    /// while the key has waiters.
    pub fn estimate(&self, key: &(impl ToKey<K> + ?Sized), cost: u64) -> Option<Duration> {
        let own = self.look(key, cost, |state, rovers, now| state.shown_estimate(rovers, cost, now))?;
        self.map.template.parent.as_ref().map_or(Some(own), |parent| parent.estimate_later(cost, own))
    }

    /// Returns a snapshot for metrics. Takes one shard's lock at a time, and does not visit the keys, except those with
    /// waiters or tokens in flight, one by one.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_hour(1))?;
    /// let _grant = users.try_acquire(&"ann", 1)?;
    /// assert!(users.try_acquire(&"ann", 1).is_err());
    /// let snapshot = users.snapshot();
    /// assert_eq!((snapshot.keys, snapshot.most_refused), (1, vec![("ann", 1)]));
    /// # Ok(()) }
    /// ```
    pub fn snapshot(&self) -> KeyedSnapshot<K> {
        KeyedSnapshot::of(&self.map)
    }

    /// Returns the `n` keys with the most tokens granted, with the most refused calls, and with the most claims that
    /// had to wait, within about the last window; needs [`KeyedBuilder::top`](crate::KeyedBuilder::top), and is empty
    /// without it.
    ///
    /// The counts are upper bounds: each exceeds the truth by its [`error`](crate::TopKey::error) at most. All counts
    /// fade: an event counts whole at first, a third after one window, a 25th after three. The count of a key with
    /// a constant rate is that of one window, or up to an eighth less. Tokens count as they are granted, not as they
    /// are [settled](crate::KeyedGrant::settle). Takes one shard's lock at a time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::builder().quota(Quota::per_hour(9)).top(Duration::from_secs(60)).build()?;
    /// let _grants = (users.try_acquire(&"ann", 2)?, users.try_acquire(&"bob", 9)?);
    /// assert!(users.try_acquire(&"bob", 1).is_err());
    /// let top = users.top(10);
    /// assert_eq!(top.granted.iter().map(|top| (top.key, top.count)).collect::<Vec<_>>(), [("bob", 9), ("ann", 2)]);
    /// assert_eq!(top.refused.iter().map(|top| (top.key, top.count)).collect::<Vec<_>>(), [("bob", 1)]);
    /// # Ok(()) }
    /// ```
    pub fn top(&self, n: usize) -> KeyedTop<K> {
        let mut top = KeyedTop { granted: Vec::new(), refused: Vec::new(), waited: Vec::new() };
        if self.map.is_ranked {
            let now = self.map.now();
            for shard in &self.map.shards {
                shard.lock().ranks.iter_mut().for_each(|ranks| ranks.add_to(&mut top, now));
            }
            top.keep(n);
        }
        top
    }

    /// Returns an iterator over all keys in memory, with their states: keys that owe tokens, have waiters or have a
    /// quota of their own, and keys that owe nothing and have not been forgotten yet.
    ///
    /// The iterator visits the shards one after the other, some hundred keys under each lock, as far as it is driven.
    /// The result is therefore not a view of one instant: a key that comes or goes meanwhile may be included or not, and
    /// one that goes and comes again may be included twice. Every other key is included exactly once.
    ///
    /// # Panics
    ///
    /// Panics if `Clone` of a key panics.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_hour(10))?;
    /// let _grants = (users.try_acquire(&"ann", 9)?, users.try_acquire(&"bob", 2)?);
    /// let poorest = users.entries().min_by_key(|entry| entry.available);
    /// assert_eq!(poorest.map(|entry| (entry.key, entry.available)), Some(("ann", 1)));
    /// # Ok(()) }
    /// ```
    pub fn entries(&self) -> impl Iterator<Item = KeyedEntry<K>> {
        (0..self.map.shards.len()).flat_map(|number| KeyedEntry::of_shard(&self.map, number))
    }

    /// Reads the limiter that the key is, for a claim of `cost` if an estimate is made. The levels of a new key are full,
    /// and are not stored.
    fn look<R: Default>(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
        read: impl Fn(&mut State, &Rovers, u64) -> R,
    ) -> R {
        self.look_or(key, cost, |_, _| None, read)
    }

    /// [Looks](Self::look), unless `at_levels` has the answer.
    fn look_or<R: Default>(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
        at_levels: impl Fn(&Rates, &Levels) -> Option<R>,
        read: impl Fn(&mut State, &Rovers, u64) -> R,
    ) -> R {
        let at_live =
            |live: InUse| live.look_ahead(live.sample(), cost, |state, rovers, sample| read(state, rovers, sample.now));
        let result = self.map.enter(self.map.hashed(key), false, |shard, request, context| {
            let (template, is_closed) = (context.template, shard.is_closed());
            shard.at_levels(request, context, |rates, levels| {
                // If the clock has stepped back, the levels are of a later instant.
                let is_present = !is_closed && levels.at == request.now;
                is_present.then(|| at_levels(rates, levels)).flatten().unwrap_or_else(|| {
                    let (mut state, rovers) = template.state(rates, levels);
                    state.closed = is_closed;
                    read(&mut state, &rovers, request.now)
                })
            })
        });
        // A read stores no key, so a full map does not matter: the quotas of the key are bad, and it is granted nothing.
        result.map_or(R::default(), |result| result.unwrap_or_else(at_live))
    }
}
