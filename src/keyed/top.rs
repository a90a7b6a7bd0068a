//! The keys with the most grants, refusals and waits: a fixed number of counters, for any number of keys.
//!
//! [`SpaceSaving`] is the algorithm of Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
//! elements in data streams" (ICDT 2005). If a key has no counter while all are in use, it takes over the counter with
//! the least count and continues from there: the count that it takes over is the *error* of its counter. So a counter
//! never shows less than the truth, and more by its error at most, and every key with more than `n/counters` of `n`
//! events has a counter.
//!
//! [`Ranks`] keeps three of these for each shard. A shard sees only its own keys, so a few counters for each find the
//! heaviest keys of the map: a key that is heavy in the map is a large part of its shard.
//!
//! Old events fade: all counts are multiplied by [`FADING`] eight times per window. Multiplying keeps the guarantees,
//! with faded events in place of events. The count of a key with a constant rate is then that of one window, or up to
//! an eighth less.

use super::{Hashed, ToKey};
use std::cmp::Reverse;
use std::mem;
use std::time::Duration;

/// The counters of all shards together, for each rank.
const COUNTERS: usize = 1_088;
/// The number of counters of a shard, at least and at most. The counters are searched one by one.
const PER_SHARD: std::ops::RangeInclusive<usize> = 2..=64;
/// How many times per window all counts fade, and by which factor: `1 - 1/FADES`, so that the sum over all time weighs
/// as much as one window.
const FADES: u64 = 8;
const FADING: f64 = 1.0 - 1.0 / FADES as f64;
/// The number of counters for refusals since the limiter was built.
pub(super) const MOST_REFUSED: usize = 16;

/// The keys with the largest counts, in descending order.
#[derive(Debug)]
pub(super) struct SpaceSaving<K> {
    /// Sorted, the largest count first.
    counters: Vec<Counter<K>>,
    most: usize,
}

#[derive(Debug)]
struct Counter<K> {
    hash: u64,
    count: f64,
    /// By how much `count` may exceed the truth.
    error: f64,
    /// `None` until the second event of a key that took the counter over: most keys are seen once, and clone nothing.
    key: Option<K>,
}

impl<K> SpaceSaving<K> {
    pub(super) fn new(most: usize) -> Self {
        Self { counters: Vec::new(), most }
    }

    /// Multiplies all counts by `factor`.
    fn fade(&mut self, factor: f64) {
        for counter in &mut self.counters {
            counter.count *= factor;
            counter.error *= factor;
        }
    }

    /// Moves the counter at `at` forward to where `count` belongs, and sets it.
    #[inline]
    fn raise(&mut self, at: usize, count: f64) {
        let old = mem::replace(&mut self.counters[at].count, count);
        let to = self.counters[..at].partition_point(|counter| counter.count >= count);
        if self.counters[to].count == old {
            // All counters between are equal, so that one exchange is enough.
            self.counters.swap(at, to);
        } else {
            self.counters[to..=at].rotate_right(1);
        }
    }
}

impl<K: Clone + Eq> SpaceSaving<K> {
    /// Counts `events` of `key`. Returns the key that lost its counter, if any: the caller drops it after releasing the
    /// lock.
    #[inline]
    pub(super) fn count(&mut self, key: Hashed<'_, impl ToKey<K> + ?Sized>, events: f64) -> Option<K> {
        let is_own = |counter: &Counter<K>| {
            counter.hash == key.hash && counter.key.as_ref().is_none_or(|own| key.form.equivalent(own))
        };
        let Some(at) = self.counters.iter().position(is_own) else { return self.begin(key, events) };
        let own = &mut self.counters[at];
        if own.key.is_none() {
            own.key = Some(key.form.to_key());
        }
        let count = own.count + events;
        self.raise(at, count);
        None
    }

    /// Gives a counter to a key that has none.
    fn begin(&mut self, key: Hashed<'_, impl ToKey<K> + ?Sized>, events: f64) -> Option<K> {
        if self.counters.len() < self.most {
            if self.counters.is_empty() {
                self.counters.reserve_exact(self.most);
            }
            self.counters.push(Counter { hash: key.hash, count: 0.0, error: 0.0, key: Some(key.form.to_key()) });
            self.raise(self.counters.len() - 1, events);
            return None;
        }
        let least = self.counters.last_mut()?;
        let error = least.count;
        (least.hash, least.error) = (key.hash, error);
        let lost = least.key.take();
        self.raise(self.most - 1, error + events);
        lost
    }

