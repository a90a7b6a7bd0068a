//! Changing the levels of a key: taking tokens from them first of all.

use super::ahead::is_fast;
use super::{EntryIndex, EntryRequest, FastPath, KeyLimit, Kind, Left, Levels, Missed};
use super::{Rates, Shard, ShardContext, Slot, SlotRef, Stop};
use crate::clock::Time;
use crate::keyed::rates::Packed;
use crate::keyed::{Hashed, ToKey};
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// The fast path: takes `cost` tokens from packed levels and returns what remains. An error has changed nothing.
    /// Without a `read` time, the time is read late, while the key is on its way from memory. `also` takes tokens of the
    /// parent, if there is one, and can refuse.
    #[inline(always)]
    pub(in crate::keyed) fn take_quickly(
        &mut self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        read: Option<u64>,
        time: &Time,
        also: impl FnOnce() -> bool,
    ) -> Result<Left, Missed> {
        if self.runs_ahead {
            if let Some(left) = self.take_ahead(key, cost, time) {
                return Ok(left);
            }
        }
        let home = self.slots.groups.request(key.hash);
        let read = read.unwrap_or_else(|| time.now());
        let now = self.synced.max(read);
        if !self.is_quick(now) {
            return Err(Missed::Other);
        }
        // User code, which may panic: no token is taken yet.
        let Some((index, word)) = self.slots.find(home, key.form) else { return Err(Missed::Absent(now)) };
        let first = *word;
        let left = match self.rates.only().filter(|rate| rate.is_quick(cost)) {
            Some(rate) if first.get() & 1 == 1 => {
                let taken = rate.take_from_packed(first, cost, now);
                let (first, left) = taken.ok_or(Missed::Short(Packed { first, second: 0 }, read))?;
                if !also() {
                    return Err(Missed::Other);
                }
                *word = first;
                left
            }
            _ => self.take_at(index, cost, now, read, also)?,
        };
        let is_fast = self.may_run_ahead && is_fast(cost, now - self.synced);
        self.count_quick(cost, now);
        if is_fast {
            self.adapt_stride(index, key.hash, cost, left);
        }
        Ok(left)
    }

    /// The same at an index, whatever the key has there.
    #[inline(never)]
    fn take_at(
        &mut self,
        index: EntryIndex,
        cost: u64,
        now: u64,
        read: u64,
        also: impl FnOnce() -> bool,
    ) -> Result<Left, Missed> {
        let packed = match self.slots.at(index) {
            SlotRef::Packed(packed) => packed,
            SlotRef::Own(own) => return Err(own.in_use().map_or(Missed::Other, Missed::Live)),
        };
        let (packed, left) = self.rates.take_from_packed(packed, cost, now).ok_or(Missed::Short(packed, read))?;
        if !also() {
            return Err(Missed::Other);
        }
        self.slots.set_packed(index, packed);
        Ok(left)
    }

    /// Whether the fast path may act on levels of `now`, without a sweep.
    #[inline(always)]
    fn is_quick(&self, now: u64) -> bool {
        self.fast_path == FastPath::Open && self.calls_left > 1 && now <= self.readable_until
    }

    #[inline(always)]
    pub(in crate::keyed) fn count_quick(&mut self, cost: u64, now: u64) {
        self.synced = now;
        self.calls_left -= 1;
        self.count_granted(cost);
    }

    /// The fast path of a key that is [absent](Missed::Absent) at `now`: stores it with the common quotas, less `cost`
    /// tokens, if there is space in the table and in the map.
    #[inline]
    pub(in crate::keyed) fn take_new(
        &mut self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        now: u64,
        key_limit: &KeyLimit,
        number: usize,
    ) -> Option<Left> {
        if self.rates.kind != Kind::Quotas || self.slots.is_filled() {
            return None;
        }
        let (packed, left, full_at) = self.rates.take_from_full(cost, now)?;
        let own = key_limit.take_place(key.form, false)?;
        key_limit.idle_no_later_than(number, full_at);
        self.slots.insert(key.hash, own, Slot::Packed(packed));
        self.count_quick(cost, now);
        Some(left)
    }

    /// Calls `act` on the levels of a key that has no live entry, and stores the levels that `act` leaves. Full levels
    /// are not stored.
    pub(in crate::keyed) fn at_levels<R>(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        context: &mut ShardContext<'_, K>,
        act: impl FnOnce(&Rates, &mut Levels) -> R,
    ) -> Result<R, Stop> {
        self.at_levels_if(request, context, act, |_| true).map(|(result, _)| result)
    }

    /// Like [`at_levels`](Self::at_levels), but stores the levels only if `confirm` agrees, and returns whether it did.
    /// `confirm` is called last, when nothing is left that could fail.
    pub(in crate::keyed) fn at_levels_if<R>(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        context: &mut ShardContext<'_, K>,
        act: impl FnOnce(&Rates, &mut Levels) -> R,
        confirm: impl FnOnce(&R) -> bool,
    ) -> Result<(R, bool), Stop> {
        self.advance_to(request.now, context);
        let gate = self.gate(context);
        let (index, rates, before) = self.look_up(request)?;
        let mut levels = Levels { gate: before.gate.max(gate), ..before };
        let result = act(rates, &mut levels);
        levels.gate = before.gate;
        if index.is_none() && !rates.is_full(&levels) && rates.kind != Kind::NoQuota {
            let rates = Arc::clone(rates);
            let key = self.take_place(request, context)?;
            let is_confirmed = confirm(&result);
            if is_confirmed {
                // A sweep may have advanced the shard, and packed levels can be read from then on only.
                let levels = rates.advance(&levels, self.synced);
                context.key_limit.idle_no_later_than(context.number, rates.full_at(&levels));
                let slot = Slot::of_levels(&rates, &levels, Arc::ptr_eq(&rates, &self.rates));
                self.slots.insert(request.key.hash, key, slot);
            } else {
                context.key_limit.give_back(1);
                context.deferred.keys.push(key);
            }
            return Ok((result, is_confirmed));
        }
        let is_confirmed = confirm(&result);
        if let Some(index) = index.filter(|_| is_confirmed && levels != before) {
            if levels.is_raised_from(&before) {
                context.key_limit.idle_no_later_than(context.number, rates.full_at(&levels));
            }
            self.put(index, &levels);
        }
        Ok((result, is_confirmed))
    }
}
