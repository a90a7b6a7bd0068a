//! Start tags and virtual time: how far a class has come in tokens per weight.
//!
//! Tags are integers. One token of a class of weight 1 is [`SCALE`] units. The scale is divisible by every weight up
//! to 40 and by 1000, so the tags of such weights are exact fractions. For other weights the remainder of a unit is
//! carried from charge to charge: over any interval in which a class is backlogged, its tag is less than one unit too
//! low, which is less than a millionth of a token of the largest weight.

use super::offer::ClassId;
use super::tournament::Entry;

/// The largest weight of a class.
pub(crate) const MAX_WEIGHT: u64 = 1_000_000;

/// How far one token moves the tag of a class of weight 1: the least common multiple of the numbers up to 40, times 25.
pub(super) const SCALE: u64 = 5_342_931_457_063_200 * 25;

/// A tag. One charge is at most 2^106 units.
pub(super) type Tag = u128;

/// Beyond this the tags of siblings are set back, long before they overflow.
pub(super) const MAX_TAG: Tag = 1 << 125;

/// A weight, and how far one token moves the tag of a class that has it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    weight: u32,
    unit: u64,
    /// What the division of the scale by the weight leaves.
    remainder: u32,
}

impl Weight {
    /// `weight` is at least 1 and at most [`MAX_WEIGHT`].
    pub(super) fn new(weight: u64) -> Self {
        Self { weight: weight as u32, unit: SCALE / weight, remainder: (SCALE % weight) as u32 }
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight.into()
    }

    /// How far one token moves a tag, rounded down.
    pub(super) fn unit(&self) -> u64 {
        self.unit
    }

    /// Whether the scale is divisible by the weight.
    pub(super) fn is_exact(&self) -> bool {
        self.remainder == 0
    }

    /// How far `tokens` move a tag, rounded down.
    pub(super) fn span(&self, tokens: u64) -> Tag {
        self.span_and_carried(tokens, 0).0
    }

    #[inline]
    fn span_and_carried(&self, tokens: u64, carried: u32) -> (Tag, u32) {
        let span = u128::from(self.unit) * u128::from(tokens);
        if self.remainder == 0 {
            return (span, 0);
        }
        let parts = u128::from(self.remainder) * u128::from(tokens) + u128::from(carried);
        let weight = u128::from(self.weight);
        (span + parts / weight, (parts % weight) as u32)
    }
}

/// The start tag of a class. Packed, so that a node of the tree fits into one cache line: a comparison reads a copy of the
/// field, `{ start.tag }`, because a reference to it would not be aligned.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(4))]
pub(super) struct StartTag {
    pub(super) tag: Tag,
    /// The remainder of a unit, in parts of the weight.
    carried: u32,
}

impl StartTag {
    pub(super) fn at(tag: Tag) -> Self {
        Self { tag, carried: 0 }
    }

    /// Moves the tag up to `tag`: no credit for the time in which the class was idle or held back.
    pub(super) fn raise(&mut self, tag: Tag) {
        if tag > self.tag {
            *self = Self::at(tag);
        }
    }

    pub(super) fn charge(&mut self, tokens: u64, weight: &Weight) {
        let (span, carried) = weight.span_and_carried(tokens, self.carried);
        self.tag += span;
        self.carried = carried;
    }

    /// Undoes the charge of `tokens`, but does not move the tag below `least`, or at all if it is there.
    pub(super) fn refund(&mut self, tokens: u64, weight: &Weight, least: Tag) {
        if self.tag <= least {
            return;
        }
        let (span, parts) = weight.span_and_carried(tokens, 0);
        let (tag, carried) = match self.carried.checked_sub(parts) {
            Some(carried) => (self.tag.checked_sub(span), carried),
            None => (self.tag.checked_sub(span + 1), self.carried + weight.weight - parts),
        };
        *self = tag.filter(|tag| *tag >= least).map_or(Self::at(least), |tag| Self { tag, carried });
    }

    /// The weight has changed, and the parts of a unit with it.
    pub(super) fn drop_carried(&mut self) {
        self.carried = 0;
    }
}

/// The order in which siblings are picked by weight: by start tag, then by finish tag, then by how long they have been
/// backlogged. No two of them have become backlogged at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) start: Tag,
    /// From the start tag to the finish tag.
    pub(super) span: Tag,
    pub(super) since: u64,
    pub(super) class: ClassId,
}

impl Entry for Turn {
    const EMPTY: Self = Self { start: Tag::MAX >> 1, span: Tag::MAX >> 1, since: u64::MAX, class: ClassId::MAX };

    #[inline]
    fn owner(&self) -> u32 {
        self.class
    }

    // Each grant compares many turns, and which one is first cannot be predicted: no branch decides here. Tags and spans
    // are below 2^127, so that the sign of a difference tells which one is smaller; among equals, the difference of what
    // comes next is borrowed from it.
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        let is_older = i128::from(self.since < other.since);
        let span = (self.span as i128).wrapping_sub(other.span as i128).wrapping_sub(is_older);
        let start = (self.start as i128).wrapping_sub(other.start as i128).wrapping_add(span >> 127);
        start < 0
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
