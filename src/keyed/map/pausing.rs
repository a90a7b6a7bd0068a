//! Pauses, the in-flight cap, and tokens added by hand.

use super::{Entered, Map};
use crate::error::ConfigError;
use crate::keyed::ToKey;
use crate::keyed::live;
use crate::keyed::shard::Shard;
use crate::sync::Ordering;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Pauses a key for `nanos` from now. It is stored even if the map is full.
    pub(in crate::keyed) fn pause_for(&self, key: &(impl ToKey<K> + ?Sized), nanos: u64) {
        let hash = self.hash(key);
        let now = self.now();
        let entered = self.enter(key, hash, true, |shard, request, context| shard.pause_key(request, nanos, context));
        if let Entered::Live(live) = entered {
            live::pause_for(&live, now, nanos);
            self.let_go(hash, live);
        }
    }

    /// Ends the pause of a key.
    pub(in crate::keyed) fn resume(&self, key: &(impl ToKey<K> + ?Sized)) {
        let hash = self.hash(key);
        let entered = self.enter(key, hash, true, |shard, request, context| shard.resume_key(request, context));
        if let Entered::Live(live) = entered {
            live::resume(&live);
            self.let_go(hash, live);
        }
    }

    /// Pauses all keys for `nanos` from now.
    pub(in crate::keyed) fn pause_all_for(&self, nanos: u64) {
        // The clock may have stepped back: the pause counts from the latest time that any key has seen.
        let latest = Cell::new(self.now());
        let see = |synced: u64| latest.set(synced.max(latest.get()));
        self.visit_all(|shard| see(shard.synced()), |live| see(live.state.lock().supply.synced()));
        self.template.gate.fetch_max(latest.get().saturating_add(nanos), Ordering::AcqRel);
        self.refresh_pauses();
    }

    /// Ends the pause of all keys.
    pub(in crate::keyed) fn resume_all(&self) {
        self.template.gate.store(0, Ordering::Release);
        self.refresh_pauses();
    }

    /// Tells all keys that the pause of all of them has changed. Each reads its end under the lock of its shard or of
    /// its entry, so after several concurrent changes all keys have the last one.
    fn refresh_pauses(&self) {
        self.visit_all(Shard::close_fast_path, |live| live::refresh_pause(live, &self.template));
    }

    /// Changes the in-flight cap of all keys to a checked number.
    pub(in crate::keyed) fn set_max_in_flight(&self, tokens: u64) -> Result<(), ConfigError> {
        let cap = self.template.cap.as_ref().ok_or(ConfigError::NotCapped)?;
        // Before any shard is visited: a live entry that is created behind the visit gets the new cap.
        cap.store(tokens, Ordering::Release);
        self.visit_all(|_| {}, |live| live::refresh_cap(live, &self.template));
        Ok(())
    }

    /// Adds `tokens` to each quota of a key, up to its burst.
    pub(in crate::keyed) fn replenish(&self, key: &(impl ToKey<K> + ?Sized), tokens: u64) {
        let hash = self.hash(key);
        let entered = self.enter(key, hash, true, |shard, request, context| {
            shard.at_levels(request, context, |rates, levels| rates.replenish(levels, tokens))
        });
        if let Entered::Live(live) = entered {
            live.with_batch(|state, rovers, _| state.replenish(rovers, tokens));
            self.let_go(hash, live);
        }
    }

    pub(in crate::keyed) fn is_closed(&self) -> bool {
        self.shards.first().is_some_and(|shard| shard.lock().is_closed())
    }
}
