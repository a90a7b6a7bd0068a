//! Sweeping: forgetting full keys, and retiring live entries that are not needed any more.
//!
//! A packed level must not be read later than `readable_until` (see [`Rates::window`]). Everything in this file
//! therefore leaves that instant such that every packed level can be read from now on.

use super::{Change, DeferredDrops, Levels, NEXT_LOOK, Own, OwnState, Rates, SMALL, Shard, ShardContext, Slot};
use super::{live, readable_until};
use crate::core::Core;
use crate::keyed::rate::{Level, Rate};
use crate::keyed::rates::Packed;
use std::num::NonZeroU64;
use std::sync::Arc;

impl<K> Shard<K> {
    /// [Sweeps](Self::sweep) at `now`.
    pub(in crate::keyed) fn sweep_at(&mut self, now: u64, context: &mut ShardContext<'_, K>) {
        self.catch_up(context);
        self.synced = self.synced.max(now);
        self.sweep(context);
    }

    /// Forgets the keys that are full and retires the live entries that are not needed any more.
    pub(in crate::keyed) fn sweep(&mut self, context: &mut ShardContext<'_, K>) {
        self.end_stride(&context.template.time);
        let calls = 4 * self.slots.groups.slots().max(SMALL);
        self.calls_left = u32::try_from(calls).unwrap_or(u32::MAX);
        if self.synced <= self.readable_until && !context.key_limit.may_be_idle(context.number, self.synced) {
            return;
        }
        let had = self.slots.groups.len();
        context.key_limit.begin_sweep(context.number);
        let has_live = self.retire_idle_entries(&mut context.deferred);
        let rates = &self.rates;
        let mut packed = PackedSweep::new(rates, self.readable_until, self.synced);
        let (mut next, synced) = (u64::MAX, self.synced);
        let on_own = |own: &mut Own| {
            let OwnState::Levels(levels) = &mut own.state else { return Change::Kept };
            **levels = own.rates.advance(levels, synced);
            if own.pinned {
                return Change::Kept;
            }
            if own.rates.is_full(levels) {
                return Change::Forgotten;
            }
            next = next.min(own.rates.full_at(levels));
            let packed = if Arc::ptr_eq(&own.rates, rates) { rates.pack(levels) } else { None };
            packed.map_or(Change::Kept, |packed| Change::Becomes(Slot::Packed(packed)))
        };
        self.slots.update(|level| packed.visit(level), on_own, &mut context.deferred.keys);
        let mut next = next.min(packed.next());
        self.readable_until = readable_until(rates, synced);
        if let Some(rare_fields) = self.rare_fields.as_mut().filter(|rare_fields| rare_fields.has_handles) {
            rare_fields.has_handles = has_live;
            next = if has_live { next.min(synced.saturating_add(NEXT_LOOK)) } else { next };
        }
        context.key_limit.give_back(had - self.slots.groups.len());
        context.key_limit.idle_no_later_than(context.number, next);
    }

    /// Turns the live entries that are not needed any more into levels. Returns whether some are left.
    fn retire_idle_entries(&mut self, deferred: &mut DeferredDrops<K>) -> bool {
        let mut has_live = false;
        let Self { slots, synced, granted, refunded, .. } = self;
        for own in slots.owns_mut() {
            has_live |= own.live().is_some() && own.retire(synced, granted, refunded, deferred).is_none();
        }
        has_live
    }

    /// Retires the live entry at this address if it is not needed any more. Returns true if it is not in the shard any
    /// more. Runs no user code.
    pub(in crate::keyed) fn retire(
        &mut self,
        hash: u64,
        live: *const Core,
        now: u64,
        context: &mut ShardContext<'_, K>,
    ) -> bool {
        self.catch_up(context);
        self.synced = self.synced.max(now);
        let Self { slots, synced, granted, refunded, .. } = self;
        let Some(index) = slots.index_of_live(hash, live) else { return true };
        let Some(own) = slots.own_mut(index) else { return true };
        let (rates, pinned) = (Arc::clone(&own.rates), own.pinned);
        let Some(levels) = own.retire(synced, granted, refunded, &mut context.deferred) else { return false };
        if self.synced > self.readable_until {
            // There was no call for so long that no packed level can be read.
            self.sweep(context);
        } else if !pinned && rates.is_full(&levels) {
            context.deferred.keys.extend(self.slots.take(index));
            context.key_limit.give_back(1);
        } else {
            context.key_limit.idle_no_later_than(context.number, rates.full_at(&levels));
            let levels = rates.advance(&levels, self.synced);
            self.put(index, &levels);
        }
        true
    }
}

