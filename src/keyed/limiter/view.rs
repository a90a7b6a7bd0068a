//! Methods that only read.

use super::KeyedLimiter;
use crate::core::Core;
use crate::core::classes::ROOT;
use crate::core::parent::Parent;
use crate::keyed::map::{most_claimable, wait};
use crate::keyed::rate::{Level, Rate};
use crate::keyed::rates::{Levels, Rates};
use crate::keyed::{KeyedEntry, KeyedSnapshot, KeyedTop, Quotas, ToKey};
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
        self.own_available(key).min(self.map.parent.as_ref().map_or(u64::MAX, Parent::available))
    }

    /// Returns the quotas of the key.
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
        let on_live = |_: &_| unreachable!("a read of the quotas needs no live entry");
        let rates = self
            .map
            .act(self.map.hashed(key), false, on_live, |shard, request, context| shard.rates_of(request, context));
        rates.map_or(Quotas::default(), |rates| rates.quotas.clone())
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
        let at_live =
            |live: &Core| live.look_at(|state, rovers, sample| Snapshot::of(state, rovers, sample.now).quotas);
        self.look(key, quota_snapshots, at_live, None)
    }

    /// Returns the state of each quota of the key for a response to its caller, with one look at the limiter where that
    /// is possible.
    ///
    /// It is the same as [`quota_snapshots`](Self::quota_snapshots) for several quotas. For a single quota,
    /// [`available`](QuotaSnapshot::available) and [`more_in`](QuotaSnapshot::more_in) also take a pause and the
    /// in-flight cap into account.
    ///
    /// The [parent limiter](crate::KeyedBuilder::parent) is left out: its state would disclose to the caller how much
    /// the other keys use.
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
        let at_levels = |rates: &Rates, levels: &Levels, now: u64| {
            let mut quotas = quota_snapshots(rates, levels, now);
            // Without a pause, and unless the clock has stepped back, this is what the snapshot says.
            if let [only] = &mut quotas[..] {
                if levels.is_paused() || levels.at > now {
                    only.available = rates.available(levels);
                    let one_more = rates.reached(levels, only.available.saturating_add(1));
                    only.more_in = one_more.map(|at| wait(at, levels, now));
                }
            }
            (quotas, self.map.template.cap.is_none())
        };
        let at_live =
            |live: &Core| (live.look_at(|state, rovers, sample| Snapshot::of(state, rovers, sample.now).quotas), false);
        let (mut quotas, is_all) = self.look(key, at_levels, at_live, Some((Vec::new(), false)));
        if quotas.is_empty() {
            // The limiter is closed.
            quotas = self.quota_snapshots(key);
        }
        if let [only] = &mut quotas[..] {
            if !is_all {
                only.available = self.own_available(key);
                only.more_in = self.own_estimate(key, only.available.saturating_add(1));
            }
        }
        quotas
    }

    /// Returns an address that only this limiter and its clones have.
    #[doc(hidden)]
    pub fn address(&self) -> *const () {
        Arc::as_ptr(&self.map).cast()
    }

    /// Returns by how many tokens the claims on the key exceed its tokens; see
    /// [`Limiter::deficiency`](crate::Limiter::deficiency).
    pub fn deficiency(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        let at_levels = |rates: &Rates, levels: &Levels, _| rates.tokens(levels).min(0).unsigned_abs();
        self.look(
            key,
            at_levels,
            |live| live.look_at(|state, rovers, sample| state.shown_deficiency(rovers, sample.now)),
            None,
        )
    }

    /// Returns how long a [`consume`](Self::consume) of `cost` on the key would wait if it were called now; see
    /// [`Limiter::estimate`](crate::Limiter::estimate). With a [parent limiter](crate::KeyedBuilder::parent), `None`
    /// while the key has waiters.
    pub fn estimate(&self, key: &(impl ToKey<K> + ?Sized), cost: u64) -> Option<Duration> {
        let own = self.own_estimate(key, cost)?;
        self.map.parent.as_ref().map_or(Some(own), |parent| parent.estimate_later(cost, own))
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
    /// The counts are upper bounds: each exceeds the truth by its [`error`](crate::TopKey::error) at most. The tokens
    /// of a busy limiter are estimated from a sample of the grants, by some percent too high or too low. All counts
    /// fade: an event counts whole at first, a third after one window, a twentieth after three. The count of a key with
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
        let mut top = KeyedTop::default();
        if self.map.is_ranked {
            let now = self.map.now();
            for shard in &self.map.shards {
                shard.lock().ranks().into_iter().for_each(|ranks| ranks.add_to(&mut top, now));
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

    /// Reads levels or a live entry. A closed limiter returns `closed` instead, if that is set. The levels of a new key
    /// are full, and are not stored.
    fn look<R: Default>(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        at_levels: impl Fn(&Rates, &Levels, u64) -> R,
        at_live: impl Fn(&Core) -> R,
        closed: Option<R>,
    ) -> R {
        match self.map.act(
            self.map.hashed(key),
            false,
            |live| (at_live(live), false),
            |shard, request, context| {
                let levels =
                    shard.at_levels(request, context, |rates, levels| at_levels(rates, levels, request.now))?;
                Ok((levels, shard.is_closed()))
            },
        ) {
            Ok((levels, is_closed)) => closed.filter(|_| is_closed).unwrap_or(levels),
            // A read stores no key, so a full map does not matter: the quotas of the key are bad, and it is granted nothing.
            Err(_) => R::default(),
        }
    }

    /// What the key could get without the parent.
    fn own_available(&self, key: &(impl ToKey<K> + ?Sized)) -> u64 {
        let cap = self.map.template.cap().unwrap_or(u64::MAX);
        let at_levels = |rates: &Rates, levels: &Levels, _| rates.available(levels).min(cap);
        let at_live =
            |live: &Core| live.look_at(|state, rovers, sample| state.shown_available(rovers, ROOT, sample.now));
        self.look(key, at_levels, at_live, Some(0))
    }

    /// How long a claim would wait without the parent.
    fn own_estimate(&self, key: &(impl ToKey<K> + ?Sized), cost: u64) -> Option<Duration> {
        let cap = self.map.template.cap().unwrap_or(u64::MAX).min(self.map.template.max_cost);
        let at_levels = |rates: &Rates, levels: &Levels, now| {
            if cost > most_claimable(rates, levels).min(cap) {
                return None;
            }
            if cost == 0 {
                return Some(Duration::ZERO);
            }
            rates.reached(levels, cost).map(|at| wait(at, levels, now))
        };
        let at_live = |live: &Core| {
            live.look_ahead(live.sample(), cost, |state, rovers, sample| state.shown_estimate(rovers, cost, sample.now))
        };
        self.look(key, at_levels, at_live, Some(None))
    }
}

fn quota_snapshots(rates: &Rates, levels: &Levels, now: u64) -> Vec<QuotaSnapshot> {
    let each = rates.iter().zip(rates.quotas.named()).enumerate();
    each.map(|(index, (rate, (name, _)))| quota_snapshot(name.clone(), rate, levels.level(index), now)).collect()
}

fn quota_snapshot(name: Option<Arc<str>>, rate: &Rate, level: Level, now: u64) -> QuotaSnapshot {
    let tokens = rate.tokens(level.units);
    let available = tokens.max(0) as u64;
    let more_in =
        rate.reached(level, available.saturating_add(1)).map(|at| Duration::from_nanos(at.saturating_sub(now)));
    QuotaSnapshot {
        name,
        quota: rate.quota,
        head: tokens as u64,
        level: tokens,
        available,
        more_in,
        dry_run: false,
        would_refuse: 0,
    }
}
