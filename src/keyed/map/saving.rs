//! Saving the keys of a shard, and restoring saved keys.

use super::{Entered, Map};
use crate::core::Core;
use crate::keyed::live;
use crate::keyed::rates::{Levels, Rates};
use crate::keyed::shard::{SavedKey, SavedShard};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// The keys of shard `number`, all as of one instant and without live cores.
    pub(in crate::keyed) fn saved_shard(&self, number: usize) -> SavedShard<K> {
        let now = self.now();
        let mut saved = self.in_shard(number, |shard, context, deferred| shard.saved(now, context, deferred));
        let (mut at, mut has_live) = (saved.at, false);
        for SavedKey { rates, levels, .. } in &mut saved.keys {
            if let Err(core) = levels {
                has_live = true;
                *levels = Ok(live::saved(core, rates));
            }
            at = at.max(levels.as_ref().map_or(0, |levels| levels.at));
        }
        if has_live {
            // This function held live entries, so a sweep meanwhile may have found them in use.
            self.key_limit.idle_now(number);
        }
        // A live entry may have reached a later time.
        for SavedKey { rates, levels, .. } in &mut saved.keys {
            *levels = levels.as_ref().map(|levels| rates.advance(levels, at)).map_err(Arc::clone);
        }
        saved.keys.retain(|key| key.pinned || key.levels.as_ref().is_ok_and(|levels| !key.rates.is_full(levels)));
        saved.at = at;
        saved
    }

    pub(in crate::keyed) fn saved_overflow(&self) -> Option<Levels> {
        let overflow: &Core = self.overflow.as_ref()?;
        Some(live::saved(overflow, &live::rates_of(overflow)))
    }

    /// Gives a key the levels of `saved`, which are those of now, even if the map is full. Returns false if there is no
    /// place for a key with quotas of its own.
    pub(in crate::keyed) fn restore(&self, saved: &SavedKey<K>) -> bool {
        let SavedKey { key, rates, levels: Ok(levels), pinned } = saved else { return false };
        if *pinned && !self.set_quotas_for(key, Some(rates.quotas.clone())) {
            return false;
        }
        let hash = self.hash(key);
        let entered = self.enter(key, hash, true, |shard, request, context, deferred| {
            shard.at_levels(request, context, deferred, |own: &Rates, now: &mut Levels| {
                *now = own.continued(rates, levels).at(now.at, now.gate);
            })
        });
        if let Entered::Live(live) = entered {
            unreachable!("no key of a new map has the live entry {live:?}");
        }
        if levels.is_paused() {
            self.pause_for(key, levels.gate - levels.at);
        }
        true
    }
}
