//! Every key in memory, one room after the other.

use super::map::Map;
use super::rate::{Level, Rate};
use crate::core::Core;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::vec;

/// What one key holds; from [`KeyedLimiter::entries`](super::KeyedLimiter::entries).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyedEntry<K> {
    /// Whose it is.
    pub key: K,
    /// How many tokens its own bucket could grant now: 0 while anybody waits. Nothing is said of a limiter above.
    pub available: u64,
    /// By how many tokens claims on the key overrun what there is.
    pub deficiency: u64,
    /// How many callers wait.
    pub waiting_tasks: usize,
    /// Tokens granted and not yet released; `None` without a cap.
    pub in_flight: Option<u64>,
}

/// What a room says of a key.
pub(super) enum Listed {
    Level(Arc<Rate>, Level),
    Live(Arc<Core>),
}

/// An iterator over the keys in memory; from [`KeyedLimiter::entries`](super::KeyedLimiter::entries).
pub struct KeyedEntries<'a, K, S> {
    map: &'a Map<K, S>,
    /// The next room to be looked into.
    next: usize,
    /// Of the last one.
    shard: vec::IntoIter<KeyedEntry<K>>,
}

impl<'a, K, S> KeyedEntries<'a, K, S> {
    pub(super) fn new(map: &'a Map<K, S>) -> Self {
        Self { map, next: 0, shard: Vec::new().into_iter() }
    }
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Iterator for KeyedEntries<'_, K, S> {
    type Item = KeyedEntry<K>;

    fn next(&mut self) -> Option<KeyedEntry<K>> {
        loop {
            if let Some(entry) = self.shard.next() {
                return Some(entry);
            }
            if self.next == self.map.shards.len() {
                return None;
            }
            self.next += 1;
            self.shard = look_into(self.map, self.next - 1).into_iter();
        }
    }
}

impl<K, S> fmt::Debug for KeyedEntries<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedEntries").field("next_room", &self.next).finish_non_exhaustive()
    }
}

fn look_into<K: Hash + Eq + Clone, S: BuildHasher>(map: &Map<K, S>, number: usize) -> Vec<KeyedEntry<K>> {
    let now = map.now();
    let cap = map.template.cap;
    let listed = map.in_shard(number, |shard, context, deferred| shard.list(now, context, deferred));
    let mut held = false;
    let entry = |(key, listed): (K, Listed)| match listed {
        Listed::Level(rate, level) => {
            let tokens = rate.tokens(level.units);
            let available = (tokens.max(0) as u64).min(cap.unwrap_or(u64::MAX));
            let deficiency = tokens.min(0).unsigned_abs();
            KeyedEntry { key, available, deficiency, waiting_tasks: 0, in_flight: cap.map(|_| 0) }
        }
        Listed::Live(live) => {
            held = true;
            live.look_at(|state, rovers, _| KeyedEntry {
                key,
                available: state.available(rovers),
                deficiency: state.deficiency(rovers),
                waiting_tasks: state.queue.len(),
                in_flight: state.in_flight(rovers).map(|(tokens, _)| tokens),
            })
        }
    };
    let entries = listed.into_iter().map(entry).collect();
    if held {
        // Whoever swept meanwhile found seats held.
        map.key_limit.idle_now(number);
    }
    entries
}
