//! The state of each key in memory.

use super::map::Map;
use super::shard::ListedKey;
use crate::core::classes::ROOT;
use std::hash::{BuildHasher, Hash};

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

/// The keys of a shard.
pub(super) fn list_shard<K: Hash + Eq + Clone, S: BuildHasher>(map: &Map<K, S>, number: usize) -> Vec<KeyedEntry<K>> {
    let cap = map.template.cap();
    let (listed, gate) = map.list_shard(number);
    let mut has_live = false;
    let entry = |ListedKey { key, rates, levels, .. }: ListedKey<K>| match levels {
        Ok(levels) => {
            let available = rates.available(&levels.paused_until(gate)).min(cap.unwrap_or(u64::MAX));
            let deficiency = rates.tokens(&levels).min(0).unsigned_abs();
            KeyedEntry { key, available, deficiency, waiting_tasks: 0, in_flight: cap.map(|_| 0) }
        }
        Err(live) => {
            has_live = true;
            live.look_at(|state, rovers, sample| KeyedEntry {
                key,
                available: state.shown_available(rovers, ROOT, sample.now),
                deficiency: state.shown_deficiency(rovers, sample.now),
                waiting_tasks: state.queue.len(),
                in_flight: state.in_flight(rovers).map(|(tokens, _)| tokens),
            })
        }
    };
    let entries = listed.into_iter().map(entry).collect();
    if has_live {
        // This function held live entries, so a sweep meanwhile may have found them in use.
        map.key_limit.idle_now(number);
    }
    entries
}
