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
/// Where the reason of a refusal begins. Below it is the number of the bound.
const REASON: u32 = 32;

/// A grant has one word for the number of tokens that remain, which is below 2^62. The two bits above it tell which
/// verdict the word holds instead; they are 0 if the limiter has no quota in dry run.
impl Verdict {
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::AtOnce { remaining } => 1 << KIND | remaining.min(VALUE),
            Self::Waits { nanos } => 2 << KIND | nanos.map_or(VALUE, |nanos| nanos.min(VALUE - 1)),
            Self::Refused { reason, by } => 3 << KIND | (reason as u64) << REASON | by.to_number(),
        }
    }

    pub(crate) fn of_word(word: u64) -> Option<Self> {
        let value = word & VALUE;
        match word >> KIND {
            0 => None,
            1 => Some(Self::AtOnce { remaining: value }),
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
        if word >> KIND <= 1 { word & VALUE } else { 0 }
    }

    /// Whether the simulation took no tokens for the grant with this word.
    pub(crate) fn is_refused(word: u64) -> bool {
        word >> KIND == 3
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_every_verdict_and_a_plain_number() {
        let bounds = [Bound::Queue, Bound::Pause, Bound::Quota(0), Bound::Quota(70_000)];
        let refused = REASONS.iter().flat_map(|reason| bounds.map(|by| Verdict::Refused { reason: *reason, by }));
        let granted = [0, 1, 1 << 61].map(|remaining| Verdict::AtOnce { remaining });
        let waits = [None, Some(0), Some(7), Some(VALUE - 1)].map(|nanos| Verdict::Waits { nanos });
        for verdict in refused.chain(granted).chain(waits) {
            assert_eq!(Verdict::of_word(verdict.to_word()), Some(verdict));
            assert_eq!(Verdict::is_refused(verdict.to_word()), matches!(verdict, Verdict::Refused { .. }));
        }
        assert_eq!(Verdict::of_word(1 << 61), None);
        assert_eq!(Verdict::remaining(1 << 61), 1 << 61);
        assert_eq!(Verdict::remaining(Verdict::AtOnce { remaining: 5 }.to_word()), 5);
        assert_eq!(Verdict::remaining(Verdict::Waits { nanos: Some(5) }.to_word()), 0);
    }
}
