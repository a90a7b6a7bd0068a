//! The verdict of a dry run on a call, and its encoding in a grant.

use super::{REASONS, Reason};
use crate::error::Bound;
use std::time::Duration;

/// The result that a call would have had if all quotas of its limiter had been enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A grant at once, with so many tokens left.
    AtOnce { remaining: u64 },
    /// A grant after so many nanoseconds; `None` if no clock can tell.
    Waits { nanos: Option<u64> },
    /// A refusal.
    Refused { reason: Reason, by: Bound },
}

/// The bits of a word below the kind of the verdict.
const KIND: u32 = 62;
const VALUE: u64 = (1 << KIND) - 1;
/// A verdict of a grant at once, whose number of tokens is below this bit, and the bit set: a class was charged for the grant.
const CHARGED: u64 = 3 << (KIND - 1);
const BELOW_CHARGED: u64 = (1 << (KIND - 1)) - 1;
/// The upper four bits of a grant with the instant at which it was made, which the other bits hold. No plain number of
/// tokens and no refusal has them.
const INSTANT: u32 = 60;
const PLAIN_AT: u64 = 3;
const AT_ONCE_AT: u64 = 14;
const CHARGED_AT: u64 = 15;
/// Where the reason of a refusal begins. Below it is the number of the bound.
const REASON: u32 = 32;
/// Above the reason: how often a quota in dry run had been enforced again when the call arrived.
const EPOCH: u32 = 40;
const EPOCHS: u64 = (1 << 20) - 1;

/// A grant has one word for the number of tokens that remain, which is at most 2^61. The two bits above it tell which
/// verdict the word holds instead; they are 0 if the limiter has no quota in dry run. A limiter with classes has none, and
/// a bit tells whether the class was charged for the grant. With a calendar or a sliding quota, the word holds the instant
/// of the grant in place of the number.
impl Verdict {
    /// The word of a grant that its class was charged for.
    #[inline]
    pub(crate) fn charged(remaining: u64) -> u64 {
        CHARGED | remaining.min(BELOW_CHARGED)
    }

    /// The word with the instant at which the grant was made, in place of its number of tokens. Instants after 36 years are
    /// not told apart. A verdict that is not a grant at once has no space for one.
    #[inline]
    pub(crate) fn with_instant(word: u64, instant: u64) -> u64 {
        let kind = match word >> (KIND - 1) {
            0 | 1 => PLAIN_AT,
            2 => AT_ONCE_AT,
            3 => CHARGED_AT,
            _ => return word,
        };
        kind << INSTANT | instant.min((1 << INSTANT) - 1)
    }

    /// The instant at which the grant was made, if its word tells. Then the limiter knows how many tokens remain.
    pub(crate) fn instant(word: u64) -> Option<u64> {
        matches!(word >> INSTANT, PLAIN_AT | AT_ONCE_AT | CHARGED_AT).then_some(word & ((1 << INSTANT) - 1))
    }

    /// The word of a grant for which no class is charged any more: the tokens that remained, or the instant.
    pub(crate) fn uncharged(word: u64) -> u64 {
        let number = Self::remaining(word);
        Self::instant(word).map_or(number, |instant| Self::with_instant(number, instant))
    }

    #[inline]
    pub(crate) fn is_charged(word: u64) -> bool {
        word >> (KIND - 1) == CHARGED >> (KIND - 1) || word >> INSTANT == CHARGED_AT
    }

    /// By how many tokens refunds of a whole grant of `cost` lower the tags of its class at most: a sixteenth stays charged,
    /// so that grants of which all are refunded leave the other classes their shares.
    pub(crate) fn refundable(word: u64, cost: u64) -> u64 {
        if Self::is_charged(word) { cost - cost.div_ceil(16) } else { 0 }
    }

    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::AtOnce { remaining } => 1 << KIND | remaining.min(BELOW_CHARGED),
            Self::Waits { nanos } => 2 << KIND | nanos.map_or(VALUE, |nanos| nanos.min(VALUE - 1)),
            Self::Refused { reason, by } => 3 << KIND | (reason as u64) << REASON | by.to_number(),
        }
    }

    #[inline]
    pub(crate) fn of_word(word: u64) -> Option<Self> {
        // The common word is a plain number.
        if word < PLAIN_AT << INSTANT { None } else { Self::of_special_word(word) }
    }

    fn of_special_word(word: u64) -> Option<Self> {
        let value = word & VALUE;
        match word >> KIND {
            _ if Self::is_charged(word) => None,
            _ if word >> INSTANT == AT_ONCE_AT => Some(Self::AtOnce { remaining: 0 }),
            0 => None,
            1 => Some(Self::AtOnce { remaining: Self::remaining(word) }),
            2 => Some(Self::Waits { nanos: (value < VALUE).then_some(value) }),
            _ => Some(Self::Refused {
                reason: REASONS[(value >> REASON) as u8 as usize],
                by: Bound::from_number(value & u64::from(u32::MAX)),
            }),
        }
    }

    /// The wait, if it is known.
    pub(crate) fn wait(self) -> Option<Duration> {
        match self {
            Self::AtOnce { .. } => Some(Duration::ZERO),
            Self::Waits { nanos } => nanos.map(Duration::from_nanos),
            Self::Refused { .. } => None,
        }
    }

    pub(crate) fn refused_by(self) -> Option<Bound> {
        if let Self::Refused { by, .. } = self { Some(by) } else { None }
    }

    /// The number of tokens that remain after a grant with this word; 0 after a wait or a refusal, and with an instant.
    #[inline]
    pub(crate) fn remaining(word: u64) -> u64 {
        match word >> KIND {
            0 if word >> INSTANT == PLAIN_AT => 0,
            0 => word,
            1 => word & BELOW_CHARGED,
            _ => 0,
        }
    }

    /// The word, with the epoch of a refusal.
    pub(crate) fn to_word_in(self, epoch: u64) -> u64 {
        Self::in_epoch(self.to_word(), epoch)
    }

    /// The word of a verdict, with another epoch if it is a refusal.
    pub(crate) fn in_epoch(word: u64, epoch: u64) -> u64 {
        if Self::is_refused(word) { word & !(EPOCHS << EPOCH) | (epoch & EPOCHS) << EPOCH } else { word }
    }

    /// Whether the dry run would have refused the call before the epoch `enforced_in`. `epoch` is the present one.
    pub(crate) fn is_refused_before(word: u64, enforced_in: u64, epoch: u64) -> bool {
        Self::is_refused(word) && epoch - enforced_in < epoch.wrapping_sub(word >> EPOCH) & EPOCHS
    }

    /// Whether the simulation took no tokens for the grant with this word.
    pub(crate) fn is_refused(word: u64) -> bool {
        word >> (KIND - 1) == 6
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
