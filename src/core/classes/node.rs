//! A class in the tree.

use super::ceiling::Ceiling;
use super::floor::{Floor, FloorTime, RateSum};
use super::offer::{ClassId, Deadline, NO_CLASS, Offer};
use super::tags::{StartTag, Tag, Turn, Weight};
use super::tournament::{Entry, NOWHERE, Tournament};
use std::num::NonZeroU64;

/// What each grant of a class reads and writes: one cache line, because with thousands of classes the node of a class is
/// usually in no cache. The rest is in [`RareNode`].
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    /// How far one token moves the tag, rounded down.
    pub(super) unit: u64,
    /// No installment is larger: the smallest burst of the quotas and of the ceilings on its path.
    pub(super) most: u64,
    /// Orders classes of equal tags by how long they have been backlogged.
    pub(super) since: u64,
    /// A leaf: what the front claim of its queue still lacks. `None` if no claim waits.
    pub(super) front: Option<NonZeroU64>,
    /// In the virtual time of the parent.
    pub(super) start: StartTag,
    pub(super) parent: ClassId,
    /// Among the children that may be served by weight: its slot in the parent's `by_tag`.
    pub(super) by_tag_slot: u32,
    /// Whether `unit` is not rounded.
    pub(super) is_exact: bool,
    /// It has neither a floor nor a ceiling.
    pub(super) is_bare: bool,
    /// The class of a key: see [`Tree::enter`](super::tree::Tree::enter).
    pub(super) is_key: bool,
    /// A leaf: the front claim is served in parts, or waits for a debt to be paid. What is known about it is in
    /// [`RareNode::leaf`].
    pub(super) is_divided: bool,
}

const _: () = assert!(size_of::<Node>() == 64);

/// What a grant of a leaf without floor and ceiling does not need of its class, but of the classes around it.
///
/// Fields that only leaves use are empty in inner classes, and the other way round.
#[derive(Clone, Debug, Default)]
pub(super) struct RareNode {
    pub(super) weight: Weight,
    pub(super) ceiling: Option<Box<Ceiling>>,
    /// Only leaves have one.
    pub(super) floor: Option<Box<Floor>>,
    /// What the turns of a leaf are for, if it is [divided](Node::is_divided).
    pub(super) leaf: Leaf,
    /// Whether the leaf is among the [`debtors`](super::scheduler::Scheduler::debtors).
    pub(super) is_debtor: bool,
    /// What could be served next below this class; `None` if nothing waits or a ceiling holds it back. Never read for
    /// the root, nor for a leaf without floor and ceiling: see [`Tree::offer_of`](super::tree::Tree::offer_of).
    pub(super) offer: Option<Offer>,
    pub(super) slots: RareSlots,

    /// How many children are backlogged, and the sum of their weights.
    pub(super) backlogged: u32,
    pub(super) weights: u64,
    /// The children that may be served by weight, and those with a floor that is due.
    pub(super) by_tag: Tournament<Turn>,
    pub(super) by_deadline: Tournament<Deadline>,
    /// An inner class: its virtual time, and the largest tag that it has given to a child.
    pub(super) virtual_time: Tag,
    pub(super) largest: Tag,
    pub(super) children: u32,
    /// The first child; in each child, its neighbours among the children.
    pub(super) first_child: ClassId,
    pub(super) next: ClassId,
    pub(super) previous: ClassId,

    /// The class of a key that was not served since it was idle: the tag it had then, which it has again if it leaves.
    pub(super) idle_start: Option<StartTag>,
    /// The ceiling that was taken off, or that a former class of the same name had: it goes on if a ceiling is set again.
    pub(super) former_ceiling: Option<Box<Ceiling>>,
    /// The instant of the next installment of the floor that was taken off, or that a former class of the same name had.
    pub(super) former_next: FloorTime,
    /// The sum of the floors of the class and of all classes below it.
    pub(super) floors: RateSum,
}

/// The slots of a class in its parent's `by_deadline`, and in the tree's `rechecks`. A class that has neither
/// a floor nor a ceiling, and none in it, is in none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RareSlots {
    pub(super) by_deadline: u32,
    pub(super) recheck: u32,
}

impl RareSlots {
    pub(super) const NONE: Self = Self { by_deadline: NOWHERE, recheck: NOWHERE };
}

/// What the turns of a leaf are for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaf {
    /// What the front claim of its queue costs; 0 if no claim waits.
    pub(super) cost: u64,
    /// What is set aside for the front claim.
    pub(super) paid: u64,
    /// A debt of the class that is paid before its front claim.
    pub(super) owed: u64,
}

impl Leaf {
    /// What its next turns are for: the debt, or what the front claim still lacks; 0 if no claim waits.
    #[inline]
    pub(super) fn front(&self) -> u64 {
        if self.owed > 0 { self.owed } else { self.cost - self.paid }
    }

    /// Whether more is known than what the front claim lacks.
    #[inline]
    pub(super) fn is_divided(&self) -> bool {
        self.owed > 0 || self.paid > 0
    }
}

impl Node {
    pub(super) fn new(parent: ClassId, weight: Weight, tag: Tag) -> Self {
        Self {
            unit: weight.unit(),
            most: u64::MAX,
            since: 0,
            front: None,
            start: StartTag::at(tag),
            parent,
            by_tag_slot: NOWHERE,
            is_exact: weight.is_exact(),
            is_bare: true,
            is_key: false,
            is_divided: false,
        }
    }

    /// What the front claim of a leaf lacks; 0 if no claim waits.
    #[inline]
    pub(super) fn lacks(&self) -> u64 {
        self.front.map_or(0, NonZeroU64::get)
    }

    /// Whether a charge changes nothing but the tag, by an exact span.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_bare & self.is_exact & !self.is_key
    }

    /// How far `tokens` move the tag, if `unit` is not rounded.
    #[inline]
    pub(super) fn exact_span(&self, tokens: u64) -> Tag {
        Tag::from(self.unit) * Tag::from(tokens)
    }

    /// What is served at a time of a front claim that lacks `front` tokens: a burst at most, which is at least 1.
    #[inline]
    pub(super) fn installment(&self, front: NonZeroU64) -> NonZeroU64 {
        NonZeroU64::new(self.most).map_or(front, |most| front.min(most))
    }
}

impl RareNode {
    pub(super) fn new(weight: Weight) -> Self {
        let [first_child, next, previous] = [NO_CLASS; 3];
        Self { weight, slots: RareSlots::NONE, first_child, next, previous, ..Self::default() }
    }

    /// The child that is served next below this class: one with a floor that is due, else by weight.
    #[inline]
    pub(super) fn first_child_in_turn(&self) -> Option<ClassId> {
        let by_floor = self.by_deadline.first().map(Entry::owner);
        if by_floor.is_some() { by_floor } else { self.by_tag.first().map(Entry::owner) }
    }
}
