//! One quota as arithmetic on levels: the contents of a bucket without waiters. Integers only; no keys, no locks, no
//! clock.
//!
//! A bucket's *level* is a number of *units*: a token is `unit` units, and `amount` units arrive with each *tick*. For
//! a continuous quota of `a` tokens per `p` nanoseconds, in lowest terms, a tick is a nanosecond, a unit is a `p`-th of
//! a token, and `a` units arrive with each tick. Fractions are therefore exact, and minting divides nothing. For a
//! stepped quota, a tick is a period, counted from the map's origin, and a unit is a token. For a calendar quota, a tick is
//! one of its [periods](super::periods).
//!
//! **What this file guarantees:** its levels equal those of [`Schedule`](crate::core::schedule::Schedule), to the unit.
//! A full bucket stays at its burst, and the fraction above that survives only if the last token arrived in this very
//! nanosecond.
//!
//! # Packed levels
//!
//! The *packed level* of a key is `units minted since the origin - level`, modulo 2^63, in the upper 63 bits of a word
//! whose lowest bit is 1. It does not change while time passes. The level is the distance between the units minted by
//! now and the packed level, which is correct as long as it is less than 2^62 away from zero. A full bucket does not
//! get fuller with time, but that distance does grow. Hence the [window](Rate::window): a packed level that was not
//! full at some instant can be read for this long after it. The table of packed levels must therefore be swept at least
//! that often, or be read at the end of the window and advanced from there. A rate with a bucket that does not fit has
//! no window and no packed levels.

use super::periods::{Calendars, Periods};
use crate::Quota;
use crate::core::arithmetic::gcd;
use crate::core::in_use::InUse;
use crate::observe::{GrantWord, Verdict};
use crate::permit::Permit;
use std::num::NonZeroU64;
use std::sync::Arc;

/// The bound on the units of a packed level, positive or negative, and on the units minted inside its window: both
/// together stay below the 2^62 at which distances wrap.
const MAX_PACKED: i128 = 1 << 61;
/// In nanoseconds. A shorter window would cause the tables to be swept all the time.
const LEAST_WINDOW: u64 = 1_000_000_000;

/// A quota, and the arithmetic of its levels.
#[derive(Debug)]
pub(super) struct Rate {
    pub(super) quota: Quota,
    /// Units minted with each tick.
    amount: u64,
    /// Units in a token.
    unit: NonZeroU64,
    /// Nanoseconds in a tick; 0 for the periods of a calendar.
    tick: u64,
    /// The periods of a calendar quota; also `None` for levels that are only converted.
    pub(super) periods: Option<Arc<Periods>>,
    /// The burst; 0 for a calendar quota.
    most_quick: u64,
    /// The burst, in units.
    pub(super) full: i128,
    /// A packed level of so many units is that of a full bucket. Only of use with a window.
    ceiling: i64,
    /// For how many nanoseconds a packed level can be read after an instant at which it was not full; `None` if levels
    /// of this rate cannot be packed.
    pub(super) window: Option<u64>,
}

/// The level of a bucket at an instant, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) units: i128,
    pub(super) at: u64,
}

/// What a grant left: a level, or the verdict of a dry run. The division into whole tokens is made only when a caller
/// asks for it, outside of all locks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// The units that remain, or the word of a grant.
    units: u64,
    /// The units in a token, or [`WORD`], or 1 more than that and the instant of the grant.
    unit: NonZeroU64,
}

/// No level that is packed has so many units in a token.
const WORD: NonZeroU64 = NonZeroU64::MIN.saturating_add((1 << 63) - 1);

impl Left {
    pub(super) fn whole(tokens: u64) -> Self {
        Self { units: tokens, unit: NonZeroU64::MIN }
    }

    /// What a grant of a core left.
    pub(super) fn of_permit(permit: &Permit<InUse>) -> Self {
        let (word, instant) = (permit.word(), permit.word().instant());
        let left = match word.verdict() {
            Some(_) if instant.is_none() => Self { units: word.to_bits(), unit: WORD },
            Some(_) => Self::whole(permit.remaining()).in_dry_run(),
            None => Self::whole(permit.remaining()),
        };
        instant.map_or(left, |instant| left.at(instant))
    }

