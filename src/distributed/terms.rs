//! A quota in the integers of the script.

use crate::core::arithmetic::gcd;
use crate::core::calendar::RELIANCE;
use crate::error::QuotaError;
use crate::quota::{Calendar, Quota};
use std::fmt;
use std::time::Duration;

/// Doubles, the only numbers in Redis' Lua, are exact up to here.
const EXACT: u64 = 1 << 53;
/// The largest burst: levels, debts and their sums stay exact.
const MAX_BURST: u64 = 1 << 50;
/// The longest time in which a bucket may fill up, in microseconds: 142 years.
pub(super) const LONGEST: u64 = 1 << 52;

/// The largest debt of a store before it refuses to promise more. A level is therefore above -(2^52 + 2^49), including
/// the allowance on top. Minted amounts are exact below 2^53; a larger amount exceeds any burst, exact or not.
pub(super) const MAX_DEBT: u64 = 1 << 52;

/// The shortest period of a calendar, in nanoseconds: a request must arrive in the period that it was sent in.
const SHORTEST: u64 = 1_000_000_000;

/// A second, minute, hour and day, in microseconds.
const UNITS: [u64; 4] = [1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000];

/// A quota as Redis keeps it: `amount` tokens per `period` microseconds, in lowest terms. Nothing is rounded.
///
/// Of a calendar quota, a request says the period that its node takes to be the present one, and a store remembers the period
/// that has begun. So a store knows no time zones.
///
/// Its text is stored in the key in Redis. Every value has passed the checks of [`QuotaTerms::of`]: no period is 0, and
/// all counts stay exact.
///
/// The *version* decides between two quotas of one store: the higher one counts. See
/// [`Store::quota_version`](super::Store::quota_version).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaTerms {
    pub(super) amount: u64,
    pub(super) period: u64,
    pub(super) burst: u64,
    pub(super) initial: u64,
    /// 0: tokens come evenly. 1: in steps, counted from 1970. More: at the beginnings of calendar periods, by which calendar.
    pub(super) kind: u64,
    pub(super) version: u32,
    /// When the period of a calendar begins and when it ends, in microseconds of the store's clock; 0 if that is not known.
    pub(super) begins: u64,
    pub(super) ends: u64,
    /// Known to the node that has this quota, and to no other one.
    calendar: Option<Calendar>,
}

impl QuotaTerms {
    /// Converts a quota.
    ///
    /// # Errors
    ///
    /// A [`QuotaError`] if the quota is invalid, is manual or sliding, has a calendar with periods below a second, or exceeds
    /// the range that can be counted exactly.
    pub fn of(quota: &Quota) -> Result<Self, QuotaError> {
        quota.check()?;
        quota.check_not_sliding("distributed")?;
        if quota.is_manual() {
            return Err(QuotaError::DistributedManual);
        }
        let beyond = QuotaError::DistributedInexact;
        if quota.period_nanos() < SHORTEST {
            quota.check_no_calendar("a distributed limiter with periods below a second")?;
        }
        let (amount, period) = (quota.amount() as u128, quota.period_nanos() as u128);
        let (amount, period) = if quota.is_stepped() {
            if period % 1_000 != 0 {
                return Err(beyond);
            }
            (amount, period / 1_000)
        } else {
            let common = gcd(amount * 1_000, period);
            (amount * 1_000 / common, period / common)
        };
        let burst = quota.capacity() as u128;
        let counts = [amount, period, burst, u128::from(quota.filled_at_start())];
        let kind = quota.calendar().map_or(quota.is_stepped().into(), number_of);
        let terms = Self::counted(counts, kind).ok_or(beyond)?;
        Ok(Self { calendar: quota.calendar(), ..terms })
    }

    /// `None` if these numbers exceed the range that can be counted exactly.
    fn counted([amount, period, burst, initial]: [u128; 4], kind: u64) -> Option<Self> {
        // The largest dividend of a division by the period: the tokens minted in one period plus the carried part.
        let product = if kind > 0 { amount.max(period) } else { amount.checked_mul(period)?.checked_add(period)? };
        let filling = (burst / amount + 1).checked_mul(period)?;
        if product > EXACT as u128 || burst > MAX_BURST as u128 || filling > LONGEST as u128 {
            return None;
        }
        let [amount, period, burst, initial] = [amount, period, burst, initial].map(|number| number as u64);
        Some(Self { amount, period, burst, initial, kind, version: 0, begins: 0, ends: 0, calendar: None })
    }

