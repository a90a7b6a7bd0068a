//! All quotas of a key as arithmetic on levels. Integers only; no keys, no locks, no clock.
//!
//! Each quota has a bucket of its own, and [`Rate`] computes its level. A call takes its cost from all buckets or from
//! none. A key without waiters has no other state, apart from a pause.
//!
//! Most keys have one quota, and its level is packed into 8 bytes; the levels of two quotas are packed into two words. The
//! levels of more quotas are not packed.

use super::periods::Calendars;
use super::quotas::{MAX_QUOTAS, NamedQuota, Quotas};
use super::rate::{Left, Level, Rate};
use crate::error::Bound;
use crate::name::{QuotaNames, quota_names};
use crate::snapshot::QuotaSnapshot;
use std::num::NonZeroU64;
use std::time::Duration;

/// The limit of a debt in tokens, the same as in a queue.
const MAX_SPAN: i64 = 1 << 62;

/// The quotas of a key, and the arithmetic of their levels.
#[derive(Debug)]
pub(super) struct Rates {
    /// Of each quota, at least one.
    pub(super) each: Box<[Rate]>,
    /// For how many nanoseconds packed levels can be read after an instant at which they were written or checked: the
    /// shorter window of one or two quotas; `None` if levels cannot be packed.
    pub(super) window: Option<u64>,
    /// The smallest amount of all sliding quotas, and its index; `None` without one. A key with one that is used has a live
    /// entry until its windows are empty.
    pub(super) sliding: Option<(u64, usize)>,
    pub(super) kind: Kind,
    pub(super) quotas: Quotas,
    pub(super) names: QuotaNames,
}

/// What rates stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Quotas,
    /// No quota: a key owes nothing, so its level is not stored.
    NoQuota,
    /// The quotas that `quota_by` chooses for each key. No key has the quotas of these rates.
    QuotaBy,
}

/// The levels of a key with one or two quotas, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) first: NonZeroU64,
    /// 0 if there is one quota.
    pub(super) second: u64,
}

/// The levels of a key's buckets at an instant, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    /// One level for each quota, in units; the rest is 0.
    pub(super) units: [i128; MAX_QUOTAS],
    pub(super) at: u64,
    /// The key is paused by itself: no call takes tokens before this instant.
    pub(super) gate: u64,
}

impl Levels {
    /// The level of the quota with this index.
    pub(super) fn level(&self, index: usize) -> Level {
        Level { units: self.units[index], at: self.at }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.at < self.gate
    }

    /// Whether the level of at least one quota is higher than in `before`.
    pub(super) fn is_raised_from(&self, before: &Self) -> bool {
        self.units.iter().zip(&before.units).any(|(now, before)| now > before)
    }
}

impl Rates {
    /// Creates the arithmetic of [checked](Quotas::check) quotas.
    pub(super) fn new(quotas: Quotas, calendars: Option<&Calendars>) -> Self {
        let each: Box<[Rate]> = quotas.iter().map(|quota| Rate::new(quota, calendars)).collect();
        let window = each.iter().try_fold(u64::MAX, |least, rate| Some(least.min(rate.window?)));
        let names = quota_names(quotas.0.iter().map(|(name, _)| name));
        let window = window.filter(|_| each.len() <= 2);
        let sliding = quotas.iter().enumerate().filter(|(_, quota)| quota.is_sliding());
        let sliding = sliding.map(|(index, quota)| (quota.amount(), index)).min();
        Self { window, each, sliding, kind: Kind::Quotas, quotas, names }
    }

    /// The rate of the only quota; `None` if there are several.
    #[inline]
    pub(super) fn only(&self) -> Option<&Rate> {
        if let [only] = &*self.each { Some(only) } else { None }
    }

    /// The smallest burst: the most that a call can take at once.
    pub(super) fn burst(&self) -> u64 {
        self.each.iter().map(Rate::burst).fold(u64::MAX, u64::min)
    }

    /// The levels that `units` computes for each quota, as of `at`.
    pub(super) fn levels(&self, at: u64, mut units: impl FnMut(usize, &Rate) -> i128) -> Levels {
        let mut levels = Levels { units: [0; MAX_QUOTAS], at, gate: 0 };
        for (index, rate) in self.each.iter().enumerate() {
            levels.units[index] = units(index, rate);
        }
        levels
    }

    /// The levels of a new key.
    pub(super) fn full(&self, at: u64) -> Levels {
        self.levels(at, |_, rate| rate.full)
    }

    /// True for levels that equal those of a new key.
    pub(super) fn is_full(&self, levels: &Levels) -> bool {
        !levels.is_paused() && self.each.iter().zip(levels.units).all(|(rate, units)| rate.is_full(units))
    }

