//! Pauses: of one key, and of all keys of the shard.
//!
//! The pause of a key is a part of its [levels](super::Levels), or of its core. A key that is paused is not full, so it
//! is not forgotten, and its levels do not fit packed levels. The pause of all keys is kept once, in the map, and closes
//! the fast path. It is independent of the pauses of single keys: the end of one leaves the others.

use super::{CustomEntry, DeferredDrops, EntryRequest, EntryState, Shard, ShardContext, Stop};
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// Pauses a key without a live entry for `nanos` from now.
    pub(in crate::keyed) fn pause_key(
        &mut self,
        request: &EntryRequest<'_, K>,
        nanos: u64,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Result<(), Stop> {
        let now = self.advance_without_live(request, context, deferred)?;
        let gate = now.saturating_add(nanos);
        if gate <= now {
            return Ok(());
        }
        let rare_fields = self.rare_fields();
        if let Some(custom) = rare_fields.custom_entries.find_mut(request.hash, |custom| custom.key == *request.key) {
            if let Ok(levels) = custom.entry_state.levels(&custom.rates, now) {
                custom.entry_state = EntryState::of(&custom.rates, &levels.paused_until(gate));
            }
            return Ok(());
        }
        if let Some((key, levels)) = self.remove_packed(request, now) {
            let rates = Arc::clone(&self.rates);
            let entry_state = EntryState::of(&rates, &levels.paused_until(gate));
            self.push_custom(CustomEntry { key, hash: request.hash, rates, entry_state, pinned: false });
            return Ok(());
        }
        let rates = self.rates_for(request)?;
        self.narrow_window(&rates, context, deferred);
        let key = request.take_place(context.key_limit, deferred)?;
        let levels = rates.full(self.synced).paused_until(gate);
        context.key_limit.idle_no_later_than(context.number, || Some(rates.full_at(&levels)));
        let entry_state = EntryState::of(&rates, &levels);
        self.push_custom(CustomEntry { key, hash: request.hash, rates, entry_state, pinned: false });
        Ok(())
    }

    /// Advances to now, and returns that instant, if the key has no live entry.
    fn advance_without_live(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Result<u64, Stop> {
        let now = self.advance_to(request.now, context, deferred);
        match self.find_live(request) {
            Some(live) => Err(Stop::Live(live)),
            None => Ok(now),
        }
    }

    /// Ends the pause of a key without a live entry.
    pub(in crate::keyed) fn resume_key(
        &mut self,
        request: &EntryRequest<'_, K>,
        context: &ShardContext<'_, K>,
        deferred: &mut DeferredDrops<K>,
    ) -> Result<(), Stop> {
        let now = self.advance_without_live(request, context, deferred)?;
        // A key that is paused is a custom entry. One that is full now is forgotten by a sweep.
        let Some(rare_fields) = &mut self.rare_fields else { return Ok(()) };
        let custom = rare_fields.custom_entries.find_mut(request.hash, |custom| custom.key == *request.key);
        if let Some(custom) = custom
            && let Ok(levels) = custom.entry_state.levels(&custom.rates, now)
        {
            let levels = levels.resumed();
            context.key_limit.idle_no_later_than(context.number, || Some(custom.rates.full_at(&levels)));
            custom.entry_state = EntryState::of(&custom.rates, &levels);
        }
        Ok(())
    }
}

impl<K> Shard<K> {
    /// The pause of all keys has changed. The next call looks at it, and opens the fast path again if it is over.
    pub(in crate::keyed) fn close_fast_path(&mut self) {
        self.is_fast_path_closed = true;
    }

    /// The instant until which all keys are paused; 0 if they are not.
    pub(in crate::keyed) fn gate(&self, context: &ShardContext<'_, K>) -> u64 {
        let gate = if self.is_fast_path_closed { context.template.gate() } else { 0 };
        if self.synced < gate { gate } else { 0 }
    }
}