    /// Adds the instant of the grant.
    pub(super) fn at(self, instant: u64) -> Self {
        let units = if self.unit < WORD { self.tokens() } else { self.units };
        Self { units, unit: WORD.saturating_add(instant.saturating_add(1)) }
    }

    /// What a grant at once of a limiter in dry run left.
    pub(super) fn in_dry_run(self) -> Self {
        if self.word().verdict().is_some() {
            return self;
        }
        let word = GrantWord::of_verdict(Verdict::AtOnce { remaining: self.tokens() }, 0);
        Self { units: word.to_bits(), unit: self.unit.max(WORD) }
    }

    /// The word of a verdict or with the instant of the grant; nothing if there is neither.
    pub(super) fn word(self) -> GrantWord {
        let word = GrantWord::from_bits(if self.unit < WORD { 0 } else { self.units });
        let instant = self.unit.get().checked_sub(WORD.get() + 1);
        instant.map_or(word, |instant| word.with_instant(instant))
    }

    pub(super) fn tokens(self) -> u64 {
        if self.unit < WORD { self.units / self.unit } else { GrantWord::from_bits(self.units).remaining() }
    }

    /// What is left after another grant of `cost` tokens; `None` if there are fewer.
    #[inline]
    pub(super) fn minus(self, cost: u64) -> Option<Self> {
        let units = self.units.checked_sub(cost.checked_mul(self.unit.get())?)?;
        Some(Self { units, ..self })
    }

    /// The smaller number of tokens, found without a division.
    pub(super) fn min(self, other: Self) -> Self {
        let (unit, other_unit) = (u128::from(self.unit.get()), u128::from(other.unit.get()));
        if u128::from(self.units) * other_unit <= u128::from(other.units) * unit { self } else { other }
    }
}

impl Rate {
    /// Creates the arithmetic of a *checked* quota that mints by itself.
    pub(super) fn new(quota: Quota, calendars: Option<&Calendars>) -> Self {
        // The window of a sliding quota is kept by a live entry. A level that is not full is what another quota, or another
        // process, has left: one token of it comes back in each period.
        let (amount, unit, tick) = if quota.is_sliding() {
            (1, quota.period_nanos(), 1)
        } else if quota.calendar().is_some() {
            (quota.amount(), 1, 0)
        } else if quota.is_stepped() {
            (quota.amount(), 1, quota.period_nanos())
        } else {
            let common = gcd(quota.amount(), quota.period_nanos());
            (quota.amount() / common, quota.period_nanos() / common, 1)
        };
        let full = quota.capacity() as i128 * unit as i128;
        // A period of a calendar can be shorter than its nominal length.
        let least = if tick == 0 { quota.period_nanos().div_ceil(2) } else { tick };
        let window = ((MAX_PACKED as u64 - 1) / amount).saturating_mul(least);
        let fits = full + unit as i128 <= MAX_PACKED && window >= LEAST_WINDOW && !quota.is_sliding();
        let ceiling = (full + amount.min(unit) as i128) as i64;
        let unit = NonZeroU64::new(unit).expect("a checked quota has a period");
        let (periods, window) = (calendars.and_then(|known| known.periods(&quota, None)), fits.then_some(window));
        let most_quick = if tick == 0 { 0 } else { quota.capacity() };
        Self { quota, amount, unit, tick, periods, most_quick, full, ceiling, window }
    }

    pub(super) fn burst(&self) -> u64 {
        self.quota.capacity()
    }

    /// True for a level that equals that of a new key. False for a level with a fraction of a token above the burst,
    /// until the next tick.
    pub(super) fn is_full(&self, units: i128) -> bool {
        units == self.full
    }

    pub(super) fn units(&self, tokens: u64) -> i128 {
        tokens as i128 * self.unit.get() as i128
    }