    /// Builds terms from the [numbers](Self::numbers) of their text; `None` if no quota has them.
    pub fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let (&[amount, period, burst, initial, kind, version], span) = numbers.split_first_chunk()?;
        let [begins, ends] = if kind > 1 { span.try_into().ok()? } else { [0, 0] };
        if amount == 0 || period == 0 || burst == 0 || initial > burst || kind > 0 && amount > burst {
            return None;
        }
        if kind.max(ends) > EXACT || begins > ends || kind < 2 && !span.is_empty() {
            return None;
        }
        let terms = Self::counted([amount, period, burst, initial].map(u128::from), kind)?;
        Some(Self { begins, ends, ..terms.with_version(u32::try_from(version).ok()?) })
    }

    /// Returns the numbers of the text, with a version: six, and of a calendar quota two more, the beginning and the end of
    /// a period.
    pub fn numbers(&self) -> Vec<u64> {
        let &Self { amount, period, burst, initial, kind, version, begins, ends, .. } = self;
        let span: &[u64] = if self.is_calendar() { &[begins, ends] } else { &[] };
        [&[amount, period, burst, initial, kind, version.into()], span].concat()
    }

    /// Parses the text of terms, as [`Display`](fmt::Display) writes it.
    pub fn from_text(text: &str) -> Option<Self> {
        let numbers: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
        let mut numbers = numbers.ok()?;
        if numbers.len() == 5 {
            numbers.push(0);
        }
        Self::from_numbers(&numbers)
    }

    /// Sets the version; without this call it is 0.
    #[must_use = "this returns the changed terms"]
    pub fn with_version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    /// The version: of two quotas, the one with the higher version counts.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether both grant the same tokens from an existing bucket. The tokens in a new bucket may differ.
    pub(super) fn is_same_quota(&self, other: &Self) -> bool {
        self.is_same_rate(other) && self.burst == other.burst
    }

    pub(super) fn is_same_rate(&self, other: &Self) -> bool {
        self.amount == other.amount && self.period == other.period && self.kind == other.kind
    }

    pub(crate) fn is_calendar(&self) -> bool {
        self.kind > 1
    }

    /// For how many nanoseconds a node relies on the instant at which, by an answer, tokens come. In a calendar that instant is
    /// the beginning of a period: it moves if the store's clock is set, or the node is suspended.
    pub(crate) fn reliance(&self) -> u64 {
        if self.is_calendar() { RELIANCE } else { u64::MAX }
    }

    /// Whether the period that these terms say is the present one at `now`.
    pub(super) fn is_in(&self, now: i64) -> bool {
        self.begins as i64 <= now && now < self.ends as i64
    }

    /// Says the period that `micros` of the store's clock are in, if the calendar is known.
    #[must_use]
    pub(crate) fn at(self, micros: u64) -> Self {
        let Some(calendar) = self.calendar else { return self };
        let (length, wall) = (self.period * 1_000, micros.saturating_mul(1_000));
        let number = calendar.number(length, wall);
        let start = |number| calendar.start(length, number, wall).map_or(EXACT, |nanos| (nanos / 1_000).min(EXACT));
        Self { begins: start(number), ends: start(number.saturating_add(1)), ..self }
    }

    /// The terms as a store keeps them, with this period.
    #[must_use]
    pub(super) fn kept(self, begins: u64, ends: u64) -> Self {
        Self { begins, ends, calendar: None, ..self }
    }

    /// The terms of a node with these ones, once it is told `newer` ones. It knows their calendar if that is its own, and else
    /// goes by the period of the store.
    #[must_use]
    pub(super) fn followed_by(self, newer: Self) -> Self {
        let calendar = self.calendar.filter(|_| newer.kind == self.kind);
        Self { calendar, ..newer.kept(0, 0) }
    }

    /// The quota, with the rate per second, minute, hour or day, if the period divides one of these.
    pub(crate) fn quota(&self) -> Quota {
        let scale = |unit: u64| {
            let amount = self.amount.checked_mul(unit / self.period)?;
            (unit % self.period == 0).then(|| Quota::new(amount, Duration::from_micros(unit)))
        };
        let exact = Quota::new(self.amount, Duration::from_micros(self.period));
        let scaled = if self.kind > 0 { None } else { UNITS.into_iter().find_map(scale) };
        let quota = scaled.unwrap_or(exact).burst(self.burst);
        let quota = if self.initial == self.burst { quota } else { quota.initial(self.initial) };
        if self.kind > 0 { quota.stepped().of_calendar(self.calendar) } else { quota }
    }

    /// Tokens per period.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// The period in microseconds, at least 1.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// The largest number of tokens in the bucket, and the largest cost of one claim: a store promises no more than it has or
    /// mints soon.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Whether tokens arrive only at the ends of periods, counted from the Unix epoch or by a calendar.
    pub fn is_stepped(&self) -> bool {
        self.kind > 0
    }

    /// How many tokens all nodes together may keep unused: half of the burst. The other half is for claims that pass at
    /// the instant at which their tokens are minted, while all of the first half is kept.
    pub(crate) fn most_held(&self) -> u64 {
        self.burst / 2
    }
}

impl Default for QuotaTerms {
    /// One token each second, and at most one at once.
    fn default() -> Self {
        Self::from_numbers(&[1, UNITS[0], 1, 1, 0, 0]).expect("these numbers are small")
    }
}

impl fmt::Display for QuotaTerms {
    /// Writes the text that is stored: the [numbers](Self::numbers), without a version of 0 unless a calendar follows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.numbers();
        numbers.truncate(if numbers.len() == 6 && self.version == 0 { 5 } else { 8 });
        f.write_str(&numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))
    }
}

/// The number of a calendar, by its name (FNV-1a): two of them on one store are two quotas.
fn number_of(calendar: Calendar) -> u64 {
    let add = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    2 + u64::from(calendar.to_string().bytes().fold(0x811c_9dc5, add))
}

#[cfg(test)]
mod tests;
