//! What is passed between the tree, its rules and its callers: the numbers of classes, what could be served next, and what is
//! in service.

use super::floor::FloorTime;

/// The number of a class in its tree.
pub(crate) type ClassId = u32;

/// The class of the limiter itself. It has no weight, floor or ceiling, and is never picked for itself.
pub(crate) const ROOT: ClassId = 0;

/// Stands for a class that is about to be added, and for no class in the links of the tree.
pub(crate) const NEW: ClassId = ClassId::MAX;

/// What a class could be served next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) leaf: ClassId,
    pub(super) tokens: u64,
    /// Present if the floor of the leaf is due.
    pub(super) deadline: Option<FloorTime>,
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