    /// Whole tokens, rounded down; negative for a debt.
    pub(super) fn tokens(&self, units: i128) -> i64 {
        match i64::try_from(units) {
            // The common case: a 64-bit division costs a fraction of the 128-bit one.
            Ok(units) if self.unit.get() <= i64::MAX as u64 => units.div_euclid(self.unit.get() as i64),
            _ => units.div_euclid(self.unit.get() as i128) as i64,
        }
    }

    /// The fraction of a token, in units.
    pub(super) fn fraction(&self, units: i128) -> u64 {
        if self.quota.is_sliding() {
            return 0;
        }
        units.rem_euclid(self.unit.get() as i128) as u64
    }

    /// The units of a level of whole tokens, negative for a debt, and a fraction of a token.
    pub(super) fn level(&self, tokens: i64, fraction: u64) -> i128 {
        i128::from(tokens) * i128::from(self.unit.get()) + i128::from(fraction)
    }

    /// Cuts a level at a full bucket, but keeps the fraction of the next token if the last token arrived in this very
    /// tick.
    pub(super) fn clip(&self, units: i128) -> i128 {
        let spare = self.amount.min(self.unit.get()) as i128;
        if units >= self.full + spare { self.full } else { units }
    }

    /// The units of `level` at `now`. An earlier `now` changes nothing.
    pub(super) fn advance(&self, level: Level, now: u64) -> i128 {
        let ticks = if self.tick == 1 {
            now.saturating_sub(level.at)
        } else {
            self.ticks(now).saturating_sub(self.ticks(level.at))
        };
        let minted = ticks as u128 * self.amount as u128;
        // Debts are bounded by 2^62 tokens of 2^64 units, so the space is positive and fits.
        let space = (self.full + self.unit.get() as i128 - level.units) as u128;
        if minted >= space { self.full } else { self.clip(level.units + minted as i128) }
    }

    /// The instant at which `level` reaches `tokens`, if the burst is ignored; `None` if that is after the end of time.
    pub(super) fn reached(&self, level: Level, tokens: u64) -> Option<u64> {
        let need = self.units(tokens) - level.units;
        if need <= 0 {
            return Some(level.at);
        }
        let ticks = match u64::try_from(need) {
            // The common case, as in `tokens`.
            Ok(need) => need.div_ceil(self.amount),
            Err(_) => u64::try_from((need as u128).div_ceil(self.amount as u128)).ok()?,
        };
        if self.tick == 1 {
            level.at.checked_add(ticks)
        } else if let Some(periods) = &self.periods {
            periods.reached(level.at, ticks)
        } else {
            (level.at / self.tick).checked_add(ticks)?.checked_mul(self.tick)
        }
    }

    /// Converts a level of `old` to a level of `self`: whole tokens stay, up to the burst, and so does the fraction.
    pub(super) fn adopt(&self, old: &Self, units: i128) -> i128 {
        if old.unit.get() == self.unit.get() {
            // A shortcut that saves two divisions with the same result: a change of the common quota converts every key
            // here.
            return self.clip(units);
        }
        let tokens = old.tokens(units);
        if tokens as i128 > self.burst() as i128 {
            return self.full;
        }
        let mut fraction = 0;
        if old.tick == 1 && self.tick == 1 {
            let own = (units - tokens as i128 * old.unit.get() as i128) as u64;
            fraction = match own.checked_mul(self.unit.get()) {
                Some(product) => product / old.unit.get(),
                None => (own as u128 * self.unit.get() as u128 / old.unit.get() as u128) as u64,
            };
        }
        self.clip(tokens as i128 * self.unit.get() as i128 + fraction as i128)
    }

    // ---- packed levels --------------------------------------------------------------------------------------------

    /// Packs a level, if it fits. The result is odd.
    pub(super) fn packed(&self, level: Level) -> Option<NonZeroU64> {
        let fits = self.window.is_some() && level.units > -MAX_PACKED;
        fits.then(|| NonZeroU64::MIN | self.minted(level.at).wrapping_sub((level.units as u64) << 1))
    }

