//! Changing quotas: the common quotas, and those of one key.

use super::{Change, EntryRequest, Kind, Levels, Own, OwnState, QuotaChange, Rates, Shard, ShardContext};
use super::{Slot, SlotRef, Stop, readable_until};
use crate::core::in_use::InUse;
use crate::keyed::ToKey;
use crate::keyed::rate::Level;
use crate::keyed::rates::Packed;
use crate::{Quota, Which};
use std::sync::Arc;

/// A live entry that has to be given its new quotas, and the [version](Shard::quota_version) of that change.
type StaleQuotas = (InUse, Arc<Rates>, u32);

/// Which quotas a key gets.
#[derive(Clone, Debug)]
pub(in crate::keyed) enum Assigned<'a> {
    /// Quotas of its own, which it keeps until it is reset.
    Own(Arc<Rates>),
    /// Quotas of its own: those that it has, except that this quota replaces the selected one.
    One(Which<'a>, Quota),
    /// Those that a new key would have.
    AsNew,
    /// Those that a new key would have, unless it has quotas of its own or is not stored.
    AsNewUnlessOwn,
}

impl<K: Clone + Eq> Shard<K> {
    /// Gives `key` the `assigned` quotas. The tokens of the key stay. If the key has a live entry, returns it with its
    /// new quotas, for the caller to apply after unlocking.
    pub(in crate::keyed) fn set_quotas_for(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        assigned: &Assigned<'_>,
        context: &mut ShardContext<'_, K>,
    ) -> Result<Option<StaleQuotas>, Stop> {
        self.advance_to(request.now, context);
        let (rates, pinned) = match assigned {
            Assigned::Own(own) => (Arc::clone(own), true),
            // The other quotas are read and written under one lock, so that a change of another one meanwhile is not
            // undone.
            Assigned::One(which, quota) => {
                let quotas = self.rates_of(request, context)?.quotas.with(*which, *quota);
                let quotas = quotas.map_err(|error| Stop::Refused(Box::new(error)))?;
                (Arc::new(Rates::new(quotas, Some(&context.template.calendars))), true)
            }
            Assigned::AsNew => (Arc::clone(self.rates_of_new(request)?), false),
            Assigned::AsNewUnlessOwn => {
                let Some(SlotRef::Own(own)) = self.index(request).map(|index| self.slots.at(index)) else {
                    return Ok(None);
                };
                if own.pinned || self.rates.kind != Kind::QuotaBy {
                    return Ok(None);
                }
                let rates = self.rates_of_new(request)?;
                if rates.quotas == own.rates.quotas {
                    return Ok(None);
                }
                (Arc::clone(rates), false)
            }
        };
        // A key that is not stored has the quotas of a new key.
        if self.index(request).is_none() && !pinned {
            return Ok(None);
        }
        let live = self.live(request, context)?;
        self.rare_fields().quota_version += 1;
        self.expect_windows(rates.sliding.is_some(), context);
        if let Some(own) = self.index(request).and_then(|index| self.slots.own_mut(index)) {
            (own.rates, own.pinned) = (Arc::clone(&rates), pinned);
        }
        Ok(Some((live, rates, self.quota_version())))
    }
}

impl<K> Shard<K> {
    /// Records that the common quotas are `rates` from `now` on. Returns the live entries that have to be given it; all
    /// other keys stay as they are, to [catch up](Self::catch_up) later.
    pub(in crate::keyed) fn set_quotas(
        &mut self,
        rates: Arc<Rates>,
        version: u32,
        now: u64,
        context: &mut ShardContext<'_, K>,
    ) -> Vec<InUse> {
        if version <= self.rare_fields().version {
            return Vec::new();
        }
        // Calls that read a later time than the change, and locked the shard before it, have already advanced the
        // shard.
        self.synced = self.synced.max(now);
        self.end_stride(&context.template.time);
        // A key that is full under the old quotas is full under the new ones too, with or without a live entry.
        let idle = self.slots.owns().filter_map(Own::live).filter(|live| Arc::strong_count(live) == 1);
        let idle: Vec<_> = idle.filter_map(|live| Some((live.key_hash()?, Arc::as_ptr(live)))).collect();
        idle.into_iter().for_each(|(hash, live)| _ = self.retire(hash, live, 0, context));
        let is_sliding = rates.sliding.is_some();
        let change = QuotaChange { rates, at: self.synced };
        // The fast path sees this, and leaves the rest to `advance_to`.
        self.calls_left = 0;
        let rare_fields = self.rare_fields();
        rare_fields.pending.push(change);
        (rare_fields.version, rare_fields.quota_version) = (version, rare_fields.quota_version + 1);
        self.expect_windows(is_sliding, context);
        self.slots.owns().filter(|own| !own.pinned).filter_map(Own::in_use).collect()
    }