    /// The levels at `now`. An earlier `now` changes nothing.
    pub(super) fn advance(&self, levels: &Levels, now: u64) -> Levels {
        Levels { gate: levels.gate, ..self.levels(now, |index, rate| rate.advance(levels.level(index), now)) }
    }

    /// The instant at which the key [is full](Self::is_full), if no call takes tokens meanwhile. If only a fraction of
    /// a token above the burst keeps it from being full, that is the next instant.
    pub(super) fn full_at(&self, levels: &Levels) -> u64 {
        if self.is_full(levels) {
            return levels.at;
        }
        let start = if levels.is_paused() { levels.gate } else { levels.at.saturating_add(1) };
        let full_at = |(index, rate): (usize, &Rate)| rate.reached(levels.level(index), rate.burst());
        self.each.iter().enumerate().map(|each| full_at(each).unwrap_or(u64::MAX)).fold(start, u64::max)
    }

    /// The whole tokens that all levels have; negative for a debt.
    pub(super) fn tokens(&self, levels: &Levels) -> i64 {
        let tokens = self.each.iter().zip(levels.units).map(|(rate, units)| rate.tokens(units));
        tokens.min().unwrap_or(0)
    }

    /// How many tokens a call can take.
    pub(super) fn available(&self, levels: &Levels) -> u64 {
        if levels.is_paused() { 0 } else { self.tokens(levels).max(0) as u64 }
    }

    /// By how much claims and debts can still grow.
    pub(super) fn space(&self, levels: &Levels) -> u64 {
        (MAX_SPAN + self.tokens(levels)).max(0) as u64
    }

    /// The instant at which all levels reach `cost` tokens and the key is not paused, if the bursts are ignored, and the
    /// bound that keeps a call from these tokens until then: the same bound as that of a queue. No instant if that is
    /// after the end of time.
    pub(super) fn obstacle(&self, levels: &Levels, cost: u64) -> (Option<u64>, Bound) {
        let mut longest = (levels.at, Bound::Pause);
        for (index, rate) in self.each.iter().enumerate() {
            match rate.reached(levels.level(index), cost) {
                None => return (None, Bound::Quota(index)),
                Some(at) if at > longest.0 => longest = (at, Bound::Quota(index)),
                Some(_) => {}
            }
        }
        let (at, by) = if levels.gate > longest.0 { (levels.gate, Bound::Pause) } else { longest };
        (Some(at), by)
    }

    /// Takes `cost` tokens from all levels if they are there, and returns what remains, with the instant if a quota has a
    /// calendar.
    pub(super) fn take(&self, levels: &mut Levels, cost: u64) -> Option<Left> {
        // The units of a larger cost may not fit in 128 bits.
        let has = |(rate, units): (&Rate, i128)| cost <= rate.burst() && units >= rate.units(cost);
        let is_there = self.each.iter().zip(levels.units).all(has);
        if cost > 0 && (levels.is_paused() || !is_there) {
            return None;
        }
        self.charge(levels, cost);
        let left = Left::whole(self.available(levels));
        let has_calendar = self.each.iter().any(|rate| rate.periods.is_some());
        Some(if has_calendar { left.at(levels.at) } else { left })
    }

    /// Takes `tokens` from all levels, as a debt if they are not there.
    pub(super) fn charge(&self, levels: &mut Levels, tokens: u64) {
        self.each.iter().zip(&mut levels.units).for_each(|(rate, units)| *units -= rate.units(tokens));
    }

    /// Returns `tokens` of a grant made at `granted_at` to each level, up to its burst. A calendar quota takes only those of
    /// the period that goes on.
    pub(super) fn refund(&self, levels: &mut Levels, tokens: u64, granted_at: Option<u64>) {
        let now = levels.at;
        let takes = |rate: &Rate| {
            rate.periods.as_ref().is_none_or(|periods| granted_at.is_some_and(|at| at >= periods.begun(now)))
        };
        for (rate, units) in self.each.iter().zip(&mut levels.units).filter(|(rate, _)| takes(rate)) {
            let space = (rate.burst() as i64).wrapping_sub(rate.tokens(*units)).max(0) as u64;
            *units = rate.clip(*units + rate.units(tokens.min(space)));
        }
    }

    /// Converts levels of `old` to levels of `self`, quota by quota in their order: whole tokens stay, up to the burst,
    /// and so does the fraction. A quota that `old` does not have starts full.
    pub(super) fn adopt(&self, old: &Self, levels: &Levels) -> Levels {
        let adopted = self.levels(levels.at, |index, rate| {
            if index < old.each.len() { rate.adopt(&old.each[index], levels.units[index]) } else { rate.full }
        });
        Levels { gate: levels.gate, ..adopted }
    }