    /// Reads `packed` at `at`, an instant inside the window. The result can be above a full bucket; see
    /// [`clip`](Self::clip).
    #[inline]
    pub(super) fn of_packed(&self, packed: NonZeroU64, at: u64) -> i64 {
        self.minted(at).wrapping_sub(packed.get() - 1) as i64 >> 1
    }

    /// Whether `packed` is a full bucket when this was [minted](Self::minted); else its units.
    #[inline]
    pub(super) fn unless_full(&self, packed: NonZeroU64, minted: u64) -> Option<i64> {
        let units = minted.wrapping_sub(packed.get() - 1) as i64 >> 1;
        if units == self.full as i64 || units >= self.ceiling { None } else { Some(units) }
    }

    /// Whether [`take_from_packed`](Self::take_from_packed) may take this cost.
    #[inline]
    pub(super) fn is_quick(&self, cost: u64) -> bool {
        cost.wrapping_sub(1) < self.most_quick
    }

    /// Takes a [quick](Self::is_quick) `cost` from `packed` at `now`, an instant inside the window. Returns the new packed
    /// level and what remains, or `None` if the tokens are not there. Same results as with levels, in 64 bits: nearly
    /// every call takes this path.
    #[inline(always)]
    pub(super) fn take_from_packed(&self, packed: NonZeroU64, cost: u64, now: u64) -> Option<(NonZeroU64, Left)> {
        // A rate with packed levels has bursts of less than 2^61 units.
        let ticks = if self.tick == 1 { now } else { now / self.tick };
        let minted = ticks.wrapping_mul(self.amount) << 1;
        let units = minted.wrapping_sub(packed.get() - 1) as i64 >> 1;
        let units = if units >= self.ceiling { self.full as i64 } else { units };
        let left = units - (cost * self.unit.get()) as i64;
        if left < 0 {
            return None;
        }
        let packed = NonZeroU64::MIN | minted.wrapping_sub((left as u64) << 1);
        Some((packed, Left { units: left as u64, unit: self.unit }))
    }

    /// The packed level of a full bucket that loses `cost` tokens at `now`, as [above](Self::take_from_packed), what
    /// remains, and when the bucket is full again.
    #[inline]
    pub(super) fn take_from_full(&self, cost: u64, now: u64) -> (NonZeroU64, Left, u64) {
        let taken = cost * self.unit.get();
        let units = self.full as u64 - taken;
        let packed = NonZeroU64::MIN | self.minted(now).wrapping_sub(units << 1);
        let ticks = self.ticks(now).saturating_add(taken.div_ceil(self.amount));
        (packed, Left { units, unit: self.unit }, ticks.saturating_mul(self.tick))
    }

    /// [Takes](Self::take_from_packed) from a quota with a calendar.
    pub(super) fn take_in_period(&self, packed: NonZeroU64, cost: u64, now: u64) -> Option<(NonZeroU64, Left)> {
        let periods = self.periods.as_ref().filter(|_| cost <= self.burst())?.count(now);
        let minted = periods.wrapping_mul(self.amount) << 1;
        let units = (minted.wrapping_sub(packed.get() - 1) as i64 >> 1).min(self.full as i64);
        let left = units.checked_sub_unsigned(cost).filter(|left| *left >= 0)? as u64;
        let packed = NonZeroU64::MIN | minted.wrapping_sub(left << 1);
        Some((packed, Left::whole(left).at(now)))
    }

    /// Twice the units minted since the origin, modulo 2^64.
    #[inline]
    pub(super) fn minted(&self, at: u64) -> u64 {
        self.ticks(at).wrapping_mul(self.amount) << 1
    }

    /// The ticks since the origin.
    #[inline]
    fn ticks(&self, at: u64) -> u64 {
        match (self.tick, &self.periods) {
            (1, _) => at,
            (_, Some(periods)) => periods.count(at),
            (tick, None) => at.checked_div(tick).unwrap_or(0),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