    /// Applies all pending changes to all keys, each from the instant at which it was set. Must be called before
    /// the shard advances to a later time. Live entries have been given the quotas already. Runs no user code.
    #[inline]
    pub(in crate::keyed) fn catch_up(&mut self, context: &mut ShardContext<'_, K>) {
        if self.pending() > 0 {
            self.adopt_pending(context);
        }
    }

    /// The number of changes that the keys have not caught up with.
    #[inline]
    pub(in crate::keyed) fn pending(&self) -> usize {
        self.rare_fields.as_ref().map_or(0, |rare_fields| rare_fields.pending.len())
    }

    #[cold]
    fn adopt_pending(&mut self, context: &mut ShardContext<'_, K>) {
        let changes = std::mem::take(&mut self.rare_fields().pending);
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return };
        let had = self.slots.groups.len();
        let old = std::mem::replace(&mut self.rates, Arc::clone(&last.rates));
        let new = &*last.rates;
        // Packed levels cannot be read after the window, but levels that were read at its end can be advanced.
        let readable = first.at.min(self.readable_until);
        let change = |rates: &Rates, levels: Levels| {
            let Some(levels) = advance_through(rates, levels, &changes) else { return Change::Forgotten };
            Change::Becomes(Slot::of_levels(&last.rates, &levels, true))
        };
        let on_own = |own: &mut Own| match &own.state {
            // The key keeps its own quotas.
            _ if own.pinned => Change::Kept,
            OwnState::Levels(levels) => change(&own.rates, **levels),
            OwnState::Live(_) => {
                own.rates = Arc::clone(&last.rates);
                Change::Kept
            }
        };
        self.slots.groups.keep_seconds(old.each.len() == 2 || new.each.len() == 2);
        let until = self.readable_until;
        let on_packed = |packed: Packed| {
            let repacked = repack_through(&old, packed, until, &changes);
            repacked.unwrap_or_else(|| change(&old, old.unpack(packed, readable)))
        };
        self.slots.update(on_packed, on_own, &mut context.deferred.keys);
        self.slots.groups.keep_seconds(new.each.len() == 2);
        self.readable_until = readable_until(new, last.at);
        context.key_limit.give_back(had - self.slots.groups.len());
    }
}

/// Advances `levels` of `rates` through all `changes`, to the instant of the last one. Returns `None` if they were full
/// at one of them: then they are equivalent to the levels of a new key, and full under the new quotas too.
fn advance_through(rates: &Rates, mut levels: Levels, changes: &[QuotaChange]) -> Option<Levels> {
    let mut rates = rates;
    for change in changes {
        let now = rates.advance(&levels, change.at);
        // With or without a fraction of a token on top.
        if !now.is_paused() && rates.each.iter().zip(now.units).all(|(rate, units)| units >= rate.full) {
            return None;
        }
        levels = change.rates.adopt(rates, &now);
        rates = &change.rates;
    }
    Some(levels)
}

/// The same for the packed level of one quota without a calendar, which can be read until `until`, in less time: a call
/// does this for all keys of a shard. Returns `None` for other levels, and if the level leaves the window.
#[inline]
fn repack_through(rates: &Rates, packed: Packed, until: u64, changes: &[QuotaChange]) -> Option<Change> {
    let (mut rate, mut word, mut until) = (rates.only()?, packed.first, until);
    for change in changes {
        if change.at > until || !rate.is_quick(1) {
            return None;
        }
        let units = i128::from(rate.of_packed(word, change.at));
        if units >= rate.full {
            return Some(Change::Forgotten);
        }
        let next = change.rates.only()?;
        word = next.packed(Level { units: next.adopt(rate, units), at: change.at })?;
        (rate, until) = (next, readable_until(&change.rates, change.at));
    }
    Some(Change::Becomes(Slot::Packed(Packed { first: word, second: 0 })))
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