    /// What a snapshot of a limiter with these levels shows of each quota, at their instant.
    pub(super) fn snapshots(&self, levels: &Levels) -> Vec<QuotaSnapshot> {
        let snapshot = |(index, (rate, (name, quota))): (usize, (&Rate, &NamedQuota))| {
            let level = rate.tokens(levels.units[index]);
            let available = level.max(0) as u64;
            let more_at = rate.reached(levels.level(index), available.saturating_add(1));
            QuotaSnapshot {
                name: name.clone(),
                quota: *quota,
                head: level as u64,
                level,
                available,
                more_in: more_at.map(|at| Duration::from_nanos(at.saturating_sub(levels.at))),
                dry_run: false,
                would_refuse: 0,
            }
        };
        self.each.iter().zip(&self.quotas.0).enumerate().map(snapshot).collect()
    }

    /// Each level as whole tokens, negative for a debt, and a fraction of a token.
    pub(super) fn parts(&self, levels: &Levels) -> impl Iterator<Item = (i64, u64)> {
        self.each.iter().zip(levels.units).map(|(rate, units)| (rate.tokens(units), rate.fraction(units)))
    }

    /// The levels at `at` with these parts, one pair for each quota.
    pub(super) fn of_parts(&self, at: u64, parts: impl Fn(usize) -> (i64, u64)) -> Levels {
        self.levels(at, |index, rate| {
            let (tokens, fraction) = parts(index);
            rate.level(tokens, fraction)
        })
    }

    // ---- packed levels --------------------------------------------------------------------------------------------

    /// Packs the levels of one or two quotas, if they fit and the key is not paused.
    pub(super) fn pack(&self, levels: &Levels) -> Option<Packed> {
        if self.window.is_none() || levels.is_paused() {
            return None;
        }
        let second = match self.each.get(1) {
            Some(second) => second.packed(levels.level(1))?.get(),
            None => 0,
        };
        Some(Packed { first: self.each[0].packed(levels.level(0))?, second })
    }

    /// Reads packed levels at `at`, an instant inside the window.
    #[inline]
    pub(super) fn unpack(&self, packed: Packed, at: u64) -> Levels {
        let mut levels = Levels { units: [0; MAX_QUOTAS], at, gate: 0 };
        let read = |rate: &Rate, word| rate.clip(rate.of_packed(word, at) as i128);
        levels.units[0] = read(&self.each[0], packed.first);
        if let (Some(rate), Some(word)) = (self.each.get(1), NonZeroU64::new(packed.second)) {
            levels.units[1] = read(rate, word);
        }
        levels
    }

    /// Takes `cost` tokens from packed levels at `now`, an instant inside the window. Returns the new packed levels and
    /// what remains, or `None` if the tokens are not there.
    #[inline(always)]
    pub(super) fn take_from_packed(&self, packed: Packed, cost: u64, now: u64) -> Option<(Packed, Left)> {
        match &*self.each {
            [one, two] if one.is_quick(cost) && two.is_quick(cost) => {
                let (first, left) = one.take_from_packed(packed.first, cost, now)?;
                let (second, other) = two.take_from_packed(NonZeroU64::new(packed.second)?, cost, now)?;
                Some((Packed { first, second: second.get() }, left.min(other)))
            }
            [one] => {
                let take = if one.is_quick(cost) { Rate::take_from_packed } else { Rate::take_in_period };
                take(one, packed.first, cost, now).map(|(first, left)| (Packed { first, second: 0 }, left))
            }
            // With calendars, a grant has one instant for both quotas, which only [`take`](Self::take) adds.
            _ => None,
        }
    }

    /// The packed levels of a new key that takes `cost` tokens at `now`, what remains, and when the key is full again.
    #[inline]
    pub(super) fn take_from_full(&self, cost: u64, now: u64) -> Option<(Packed, Left, u64)> {
        self.window?;
        match &*self.each {
            [one] if one.is_quick(cost) => {
                let (first, left, full_at) = one.take_from_full(cost, now);
                Some((Packed { first, second: 0 }, left, full_at))
            }
            [one, two] if one.is_quick(cost) && two.is_quick(cost) => {
                let ((first, left, at), (second, other, other_at)) =
                    (one.take_from_full(cost, now), two.take_from_full(cost, now));
                Some((Packed { first, second: second.get() }, left.min(other), at.max(other_at)))
            }
            _ => None,
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
