//! What is passed between the tree, its rules and its callers: the numbers of classes, what could be served next, and what is
//! in service.

use super::floor::FloorTime;
use super::tournament::Entry;
use std::num::NonZeroU64;

/// The number of a class in its tree.
pub(crate) type ClassId = u32;

/// The class of the limiter itself. It has no weight, floor or ceiling, and is never picked for itself.
pub(crate) const ROOT: ClassId = 0;

/// Not a class: the end of a link in the tree, and the number of a class that is not added yet.
pub(crate) const NO_CLASS: ClassId = ClassId::MAX;

/// What a class could be served next.
///
/// Small, because each class has one, and reads and writes it whenever it is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Before this instant if the floor of the leaf is due, else [`NO_DEADLINE`].
    deadline: FloorTime,
    pub(super) tokens: NonZeroU64,
    pub(super) leaf: ClassId,
}

const NO_DEADLINE: FloorTime = FloorTime::MAX;

impl Offer {
    /// An installment of a leaf that is served by its weight.
    #[inline]
    pub(super) fn by_weight(leaf: ClassId, tokens: NonZeroU64) -> Self {
        Self { deadline: NO_DEADLINE, tokens, leaf }
    }

    /// An installment of a leaf whose floor is due.
    pub(super) fn by_floor(leaf: ClassId, tokens: NonZeroU64, deadline: FloorTime) -> Self {
        Self { deadline: deadline.min(NO_DEADLINE - 1), tokens, leaf }
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<FloorTime> {
        (self.deadline != NO_DEADLINE).then_some(self.deadline)
    }

    #[inline]
    pub(super) fn is_by_floor(&self) -> bool {
        self.deadline != NO_DEADLINE
    }
}

/// A class with a leaf below it that has a floor which is due: its deadline, how long it has been backlogged, its number.
pub(super) type Deadline = (FloorTime, u64, ClassId);

impl Entry for Deadline {
    const EMPTY: Self = (FloorTime::MAX, u64::MAX, ClassId::MAX);

    #[inline]
    fn owner(&self) -> u32 {
        self.2
    }

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        self < other
    }
}

/// The leaf in service, and the installment of its front claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) leaf: ClassId,
    pub(crate) tokens: u64,
    /// True if the floor of the leaf was due, false if its weight decided.
    pub(crate) by_floor: bool,
}

/// Tokens that are still to be served before the claim in question, and for it.
#[derive(Clone, Copy)]
pub(crate) struct Backlog {
    /// In its own leaf.
    pub(crate) own: u64,
    /// In all leaves.
    pub(crate) all: u64,
}