    /// The keys, each with its count and its error.
    fn iter(&self) -> impl Iterator<Item = TopKey<K>> + '_ {
        self.counters.iter().filter(|counter| counter.count >= 0.5).filter_map(|counter| {
            let (count, error) = (counter.count.round() as u64, counter.error.round() as u64);
            Some(TopKey { key: counter.key.clone()?, count, error })
        })
    }

    /// The keys, and a lower bound of their counts, most first.
    pub(super) fn at_least(&self) -> Vec<(K, u64)> {
        let mut list: Vec<_> = self.iter().map(|top| (top.key, top.count - top.error)).collect();
        list.retain(|(_, count)| *count > 0);
        list.sort_by_key(|(_, count)| Reverse(*count));
        list
    }
}

/// The event that is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rank {
    Granted,
    Refused,
    Waited,
}

/// The ranks of the keys of one shard.
#[derive(Debug)]
pub(super) struct Ranks<K> {
    ranks: [SpaceSaving<K>; 3],
    /// The time between two fadings, in nanoseconds.
    every: u64,
    /// The instant of the next fading.
    next: u64,
}

impl<K> Ranks<K> {
    /// The ranks of one of `shards`, from `now` on.
    pub(super) fn new(window: Duration, shards: usize, now: u64) -> Self {
        let counters = (COUNTERS / shards).clamp(*PER_SHARD.start(), *PER_SHARD.end());
        let every = (crate::clock::whole_nanos(window) / FADES).max(1);
        Self { ranks: [(); 3].map(|()| SpaceSaving::new(counters)), every, next: now.saturating_add(every) }
    }

    #[cold]
    fn fade(&mut self, now: u64) {
        let times = 1 + (now - self.next) / self.every;
        self.next = self.next.saturating_add(times.saturating_mul(self.every));
        // After so many fadings nothing is left of any count.
        let factor = FADING.powi(times.min(1_000) as i32);
        self.ranks.iter_mut().for_each(|rank| rank.fade(factor));
    }
}

impl<K: Clone + Eq> Ranks<K> {
    /// Counts `events` of `key`. Returns a key to be dropped after releasing the lock.
    #[inline]
    pub(super) fn count(
        &mut self,
        rank: Rank,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        events: u64,
        now: u64,
    ) -> Option<K> {
        if now >= self.next {
            self.fade(now);
        }
        self.ranks[rank as usize].count(key, events as f64)
    }

    /// Adds what this shard has counted to `top`.
    pub(super) fn add_to(&mut self, top: &mut KeyedTop<K>, now: u64) {
        if now >= self.next {
            self.fade(now);
        }
        let lists = [&mut top.granted, &mut top.refused, &mut top.waited];
        lists.into_iter().zip(&self.ranks).for_each(|(list, rank)| list.extend(rank.iter()));
    }
}

/// The keys with the most grants, refusals and waits, returned by [`KeyedLimiter::top`](super::KeyedLimiter::top).
///
/// Each list begins with the largest count. The lists are empty if the limiter was built without
/// [`KeyedBuilder::top`](super::KeyedBuilder::top).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyedTop<K> {
    /// The keys that were granted the most tokens, with the number of tokens.
    pub granted: Vec<TopKey<K>>,
    /// The keys with the most refused calls, with their number.
    pub refused: Vec<TopKey<K>>,
    /// The keys with the most claims that entered the queue, with the number of those claims.
    pub waited: Vec<TopKey<K>>,
}

/// A key and its count; see [`KeyedTop`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TopKey<K> {
    /// The key.
    pub key: K,
    /// The count. It exceeds the true count by `error` at most, and is never below it.
    pub count: u64,
    /// By how much `count` may exceed the truth; 0 for a key that always had a counter.
    pub error: u64,
}

impl<K> KeyedTop<K> {
    /// Sorts each list, and keeps its first `n` keys.
    pub(super) fn keep(&mut self, n: usize) {
        for list in [&mut self.granted, &mut self.refused, &mut self.waited] {
            list.sort_by_key(|top| Reverse(top.count));
            list.truncate(n);
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
