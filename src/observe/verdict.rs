//! The verdict of a dry run on a call, and its encoding in a grant.

use super::{REASONS, Reason};
use crate::core::calendar::Stamp;
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
const BELOW_CHARGED: u64 = (1 << (KIND - 2)) - 1;
/// A plain number of tokens with a stamp. No plain number without one is as large.
const STAMPED_NUMBER: u64 = 1 << (KIND - 1);
/// A verdict of a grant at once, a grant charged to a class, or a plain number: the bit below tells that there is a stamp. Its
/// bits begin here, above those of the number of tokens.
const STAMPED: u64 = 1 << (KIND - 2);
const STAMP: u32 = KIND - 2 - Stamp::BITS;
/// The word of a grant with the instant at which it was made: these bits, and below them the instant. No refusal has them.
const AT: u64 = 7 << (KIND - 1);
/// Where the reason of a refusal begins. Below it is the number of the bound.
const REASON: u32 = 32;

/// A grant has one word for the number of tokens that remain, which is below 2^62. The two bits above it tell which
/// verdict the word holds instead; they are 0 if the limiter has no quota in dry run. A limiter with classes has none, and
/// a bit tells whether the class was charged for the grant. Grants of a calendar quota have a stamp above the number, and those
/// of a sliding quota a stamp in place of the number.
impl Verdict {
    /// The word of a grant that its class was charged for.
    #[inline]
    pub(crate) fn charged(remaining: u64) -> u64 {
        CHARGED | remaining.min(BELOW_CHARGED)
    }

    /// The word with a stamp, which tells in which period of a calendar quota the grant was made. It has space for fewer
    /// tokens: at most 2^36 - 1 remain. A verdict that is not a grant at once has no space for a stamp. A stamp that is an
    /// instant takes the place of the number.
    pub(crate) fn stamped(word: u64, stamp: Stamp) -> u64 {
        if let Some(instant) = stamp.instant() {
            return AT | instant;
        }
        let kind = match word >> (KIND - 1) {
            0 | 1 => STAMPED_NUMBER,
            kind @ (2 | 3) => kind << (KIND - 1),
            _ => return word,
        };
        kind | STAMPED | stamp.0 << STAMP | Self::remaining(word).min((1 << STAMP) - 1)
    }

    /// The word of a number of tokens with a stamp.
    #[inline]
    pub(crate) fn number_with(remaining: u64, stamp: Stamp) -> u64 {
        STAMPED_NUMBER | STAMPED | stamp.0 << STAMP | remaining.min((1 << STAMP) - 1)
    }

    #[inline]
    fn is_stamped(word: u64) -> bool {
        word & STAMPED != 0 && (1..4).contains(&(word >> (KIND - 1)))
    }

    pub(crate) fn stamp(word: u64) -> Stamp {
        if Self::has_instant(word) {
            return Stamp::of_instant(word & !AT);
        }
        Stamp(if Self::is_stamped(word) { word >> STAMP & ((1 << Stamp::BITS) - 1) } else { 0 })
    }

    /// Whether the stamp is an instant, and the word has no number of tokens.
    pub(crate) fn has_instant(word: u64) -> bool {
        word & AT == AT
    }

    /// The word of a grant for which no class is charged any more: the tokens that remained, and the stamp.
    pub(crate) fn uncharged(word: u64) -> u64 {
        let stamp = Self::stamp(word);
        if stamp == Stamp::default() { Self::remaining(word) } else { Self::stamped(Self::remaining(word), stamp) }
    }

    #[inline]
    pub(crate) fn is_charged(word: u64) -> bool {
        word >> (KIND - 1) == CHARGED >> (KIND - 1)
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
        // The common word is a plain number without a stamp.
        if word < STAMPED_NUMBER { None } else { Self::of_special_word(word) }
    }

