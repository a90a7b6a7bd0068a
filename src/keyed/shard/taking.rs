//! Changing the levels of a key: taking tokens from them first of all.

use super::ahead::{PART, is_fast};
use super::{EntryRequest, FastPath, Kind, Left, Levels, Missed, Rates, Shard, ShardContext, Slot, SlotRef, Stop};
use crate::core::state::MAX_COST;
use crate::keyed::rate::Level;
use crate::keyed::rates::Packed;
use crate::keyed::{Hashed, ToKey};
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// The common case of the fast path, which takes `cost` tokens from packed levels and returns what remains. Every other
    /// case is an error, and has changed nothing; if a key runs ahead, `now` was not called.
    #[inline(always)]
    pub(in crate::keyed) fn take_packed(
        &mut self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        now: impl FnOnce() -> u64,
    ) -> Result<Left, Missed> {
        if self.runs_ahead {
            return self.take_ahead(key, cost).ok_or(Missed::Other);
        }
        let home = self.slots.groups.request(key.hash);
        let now = self.synced.max(now());
        if !self.is_quick(now) || self.may_run_ahead && is_fast(cost, now - self.synced) {
            return Err(Missed::Other);
        }
        let Some(rate) = self.rates.only() else { return self.take_pair(key, cost, now) };
        // User code, which may panic: no token is taken yet.
        let Some(word) = self.slots.packed_near(home, key.form) else { return Err(Missed::Other) };
        let Some((first, left)) = rate.take_from_packed(*word, cost, now) else {
            return Err(Missed::Short(Packed { first: *word, second: 0 }));
        };
        *word = first;
        self.count_quick(cost, now);
        Ok(left)
    }

    /// The same with two quotas.
    #[inline(never)]
    fn take_pair(&mut self, key: Hashed<'_, impl ToKey<K> + ?Sized>, cost: u64, now: u64) -> Result<Left, Missed> {
        let index = self.slots.index_of(key).ok_or(Missed::Other)?;
        let SlotRef::Packed(packed) = self.slots.at(index) else { return Err(Missed::Other) };
        let (packed, left) = self.rates.take_from_packed(packed, cost, now).ok_or(Missed::Short(packed))?;
        self.slots.set_packed(index, packed);
        self.count_quick(cost, now);
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

    /// The fast path: takes `cost` tokens from packed levels and returns what remains. `also` takes tokens of the parent,
    /// if there is one, and can refuse. `context`: set if a grant does nothing but take tokens of the key.
    #[inline(always)]
    pub(in crate::keyed) fn take_quickly(
        &mut self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        now: u64,
        context: Option<&mut ShardContext<'_, K>>,
        also: impl FnOnce() -> bool,
    ) -> Result<Left, Missed> {
        let was_ahead = self.is_ahead(key.hash);
        let time = context.as_ref().map(|context| &context.template.time);
        if let Some(time) = time.filter(|_| was_ahead) {
            self.end_stride(time);
        }
        let now = self.synced.max(now);
        if !self.is_quick(now) || cost == 0 {
            return Err(Missed::Other);
        }
        // Set if the call may be one of many in a row.
        let clock = time.filter(|_| self.may_run_ahead && self.rates.burst() >= PART);
        let clock = clock.filter(|_| was_ahead || is_fast(cost, now - self.synced));
        // User code, which may panic: no token is taken yet.
        let found = self.slots.index_of(key);
        let left = match found.map(|index| (index, self.slots.at(index))) {
            Some((_, SlotRef::Own(own))) => return Err(own.live().cloned().map_or(Missed::Other, Missed::Live)),
            Some((index, SlotRef::Packed(packed))) => {
                let taken = self.rates.take_from_packed(packed, cost, now).ok_or(Missed::Short(packed))?;
                let (packed, left) = Some(taken).filter(|_| also()).ok_or(Missed::Other)?;
                self.slots.set_packed(index, packed);
                left
            }
            None if self.rates.kind == Kind::NoQuota => {
                MAX_COST.checked_sub(cost).filter(|_| also()).map(Left::whole).ok_or(Missed::Other)?
            }
            None => {
                let request = EntryRequest { key, now, offered: None, forced: false };
                context.and_then(|context| self.take_new(&request, cost, context)).ok_or(Missed::Other)?
            }
        };
        if let Some(time) = clock {
            self.adapt_stride(found, key.hash, cost, left, now, time);
        }
        self.count_quick(cost, now.max(self.synced));
        Ok(left)
    }

    /// Stores a new key with the common quota, less `cost` tokens, if there is space in the table and in the map.
    fn take_new(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        context: &mut ShardContext<'_, K>,
    ) -> Option<Left> {
        let rate = self.rates.only().filter(|rate| rate.window.is_some() && cost <= rate.most_quick)?;
        if self.rates.kind != Kind::Quotas || self.slots.is_filled() {
            return None;
        }
        let level = Level { units: rate.full - rate.units(cost), at: request.now };
        let first = rate.packed(level)?;
        let key = request.take_place(context).ok()?;
        context.key_limit.idle_no_later_than(context.number, || rate.reached(level, rate.burst()));
        let left = rate.left(level.units);
        self.slots.insert(request.key.hash, key, Slot::Packed(Packed { first, second: 0 }));
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
        let mut levels = before.paused_until(gate);
        let result = act(rates, &mut levels);
        levels.gate = before.gate;
        if index.is_none() && !rates.is_full(&levels) && rates.kind != Kind::NoQuota {
            let rates = Arc::clone(rates);
            let key = self.take_place(request, context)?;
            let is_confirmed = confirm(&result);
            if is_confirmed {
                // A sweep may have advanced the shard, and packed levels can be read from then on only.
                let levels = rates.advance(&levels, self.synced);
                context.key_limit.idle_no_later_than(context.number, || Some(rates.full_at(&levels)));
                self.slots.insert(request.key.hash, key, self.slot_of(&rates, &levels, false));
            } else {
                context.key_limit.give_back(1);
                context.deferred.keys.push(key);
            }
            return Ok((result, is_confirmed));
        }
        let is_confirmed = confirm(&result);
        if let Some(index) = index.filter(|_| is_confirmed && levels != before) {
            if levels.is_raised_from(&before) {
                context.key_limit.idle_no_later_than(context.number, || Some(rates.full_at(&levels)));
            }
            self.put(index, &levels);
        }
        Ok((result, is_confirmed))
    }
}
