//! What a limiter notes about a grant: one word, which the grant keeps.

use super::{REASONS, Verdict};
use crate::error::Bound;

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

/// The number of tokens that remain after a grant, which is at most 2^61. The two bits above it tell which verdict of a dry
/// run the word holds instead; they are 0 if the limiter has no quota in dry run. A limiter with classes has none, and a bit
/// tells whether the class was charged for the grant. With a calendar or a sliding quota, the word holds the instant of the
/// grant in place of the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantWord(u64);

impl GrantWord {
    /// Nothing remains, and there is nothing else to tell.
    pub(crate) const NOTHING: Self = Self(0);

    /// The word of a grant after which so many tokens remain.
    #[inline(always)]
    pub(crate) fn plain(remaining: u64) -> Self {
        Self(remaining)
    }

    /// The word of such a grant that its class was charged for.
    #[inline]
    pub(crate) fn charged(remaining: u64) -> Self {
        Self(CHARGED | remaining.min(BELOW_CHARGED))
    }

    /// The word of a grant with a verdict. A refusal notes the epoch.
    pub(crate) fn of_verdict(verdict: Verdict, epoch: u64) -> Self {
        Self(match verdict {
            Verdict::AtOnce { remaining } => 1 << KIND | remaining.min(BELOW_CHARGED),
            Verdict::Waits { nanos } => 2 << KIND | nanos.map_or(VALUE, |nanos| nanos.min(VALUE - 1)),
            Verdict::Refused { reason, by } => {
                3 << KIND | (epoch & EPOCHS) << EPOCH | (reason as u64) << REASON | by.to_number()
            }
        })
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[cfg(feature = "keyed")]
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// The word with the instant at which the grant was made, in place of its number of tokens. Instants after 36 years are
    /// not told apart. A verdict that is not a grant at once has no space for one.
    #[inline]
    pub(crate) fn with_instant(self, instant: u64) -> Self {
        let kind = match self.0 >> (KIND - 1) {
            0 | 1 => PLAIN_AT,
            2 => AT_ONCE_AT,
            3 => CHARGED_AT,
            _ => return self,
        };
        Self(kind << INSTANT | instant.min((1 << INSTANT) - 1))
    }

    /// The instant at which the grant was made, if the word tells. Then the limiter knows how many tokens remain.
    pub(crate) fn instant(self) -> Option<u64> {
        let has_instant = matches!(self.0 >> INSTANT, PLAIN_AT | AT_ONCE_AT | CHARGED_AT);
        has_instant.then_some(self.0 & ((1 << INSTANT) - 1))
    }

    /// The word of a grant for which no class is charged any more: the tokens that remained, or the instant.
    pub(crate) fn uncharged(self) -> Self {
        let number = Self::plain(self.remaining());
        self.instant().map_or(number, |instant| number.with_instant(instant))
    }

    #[inline]
    pub(crate) fn is_charged(self) -> bool {
        self.0 >> (KIND - 1) == CHARGED >> (KIND - 1) || self.0 >> INSTANT == CHARGED_AT
    }

    /// By how many tokens refunds of a whole grant of `cost` lower the tags of its class at most: a sixteenth stays charged,
    /// so that grants of which all are refunded leave the other classes their shares.
    pub(crate) fn refundable(self, cost: u64) -> u64 {
        if self.is_charged() { cost - cost.div_ceil(16) } else { 0 }
    }

    /// The verdict of the dry run on the claim; `None` if no quota was in dry run.
    #[inline]
    pub(crate) fn verdict(self) -> Option<Verdict> {
        // The common word is a plain number.
        if self.0 < PLAIN_AT << INSTANT { None } else { self.special_verdict() }
    }

    fn special_verdict(self) -> Option<Verdict> {
        let value = self.0 & VALUE;
        match self.0 >> KIND {
            _ if self.is_charged() => None,
            _ if self.0 >> INSTANT == AT_ONCE_AT => Some(Verdict::AtOnce { remaining: 0 }),
            0 => None,
            1 => Some(Verdict::AtOnce { remaining: self.remaining() }),
            2 => Some(Verdict::Waits { nanos: (value < VALUE).then_some(value) }),
            _ => Some(Verdict::Refused {
                reason: REASONS[(value >> REASON) as u8 as usize],
                by: Bound::from_number(value & u64::from(u32::MAX)),
            }),
        }
    }

    /// The number of tokens that remained; 0 after a wait or a refusal, and with an instant.
    #[inline]
    pub(crate) fn remaining(self) -> u64 {
        match self.0 >> KIND {
            0 if self.0 >> INSTANT == PLAIN_AT => 0,
            0 => self.0,
            1 => self.0 & BELOW_CHARGED,
            _ => 0,
        }
    }

    /// Whether the simulation took no tokens for the grant.
    pub(crate) fn is_refused(self) -> bool {
        self.0 >> (KIND - 1) == 6
    }

    /// The word of a refusal, in another epoch.
    pub(crate) fn refused_in(self, epoch: u64) -> Self {
        Self(self.0 & !(EPOCHS << EPOCH) | (epoch & EPOCHS) << EPOCH)
    }

    /// Whether the dry run would have refused the call before the epoch `enforced_in`. `epoch` is the present one.
    pub(crate) fn is_refused_before(self, enforced_in: u64, epoch: u64) -> bool {
        self.is_refused() && epoch - enforced_in < epoch.wrapping_sub(self.0 >> EPOCH) & EPOCHS
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
