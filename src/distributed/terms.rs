//! A quota in the integers of the script.

use crate::Quota;
use crate::core::schedule::gcd;
use crate::error::ConfigError;
use std::fmt;

/// Doubles, the only numbers that Redis' Lua has, are exact up to here.
const EXACT: u64 = 1 << 53;
/// The largest burst: levels, debts and their sums stay exact.
const MAX_BURST: u64 = 1 << 50;
/// The longest time in which a bucket may fill up, in microseconds: 142 years.
pub(super) const LONGEST: u64 = 1 << 52;

/// The most tokens that a line owes before it refuses to promise more: so a level is above -(2^52 + 2^49), with what may be
/// kept on top. What it mints is exact below 2^53, and if it is more, the sum is beyond any burst, exact or not.
pub(super) const MAX_DEBT: u64 = 1 << 52;

/// One claim costs so many bursts at most, or what is minted in so many nanoseconds.
const MAX_BURSTS: u64 = 16;
const MAX_TIME: u64 = 60_000_000_000;

/// A quota as Redis keeps it: `amount` tokens per `period` microseconds, in lowest terms. Nothing is rounded.
///
/// Its text is what the key in Redis says of it. [`Terms::of`] is the only way to make terms, so all terms have passed its
/// checks: no period is 0, and all that is counted stays exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub(super) amount: u64,
    pub(super) period: u64,
    pub(super) burst: u64,
    pub(super) initial: u64,
    pub(super) stepped: bool,
}

impl Terms {
    /// Those of a quota that is the `index`-th of its limiter.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] if the quota makes no sense, is manual, or is beyond what can be counted exactly.
    pub fn of(quota: &Quota, index: usize) -> Result<Self, ConfigError> {
        quota.check(index)?;
        if quota.is_manual() {
            return Err(ConfigError::DistributedManual { quota: index });
        }
        let beyond = ConfigError::DistributedInexact { quota: index };
        let (amount, period) = (quota.amount() as u128, quota.period_nanos() as u128);
        let (amount, period) = if quota.is_stepped() {
            if !period.is_multiple_of(1_000) {
                return Err(beyond);
            }
            (amount, period / 1_000)
        } else {
            let common = gcd(amount * 1_000, period);
            (amount * 1_000 / common, period / common)
        };
        let burst = quota.capacity() as u128;
        // The most that is ever divided by the period: what one of them mints, and what is carried.
        let product = if quota.is_stepped() { amount.max(period) } else { amount * period + period };
        let filling = (burst / amount + 1) * period;
        if product > EXACT as u128 || burst > MAX_BURST as u128 || filling > LONGEST as u128 {
            return Err(beyond);
        }
        Ok(Self {
            amount: amount as u64,
            period: period as u64,
            burst: burst as u64,
            initial: quota.filled_at_start(),
            stepped: quota.is_stepped(),
        })
    }

    /// Tokens per period.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Microseconds, at least 1.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// The most tokens at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// The tokens that a line begins with that Redis does not know (yet, or any more).
    pub fn initial(&self) -> u64 {
        self.initial
    }

    /// Whether tokens arrive only at the ends of periods, counted from the Unix epoch.
    pub fn is_stepped(&self) -> bool {
        self.stepped
    }

    /// How many tokens all nodes together may keep unused: half of the burst. The other half is for claims that pass at the
    /// instant at which they are minted, while all of that is kept.
    pub(crate) fn most_held(&self) -> u64 {
        self.burst / 2
    }

    /// The most that one claim may cost. It is promised in one piece, and if it is then given up nobody else has it: that may
    /// cost all nodes some time, and not years because of one wrong number.
    pub(crate) fn most_claimed(&self) -> u64 {
        (MAX_BURSTS * self.burst).max(self.minted_in(MAX_TIME))
    }

    /// How many tokens are minted in `nanos`, rounded down.
    pub(crate) fn minted_in(&self, nanos: u64) -> u64 {
        let minted = nanos as u128 * self.amount as u128 / (self.period as u128 * 1_000);
        u64::try_from(minted).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { amount, period, burst, initial, stepped } = self;
        write!(f, "{amount} {period} {burst} {initial} {}", u8::from(*stepped))
    }
}
