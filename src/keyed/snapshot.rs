//! What a keyed limiter shows: a snapshot for metrics, and the keys in memory, one shard after the other.

use super::map::Map;
use super::shard::{ListedKey, Listing, Shard};
use crate::core::Core;
use crate::core::classes::ROOT;
use crate::core::rovers::Rovers;
use crate::core::state::State;
use crate::sync::Ordering;
use std::cell::RefCell;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// A snapshot of a keyed limiter, returned by [`KeyedLimiter::snapshot`](super::KeyedLimiter::snapshot). The data of
/// each key is consistent; keys are read one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyedSnapshot<K> {
    /// Keys in memory: those that owe tokens, and those that owe nothing and have not been forgotten yet.
    pub keys: u64,
    /// Keys that have waiters.
    pub keys_waiting: u64,
    /// The number of callers that wait, for all keys.
    pub waiting_tasks: u64,
    /// The number of tokens that they wait for.
    pub waiting_tokens: u64,
    /// Tokens granted and not yet released, for all keys; `None` without a cap.
    pub in_flight: Option<u64>,
    /// Tokens granted since the limiter was built, for all keys, including those charged by `settle`.
    pub granted: u64,
    /// Tokens that came back unused: settled below the grant, or granted to a waiter that had been cancelled.
    pub refunded: u64,
    /// Calls that were refused, including denied calls of `try_acquire`.
    pub refused: u64,
    /// The keys with the most refusals, and a lower bound of their number, most first. At most 16 keys: those with
    /// more than a 16th of all refusals, and others.
    pub most_refused: Vec<(K, u64)>,
    /// The longest time between the instant at which the schedule granted tokens to a waiter and the moment at which
    /// the timer let them be delivered, among the keys that have waiters or tokens in flight, or had them shortly
    /// before.
    pub lateness: Duration,
    /// True once the limiter was closed.
    pub closed: bool,
    /// Calls that passed because of a [dry run](super::KeyedBuilder::dry_run) and would have waited.
    pub would_wait: u64,
    /// Calls that passed because of a dry run and would have been refused.
    pub would_refuse: u64,
}

impl<K: Hash + Eq + Clone> KeyedSnapshot<K> {
    pub(super) fn of<S: BuildHasher>(map: &Map<K, S>) -> Self {
        let (would_wait, would_refuse) = map.template.dry_run.counts();
        let snapshot = RefCell::new(Self {
            keys: 0,
            keys_waiting: 0,
            waiting_tasks: 0,
            waiting_tokens: 0,
            in_flight: map.template.cap().map(|_| 0),
            granted: 0,
            refunded: 0,
            refused: map.refused.load(Ordering::Relaxed),
            most_refused: map.most_refused.lock().at_least(),
            lateness: Duration::ZERO,
            closed: false,
            would_wait,
            would_refuse,
        });
        let in_shard = |shard: &mut Shard<K>| {
            let mut snapshot = snapshot.borrow_mut();
            snapshot.keys += shard.slots.groups.len() as u64;
            snapshot.count((shard.granted, shard.refunded));
            snapshot.closed |= shard.is_closed();
        };
        map.visit_all(in_shard).for_each(|live| snapshot.borrow_mut().add(&live));
        snapshot.into_inner()
    }

    /// Adds the core that serves one key.
    fn add(&mut self, live: &Core) {
        let (waiting, tokens, in_flight, lateness, totals) = live.look_at(|state, rovers, _| {
            let in_flight = state.in_flight(rovers).map_or(0, |(tokens, _)| tokens);
            let totals = (state.granted(rovers), state.totals.refunded);
            (state.queue.len(), state.waiting_tokens(), in_flight, state.totals.lateness, totals)
        });
        self.count(totals);
        self.keys_waiting += u64::from(waiting > 0);
        self.waiting_tasks += waiting;
        self.waiting_tokens = self.waiting_tokens.saturating_add(tokens);
        self.in_flight = self.in_flight.map(|sum| sum.saturating_add(in_flight));
        self.lateness = self.lateness.max(Duration::from_nanos(lateness));
    }

    /// Adds tokens granted and refunded. A shard's totals include those of its retired live entries; the totals of the
    /// entries that this snapshot holds are not included in them.
    fn count(&mut self, (granted, refunded): (u64, u64)) {
        self.granted = self.granted.wrapping_add(granted);
        self.refunded = self.refunded.wrapping_add(refunded);
    }
}

/// The state of one key, as returned by [`KeyedLimiter::entries`](super::KeyedLimiter::entries).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyedEntry<K> {
    /// The key.
    pub key: K,
    /// Tokens that the key's own bucket could grant now: 0 while the key has waiters. A parent limiter is not taken
    /// into account.
    pub available: u64,
    /// The number of tokens by which the claims on the key exceed the tokens in its bucket.
    pub deficiency: u64,
    /// The number of callers that wait for the key.
    pub waiting_tasks: u64,
    /// Tokens granted and not yet released; `None` without a cap.
    pub in_flight: Option<u64>,
}

impl<K: Hash + Eq + Clone> KeyedEntry<K> {
    /// The entries of shard `number`.
    pub(super) fn of_shard<S: BuildHasher>(map: &Map<K, S>, number: usize) -> Vec<Self> {
        let entry = |ListedKey { key, rates, levels, .. }: ListedKey<K>| match levels {
            Ok(levels) => {
                let (mut state, rovers) = map.template.state(&rates, &levels);
                Self::of(key, &mut state, &rovers, levels.at)
            }
            Err(live) => live.look_at(|state, rovers, sample| Self::of(key, state, rovers, sample.now)),
        };
        map.list_shard(number).into_iter().map(entry).collect()
    }

    fn of(key: K, state: &mut State, rovers: &Rovers, now: u64) -> Self {
        Self {
            key,
            available: state.shown_available(rovers, ROOT, now),
            deficiency: state.shown_deficiency(rovers, now),
            waiting_tasks: state.queue.len(),
            in_flight: state.in_flight(rovers).map(|(tokens, _)| tokens),
        }
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Map<K, S> {
    /// The keys of shard `number`. Lists some hundred keys under each lock, so a key that comes or goes meanwhile may be
    /// listed or not. If it goes and comes again, it may be listed twice, and the second listing is the later one.
    pub(super) fn list_shard(&self, number: usize) -> Vec<ListedKey<K>> {
        let (mut listing, mut listed) = (Listing::default(), Vec::new());
        loop {
            let now = self.now();
            let piece = self.in_shard(number, |shard, context| shard.list(&mut listing, now, context));
            if listing.begins_anew {
                listed.clear();
            }
            listed.extend(piece);
            if listing.is_complete {
                return listed;
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
