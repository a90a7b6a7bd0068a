//! The keys in memory, one shard after the other.

use super::map::Map;
use super::shard::{ListedKey, Listing};
use crate::core::classes::ROOT;
use crate::core::rovers::Rovers;
use crate::core::state::State;
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
        map.list_shard(number, |listed| listed.into_iter().map(entry).collect())
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
    /// Passes to `read` the keys of shard `number`. Lists some hundred keys under each lock, so a key that comes or goes
    /// meanwhile may be listed or not. If it goes and comes again, it may be listed twice, and the second listing is the
    /// later one.
    pub(super) fn list_shard<R>(&self, number: usize, read: impl FnOnce(Vec<ListedKey<K>>) -> R) -> R {
        let (mut listing, mut listed) = (Listing::default(), Vec::new());
        loop {
            let now = self.now();
            let piece = self.in_shard(number, |shard, context| shard.list(&mut listing, now, context));
            if listing.begins_anew {
                listed.clear();
            }
            listed.extend(piece);
            if listing.is_complete {
                let has_live = listed.iter().any(|listed| listed.levels.is_err());
                let result = read(listed);
                if has_live {
                    // The list held live entries, so a sweep meanwhile may have found them in use.
                    self.key_limit.idle_now(number);
                }
                return result;
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
