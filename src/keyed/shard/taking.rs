//! Changing the levels of a key: taking tokens from them first of all.

use super::ahead::{PART, is_fast};
use super::{AtOnce, EntryRequest, Left, Levels, Plain, Rates, Shard, ShardContext, Slot, SlotRef, Stop};
use crate::core::state::MAX_COST;
use crate::keyed::ToKey;
use crate::keyed::rate::Level;
use crate::keyed::rates::Packed;
use std::sync::Arc;

impl<K: Clone + Eq> Shard<K> {
    /// The fast path: takes `cost` tokens from packed levels and returns what remains. The error is the key's live
    /// entry; or nothing in every less common case, which [`at_levels`](Self::at_levels) handles. `also` takes tokens
    /// of the parent, if there is one, and can refuse. `plain`: set if a grant does nothing but take tokens of the key.
    #[inline(always)]
    pub(in crate::keyed) fn take_quickly(
        &mut self,
        key: &(impl ToKey<K> + ?Sized),
        hash: u64,
        cost: u64,
        now: u64,
        plain: Option<Plain<'_>>,
        also: impl FnOnce() -> bool,
    ) -> AtOnce {
        let was_ahead = self.is_ahead(hash);
        if was_ahead {
            if let Some(plain) = plain {
                self.end_stride(plain.time);
            }
        }
        let now = self.synced.max(now);
        if self.is_fast_path_closed || self.calls_left <= 1 || now > self.readable_until || cost == 0 {
            return Err(None);
        }
        // Set if the call may be one of many in a row.
        let clock = plain.filter(|plain| plain.may_run_ahead).map(|plain| plain.time);
        let clock = clock.filter(|_| was_ahead || (is_fast(cost, now - self.synced) && self.rates.burst() >= PART));
        // User code, which may panic: no token is taken yet.
        let index = clock.and_then(|_| self.index_if_busy(key, hash));
        let only = self.rates.only();
        let packed = only.and_then(|rate| Some((rate, self.slots.packed_near(hash, key)?)));
        let left = if let Some((rate, word)) = packed {
            let (packed, left) = rate.take_from_packed(*word, cost, now).ok_or(None)?;
            if !also() {
                return Err(None);
            }
            *word = packed;
            left
        } else {
            self.take_seldom(key, hash, cost, now, plain, also)?
        };
        if let Some(time) = clock {
            self.adapt_stride(index, hash, cost, left, now, time);
        }
        self.synced = self.synced.max(now);
        self.calls_left -= 1;
        self.count_granted(cost);
        Ok(left)
    }

    /// The rest of the fast path: several quotas, a new key, one that has a live entry or is far from its place in the
    /// table, and a limiter without quotas.
    #[inline(never)]
    fn take_seldom(
        &mut self,
        key: &(impl ToKey<K> + ?Sized),
        hash: u64,
        cost: u64,
        now: u64,
        plain: Option<Plain<'_>>,
        also: impl FnOnce() -> bool,
    ) -> AtOnce {
        let Some(index) = self.slots.index_of(hash, |own| key.equivalent(own)) else {
            if let Some(plain) = plain.filter(|_| !self.rates.stores_no_levels) {
                return self.take_new(key, hash, cost, now, plain).ok_or(None);
            }
            let left = if self.rates.stores_no_levels { MAX_COST.checked_sub(cost) } else { None };
            return left.filter(|_| also()).map(Left::whole).ok_or(None);
        };
        let packed = match self.slots.at(index) {
            SlotRef::Packed(packed) => packed,
            SlotRef::Own(own) => return Err(own.live().cloned()),
        };
        let (packed, left) = self.rates.take_from_packed(packed, cost, now).filter(|_| also()).ok_or(None)?;
        self.slots.set_packed(index, packed);
        Ok(left)
    }

    /// Stores a new key with the common quota, less `cost` tokens, if there is space in the table and in the map.
    fn take_new(
        &mut self,
        key: &(impl ToKey<K> + ?Sized),
        hash: u64,
        cost: u64,
        now: u64,
        plain: Plain<'_>,
    ) -> Option<Left> {
        let rate = self.rates.only().filter(|rate| rate.window().is_some() && cost <= rate.most_quick())?;
        if self.by_key || self.slots.is_filled() {
            return None;
        }
        let level = Level { units: rate.full() - rate.units(cost), at: now };
        let first = rate.packed(level)?;
        let place = plain.key_limit.reserve()?;
        // User code, which may panic: nothing has changed.
        let own = key.to_key();
        place.keep();
        plain.key_limit.idle_no_later_than(plain.number, || rate.reached(level, rate.burst()));
        let left = rate.left(level.units);
        self.slots.insert(hash, own, Slot::Packed(Packed { first, second: 0 }));
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
        self.at_levels_if(request, context, act, Ok)
    }

    /// Like [`at_levels`](Self::at_levels), but stores the levels only if `confirm` agrees. `confirm` is called last,
    /// when nothing is left that could fail; its `Err` leaves everything as it was.
    pub(in crate::keyed) fn at_levels_if<R>(
        &mut self,
        request: &EntryRequest<'_, impl ToKey<K> + ?Sized>,
        context: &mut ShardContext<'_, K>,
        act: impl FnOnce(&Rates, &mut Levels) -> R,
        confirm: impl FnOnce(R) -> Result<R, R>,
    ) -> Result<R, Stop> {
        let now = self.advance_to(request.now, context);
        let gate = self.gate(context);
        if let Some(index) = self.index(request) {
            let (rates, before) = self.levels_of(index).map_err(Stop::Live)?;
            let mut levels = before.paused_until(gate);
            let result = match confirm(act(rates, &mut levels)) {
                Ok(result) => result,
                Err(refusal) => return Ok(refusal),
            };
            levels.gate = before.gate;
            if levels.is_raised_from(&before) {
                context.key_limit.idle_no_later_than(context.number, || Some(rates.full_at(&levels)));
            }
            if levels != before {
                self.put(index, &levels);
            }
            return Ok(result);
        }
        let (rates, mut levels) = self.full(request, now)?;
        levels.gate = gate;
        let result = act(rates, &mut levels);
        levels.gate = 0;
        if rates.is_full(&levels) {
            return Ok(result);
        }
        if rates.stores_no_levels {
            return Ok(confirm(result).unwrap_or_else(|refusal| refusal));
        }
        let rates = Arc::clone(rates);
        let key = self.take_place(request, context)?;
        match confirm(result) {
            Ok(result) => {
                self.keep((key, request.hash), &rates, &levels, false, context);
                Ok(result)
            }
            Err(refusal) => {
                context.key_limit.give_back(1);
                context.deferred.keys.push(key);
                Ok(refusal)
            }
        }
    }
}
