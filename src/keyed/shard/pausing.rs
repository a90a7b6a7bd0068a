//! Pauses: of one key, and of all keys of the shard.
//!
//! The pause of a key is a part of its [levels](super::Levels), or of its core. A key that is paused is not full, so it
//! is not forgotten, and its levels do not fit packed levels. The pause of all keys is kept once, and closes the fast
//! path. It is independent of the pauses of single keys: the end of one leaves the others.

use super::{CustomEntry, DeferredDrops, EntryRequest, EntryState, Shard, ShardContext, Stop};
use crate::core::pauses::CommonPause;
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
    /// Pauses all keys for `nanos` from `now`, except those with a live entry. Returns whether the caller has to pause
    /// those: not if a `resume_all` after number `resume_count` was applied here meanwhile.
    pub(in crate::keyed) fn pause_all(&mut self, now: u64, nanos: u64, resume_count: u64) -> bool {
        // The clock may have stepped back.
        let gate = now.max(self.synced).saturating_add(nanos);
        let is_next = self.rare_fields().common_pause.pause_until(gate, resume_count);
        self.is_fast_path_closed = true;
        is_next
    }

    /// Ends the pause of all keys, except those with a live entry. Returns whether the caller has to end it for those:
    /// not if a later call was applied here before.
    pub(in crate::keyed) fn resume_all(&mut self, resume_count: u64) -> bool {
        // `advance_to` opens the fast path.
        self.rare_fields().common_pause.end(resume_count)
    }

    /// The pause of all keys, if they are paused.
    pub(super) fn common_pause(&self) -> Option<CommonPause> {
        let rare_fields = self.rare_fields.as_ref().filter(|_| self.is_fast_path_closed)?;
        Some(rare_fields.common_pause).filter(|pause| self.synced < pause.gate())
    }

    /// The instant until which all keys are paused; 0 if they are not.
    pub(in crate::keyed) fn gate(&self) -> u64 {
        self.common_pause().map_or(0, |pause| pause.gate())
    }
}
