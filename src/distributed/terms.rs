//! A quota in the integers of the script.

use crate::core::schedule::gcd;
use crate::error::ConfigError;
use crate::quota::Quota;
use std::fmt;

/// Doubles, the only numbers in Redis' Lua, are exact up to here.
const EXACT: u64 = 1 << 53;
/// The largest burst: levels, debts and their sums stay exact.
const MAX_BURST: u64 = 1 << 50;
/// The longest time in which a bucket may fill up, in microseconds: 142 years.
pub(super) const LONGEST: u64 = 1 << 52;

/// The largest debt of a store before it refuses to promise more. A level is therefore above -(2^52 + 2^49), including
/// the allowance on top. Minted amounts are exact below 2^53; a larger amount exceeds any burst, exact or not.
pub(super) const MAX_DEBT: u64 = 1 << 52;

/// One claim may cost at most this many bursts, or the tokens minted in `MAX_TIME` nanoseconds if those are more.
const MAX_BURSTS: u64 = 16;
const MAX_TIME: u64 = 60_000_000_000;

/// A quota as Redis keeps it: `amount` tokens per `period` microseconds, in lowest terms. Nothing is rounded.
///
/// Its text is stored in the key in Redis. [`QuotaTerms::of`] is the only constructor, so every value has passed its
/// checks: no period is 0, and all counts stay exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaTerms {
    pub(super) amount: u64,
    pub(super) period: u64,
    pub(super) burst: u64,
    pub(super) initial: u64,
    pub(super) stepped: bool,
}

impl QuotaTerms {
    /// Converts the quota with this `index` of its limiter.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] if the quota is invalid, is manual, or exceeds the range that can be counted exactly.
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
        // The largest dividend of a division by the period: the tokens minted in one period plus the carried part.
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

    /// The period in microseconds, at least 1.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// The largest number of tokens in the bucket.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// The tokens in a new bucket: before Redis knows the key, or after it has forgotten it.
    pub fn initial(&self) -> u64 {
        self.initial
    }

    /// Whether tokens arrive only at the ends of periods, counted from the Unix epoch.
    pub fn is_stepped(&self) -> bool {
        self.stepped
    }

    /// How many tokens all nodes together may keep unused: half of the burst. The other half is for claims that pass at
    /// the instant at which their tokens are minted, while all of the first half is kept.
    pub(crate) fn most_held(&self) -> u64 {
        self.burst / 2
    }

    /// The largest cost of one claim. Its tokens are promised in one piece, and if the claim is then cancelled, no
    /// other node gets them. The bound keeps that loss small: one wrong cost must not block all nodes for years.
    pub(crate) fn most_claimed(&self) -> u64 {
        (MAX_BURSTS * self.burst).max(self.minted_in(MAX_TIME))
    }

    /// How many tokens are minted in `nanos` nanoseconds, rounded down.
    pub(crate) fn minted_in(&self, nanos: u64) -> u64 {
        let minted = nanos as u128 * self.amount as u128 / (self.period as u128 * 1_000);
        u64::try_from(minted).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for QuotaTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { amount, period, burst, initial, stepped } = self;
        write!(f, "{amount} {period} {burst} {initial} {}", u8::from(*stepped))
    }
}