impl Own {
    /// Turns a live entry that is not needed any more into levels, and returns them. Brings the time of the shard, which the
    /// live entry may have passed, and the tokens granted and refunded there up to date.
    fn retire<K>(
        &mut self,
        synced: &mut u64,
        granted: &mut u64,
        refunded: &mut u64,
        deferred: &mut DeferredDrops<K>,
    ) -> Option<Levels> {
        let idle = live::look_at_idle(self.live()?, &self.rates, *synced)?;
        let levels = idle.levels;
        *synced = levels.at.max(*synced);
        *granted = granted.wrapping_add(idle.granted);
        *refunded = refunded.wrapping_add(idle.refunded);
        if let OwnState::Live(live) = std::mem::replace(&mut self.state, OwnState::Levels(Box::new(levels))) {
            deferred.live_entries.push(live);
        }
        Some(levels)
    }
}

/// A sweep over packed levels.
struct PackedSweep<'a> {
    rates: &'a Rates,
    /// The last instant at which packed levels can be read. Levels that were read then can be advanced.
    readable: u64,
    synced: u64,
    /// What each quota has minted by then.
    minted: [u64; 2],
    /// The highest level of each quota among the keys that stay as they are.
    fullest: [i64; 2],
    /// The earliest instant at which another key that stays is full.
    next: u64,
}

impl<'a> PackedSweep<'a> {
    fn new(rates: &'a Rates, readable_until: u64, synced: u64) -> Self {
        let minted = [0, 1].map(|index| rates.each.get(index).map_or(0, |rate| rate.minted(synced)));
        let readable = synced.min(readable_until);
        Self { rates, readable, synced, minted, fullest: [i64::MIN; 2], next: u64::MAX }
    }

    #[inline]
    fn visit(&mut self, packed: Packed) -> Change {
        if self.readable < self.synced {
            return self.rewrite(packed);
        }
        // The common cases, without a division for each key.
        let first = self.rates.each[0].unless_full(packed.first, self.minted[0]);
        let Some((word, rate)) = NonZeroU64::new(packed.second).zip(self.rates.each.get(1)) else {
            let Some(units) = first else { return Change::Forgotten };
            self.fullest[0] = self.fullest[0].max(units);
            return Change::Kept;
        };
        match (first, rate.unless_full(word, self.minted[1])) {
            (Some(first), Some(second)) => {
                self.fullest = [self.fullest[0].max(first), self.fullest[1].max(second)];
                Change::Kept
            }
            (None, None) => Change::Forgotten,
            // A level that stays full while the other is not full would leave its window.
            _ => self.rewrite(packed),
        }
    }

    fn rewrite(&mut self, packed: Packed) -> Change {
        let levels = self.rates.advance(&self.rates.unpack(packed, self.readable), self.synced);
        if self.rates.is_full(&levels) {
            return Change::Forgotten;
        }
        self.next = self.next.min(self.rates.full_at(&levels));
        self.rates.pack(&levels).map_or(Change::Kept, |packed| Change::Becomes(Slot::Packed(packed)))
    }

    /// An instant before which no key that stays is full: such a key has no level that reaches its burst before the highest
    /// one of its quota does.
    fn next(&self) -> u64 {
        let reached = |(rate, units): (&Rate, i64)| {
            let level = Level { units: units.into(), at: self.synced };
            rate.reached(level, rate.burst()).unwrap_or(u64::MAX)
        };
        let kept = self.rates.each.iter().zip(self.fullest).filter(|(_, units)| *units > i64::MIN);
        let next = kept.map(reached).max().map_or(self.next, |at| at.min(self.next));
        next.max(self.synced.saturating_add(1))
    }
}
