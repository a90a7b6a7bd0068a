//! Pauses: of one key, and of all keys of the shard.
//!
//! The pause of a key is a part of its [levels](super::Levels), or of its core. A key that is paused is not full, so it
//! is not forgotten, and its levels are not packed. The pause of all keys is kept once, in the map, and closes
//! the fast path. It is independent of the pauses of single keys: the end of one leaves the others.

use super::{EntryRequest, FastPath, Shard, ShardContext, Stop};
use crate::keyed::ToKey;

impl<K: Clone + Eq> Shard<K> {
    /// Pauses a key without a live entry for `nanos` from now.
    pub(in crate::keyed) fn pause_key(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        nanos: u64,
        context: &mut ShardContext<'_, K>,
    ) -> Result<(), Stop> {
        let now = self.advance_to(request.now, context);
        let (index, rates, levels) = self.look_up(request)?;
        let levels = levels.paused_until(now.saturating_add(nanos));
        match index {
            _ if !levels.is_paused() => {}
            Some(index) => self.put(index, &levels),
            None => {
                let key = self.take_place(request, context)?;
                self.keep((key, request.key.hash), &rates, &levels, false, context);
            }
        }
        Ok(())
    }

    /// Ends the pause of a key without a live entry. A key that is full then is forgotten by a sweep.
    pub(in crate::keyed) fn resume_key(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        context: &mut ShardContext<'_, K>,
    ) -> Result<(), Stop> {
        self.advance_to(request.now, context);
        let Some(index) = self.index(request) else { return Ok(()) };
        let (rates, mut levels) = self.levels_of(index).map_err(Stop::Live)?;
        levels.gate = 0;
        context.key_limit.idle_no_later_than(context.number, || Some(rates.full_at(&levels)));
        self.put(index, &levels);
        Ok(())
    }
}

impl<K> Shard<K> {
    /// The pause of all keys has changed. The next call looks at it, and opens the fast path again if it is over.
    pub(in crate::keyed) fn close_fast_path(&mut self) {
        if self.fast_path == FastPath::Open {
            self.fast_path = FastPath::Paused;
        }
    }

    /// The instant until which all keys are paused; 0 if they are not.
    pub(in crate::keyed) fn gate(&self, context: &ShardContext<'_, K>) -> u64 {
        let gate = if self.fast_path != FastPath::Open { context.template.gate() } else { 0 };
        if self.synced < gate { gate } else { 0 }
    }
}