    fn of_special_word(word: u64) -> Option<Self> {
        let value = word & VALUE;
        match word >> KIND {
            _ if Self::is_charged(word) || Self::has_instant(word) => None,
            0 => None,
            1 => Some(Self::AtOnce { remaining: Self::remaining(word) }),
            2 => Some(Self::Waits { nanos: (value < VALUE).then_some(value) }),
            _ => Some(Self::Refused {
                reason: REASONS[(value >> REASON) as usize],
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

    /// The number of tokens that remain after a grant with this word; 0 after a wait or a refusal.
    #[inline]
    pub(crate) fn remaining(word: u64) -> u64 {
        match word >> KIND {
            0 | 1 if Self::is_stamped(word) => word & ((1 << STAMP) - 1),
            0 => word,
            1 => word & BELOW_CHARGED,
            _ => 0,
        }
    }

    /// Whether the simulation took no tokens for the grant with this word.
    pub(crate) fn is_refused(word: u64) -> bool {
        word >> KIND == 3 && !Self::has_instant(word)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_every_verdict_and_a_plain_number() {
        let at = |instant| Verdict::stamped(5, Stamp::of_instant(instant));
        let bounds = [Bound::Queue, Bound::Pause, Bound::Quota(0), Bound::Quota(70_000)];
        let refused = REASONS.iter().flat_map(|reason| bounds.map(|by| Verdict::Refused { reason: *reason, by }));
        let granted = [0, 1, BELOW_CHARGED].map(|remaining| Verdict::AtOnce { remaining });
        let waits = [None, Some(0), Some(7), Some(VALUE - 1)].map(|nanos| Verdict::Waits { nanos });
        for verdict in refused.chain(granted).chain(waits) {
            assert_eq!(Verdict::of_word(verdict.to_word()), Some(verdict));
            assert_eq!(Verdict::is_refused(verdict.to_word()), matches!(verdict, Verdict::Refused { .. }));
        }
        for word in [1 << 61, Verdict::charged(0), Verdict::charged(1 << 61), at(0), at(u64::MAX)] {
            assert_eq!(Verdict::of_word(word), None);
            assert!(!Verdict::is_refused(word));
        }
        assert_eq!([0, 7].map(|instant| Verdict::stamp(at(instant))), [0, 7].map(Stamp::of_instant));
        assert!([1 << 61, 3 << 61, 5 << 61, 6 << 61].iter().all(|word| !Verdict::has_instant(*word)));
        assert_eq!([0, 7].map(|remaining| Verdict::remaining(Verdict::charged(remaining))), [0, 7]);
        assert_eq!([1, 16, 17].map(|cost| Verdict::refundable(Verdict::charged(5), cost)), [0, 15, 15]);
        assert_eq!(Verdict::refundable(5, 16), 0);
        let at_once = Verdict::AtOnce { remaining: 7 }.to_word();
        for word in [7, at_once, Verdict::charged(7)] {
            let stamped = [1, (1 << Stamp::BITS) - 1].map(|stamp| Verdict::stamped(word, Stamp(stamp)));
            assert_eq!(stamped.map(Verdict::stamp), [Stamp(1), Stamp((1 << Stamp::BITS) - 1)]);
            for stamped in stamped {
                assert_eq!((Verdict::remaining(stamped), Verdict::of_word(stamped)), (7, Verdict::of_word(word)));
                assert_eq!(Verdict::is_charged(stamped), Verdict::is_charged(word));
                assert_eq!(Verdict::stamp(Verdict::uncharged(stamped)), Verdict::stamp(stamped));
            }
            assert_eq!(Verdict::stamp(word), Stamp::default());
        }
        let much = Verdict::stamped(1 << 61, Stamp(1));
        assert_eq!((Verdict::remaining(much), Verdict::stamp(much)), ((1 << 36) - 1, Stamp(1)));
        assert_eq!(Verdict::remaining(1 << 61), 1 << 61);
        assert_eq!(Verdict::remaining(Verdict::AtOnce { remaining: 5 }.to_word()), 5);
        assert_eq!(Verdict::remaining(Verdict::Waits { nanos: Some(5) }.to_word()), 0);
    }
}
