//! Saving the keys of a shard, and restoring saved keys.

use super::{Entered, Map};
use crate::error::ConfigError;
use crate::keyed::live;
use crate::keyed::rates::{Levels, Rates};
use crate::keyed::shard::ListedKey;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// A key that owes tokens, is paused, or has quotas of its own.
pub(in crate::keyed) struct SavedKey<K> {
    pub(in crate::keyed) key: K,
    pub(in crate::keyed) rates: Arc<Rates>,
    pub(in crate::keyed) levels: Levels,
    /// True if a user set the quotas of this key.
    pub(in crate::keyed) pinned: bool,
}

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// The common rates; `None` if `quota_by` chooses the quotas of each key.
    pub(in crate::keyed) fn common_rates(&self) -> Option<Arc<Rates>> {
        self.in_shard(0, |shard, context| shard.common_rates(context))
    }

    /// The keys of all shards, each as of an instant of its own, and the instant until which all keys are paused.
    pub(in crate::keyed) fn saved_keys(&self) -> (Vec<SavedKey<K>>, u64) {
        let (mut saved, mut gate) = (Vec::new(), 0);
        for number in 0..self.shards.len() {
            let (listed, own_gate) = self.list_shard(number);
            gate = gate.max(own_gate);
            let has_live = listed.iter().any(|key| key.levels.is_err());
            saved.extend(listed.into_iter().map(|ListedKey { key, rates, levels, pinned }| {
                let levels = levels.unwrap_or_else(|core| live::saved(&core, &rates));
                SavedKey { key, rates, levels, pinned }
            }));
            if has_live {
                // This function held live entries, so a sweep meanwhile may have found them in use.
                self.key_limit.idle_now(number);
            }
        }
        (saved, gate)
    }

    /// Gives a key the levels of `saved`, which are those of now, even if the map is full. Fails if there is no place
    /// for a key with quotas of its own, and if `quota_by` returns no valid quotas for the key.
    pub(in crate::keyed) fn restore(&self, saved: &SavedKey<K>) -> Result<(), ConfigError> {
        let SavedKey { key, rates, levels, pinned } = saved;
        if *pinned {
            self.set_quotas_for(key, Some(rates.quotas.clone()))?;
        }
        let hash = self.hash(key);
        let entered = self.enter(key, hash, true, |shard, request, context| {
            shard.at_levels(request, context, |own: &Rates, now: &mut Levels| {
                *now = own.adopt(rates, levels).at(now.at, now.gate);
            })
        });
        match entered {
            Entered::Done(()) => {}
            Entered::Refused(error) => return Err(error),
            Entered::Live(live) => unreachable!("no key of a new map has the live entry {live:?}"),
        }
        if levels.is_paused() {
            self.pause_for(key, levels.gate - levels.at);
        }
        Ok(())
    }
}
