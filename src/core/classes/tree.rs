//! The tree of classes and the scheduler on it: hierarchical start-time fair queueing with floors and ceilings.
//!
//! Pure: no queues, no lock, no clock. The owner keeps the queue of each leaf and tells the tree what the front claim
//! of each queue still lacks ([`Tree::set_front`]). The tree [picks](Tree::pick) the leaf to be served next and the
//! installment, and the owner reports each installment that was served ([`Tree::charge`]). The owner's time never moves
//! back.
//!
//! This file holds the shape of the tree and its configuration; `node.rs` what is known of each class, `limits.rs` what
//! the quotas mean for them, `installments.rs` how much of a claim and of a floor is served at a time, `conflict.rs`
//! whether the floors can be kept, `retained.rs` what removed classes leave, and `pick.rs` and `charge.rs` the rules of
//! service.
//!
//! The scheduler is SFQ (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996), hierarchical as in the paper, with tags
//! given when a claim is served and not when it arrives, and with reservations and limits beside the weights as in
//! mClock (Gulati, Merchant, Varman, 2010).

use super::ceiling::Ceiling;
use super::floor::{Floor, Rate};
use super::limits::Limits;
use super::node::{Node, RareNode, RareSlots};
use super::offer::{ClassId, NO_CLASS, ROOT};
use super::parts::Parts;
use super::tags::{StartTag, Weight};
use super::tournament::{NOWHERE, Tournament};
use crate::Quota;
use crate::core::steps;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(super) nodes: Parts<Node>,
    /// The rest of each node.
    pub(super) rare: Parts<RareNode>,
    /// Numbers of removed classes, to be used again.
    free: Vec<ClassId>,
    pub(super) limits: Limits,
    /// The classes whose offer changes with time alone, by the instant: their ceiling lets them go, or their floor falls due.
    pub(super) rechecks: Tournament<(u64, ClassId)>,
    /// Counts the instants at which classes became backlogged.
    pub(super) count: u64,
    /// The sum of the rates of all floors, as configured. Sums of odd rates are rounded.
    pub(super) floors: Rate,
    /// The classes with floors below their ceilings, by the bursts of these ceilings.
    pub(super) ceilings: BTreeSet<(u64, ClassId)>,
    /// Classes from this number on have not got the present limits yet: see
    /// [`limit_more_classes`](Self::limit_more_classes). [`NO_CLASS`] if all have.
    pub(super) stale_from: ClassId,
}

impl Tree {
    /// Creates a tree with the root alone, which is a leaf as long as it has no children.
    pub(crate) fn new(limits: Limits) -> Self {
        let mut tree = Self {
            nodes: Parts::new(Node::new(ROOT, Weight::new(1), 0)),
            rare: Parts::new(RareNode::new(Weight::new(1))),
            free: Vec::new(),
            limits,
            rechecks: Tournament::default(),
            count: 0,
            floors: Rate::ZERO,
            ceilings: BTreeSet::new(),
            stale_from: NO_CLASS,
        };
        tree.nodes[ROOT as usize].most = limits.burst;
        tree
    }

    pub(super) fn node(&self, id: ClassId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: ClassId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    pub(super) fn rare(&self, id: ClassId) -> &RareNode {
        &self.rare[id as usize]
    }

    pub(super) fn rare_mut(&mut self, id: ClassId) -> &mut RareNode {
        &mut self.rare[id as usize]
    }

    /// The class and its ancestors, without the root.
    pub(super) fn path(&self, id: ClassId) -> impl Iterator<Item = ClassId> {
        std::iter::successors(Some(id), |id| Some(self.node(*id).parent)).take_while(|id| *id != ROOT)
    }

    /// The ceilings above claims of a class: its own, and those of the classes around it.
    pub(super) fn ceilings(&self, id: ClassId) -> impl Iterator<Item = (ClassId, &Ceiling)> {
        self.path(id).filter_map(|id| Some((id, &**self.rare(id).ceiling.as_ref()?)))
    }

    /// One more than the largest number of a class.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn parent(&self, id: ClassId) -> ClassId {
        self.node(id).parent
    }

    pub(crate) fn depth(&self, id: ClassId) -> usize {
        self.path(id).count()
    }

    pub(crate) fn children(&self, id: ClassId) -> u32 {
        self.rare(id).children
    }

    /// The class that follows `id` among `root` and all classes below it; each comes before those in it.
    pub(super) fn after(&self, root: ClassId, id: ClassId) -> Option<ClassId> {
        steps::count();
        let mut at = id;
        let mut next = self.rare(at).first_child;
        while next == NO_CLASS && at != root {
            next = self.rare(at).next;
            at = self.node(at).parent;
        }
        (next != NO_CLASS).then_some(next)
    }

    pub(crate) fn is_leaf(&self, id: ClassId) -> bool {
        self.rare(id).children == 0
    }

    /// The largest installment of a leaf.
    pub(crate) fn most(&self, leaf: ClassId) -> u64 {
        self.node(leaf).most
    }

    /// The instant at which all ceilings above claims in a leaf have `cost` tokens, which are at most their bursts.
    pub(crate) fn ceilings_have(&self, leaf: ClassId, cost: u64) -> u64 {
        self.ceilings(leaf).map(|(_, ceiling)| ceiling.has(cost)).max().unwrap_or(0)
    }

    /// Of the classes with a ceiling above claims in a leaf, the one that has `cost` tokens last; `None` without a ceiling.
    pub(crate) fn slowest_ceiling(&self, leaf: ClassId, cost: u64) -> Option<ClassId> {
        self.ceilings(leaf).map(|(id, ceiling)| (ceiling.has(cost), id)).max().map(|(_, id)| id)
    }

    /// Of the classes with a ceiling above claims in a leaf, the one with the smallest burst; `None` without a ceiling.
    pub(crate) fn smallest_ceiling(&self, leaf: ClassId) -> Option<ClassId> {
        self.ceilings(leaf).map(|(id, ceiling)| (ceiling.burst(), id)).min().map(|(_, id)| id)
    }

    /// How many tokens the ceilings above claims in a leaf have.
    pub(crate) fn space_below_ceilings(&mut self, leaf: ClassId, now: u64) -> u64 {
        let (mut id, mut space) = (leaf, u64::MAX);
        while id != ROOT {
            if let Some(ceiling) = &mut self.rare_mut(id).ceiling {
                ceiling.mint(now);
                space = space.min(ceiling.level().max(0) as u64);
            }
            id = self.parent(id);
        }
        space
    }

    /// Whether a ceiling holds back all claims in a class, and the level of the ceiling of the class.
    pub(crate) fn view(&mut self, id: ClassId, now: u64) -> (bool, Option<i64>) {
        let level = self.rare_mut(id).ceiling.as_mut().map(|ceiling| {
            ceiling.mint(now);
            ceiling.level()
        });
        (self.is_backlogged(id) && self.path(id).any(|id| self.offer_of(id).is_none()), level)
    }

    /// Whether a claim waits in the class or below it.
    pub(super) fn is_backlogged(&self, id: ClassId) -> bool {
        self.node(id).front.is_some() || self.rare(id).backlogged > 0
    }

    pub(crate) fn weight(&self, id: ClassId) -> u64 {
        self.rare(id).weight.weight()
    }

    pub(crate) fn has_floor(&self, id: ClassId) -> bool {
        self.rare(id).floor.is_some()
    }

    pub(crate) fn ceiling(&self, id: ClassId) -> Option<Quota> {
        self.rare(id).ceiling.as_ref().map(|ceiling| ceiling.quota())
    }

    /// Whether a ceiling is above claims of this class: its own, or that of a class around it.
    pub(crate) fn is_under_ceiling(&self, id: ClassId) -> bool {
        self.ceilings(id).next().is_some()
    }

    /// Adds a leaf. Its tag is the virtual time of `parent`.
    pub(crate) fn add(&mut self, parent: ClassId, weight: u64) -> ClassId {
        let (weight, most) = (Weight::new(weight), self.largest_installment(parent));
        let RareNode { virtual_time, first_child, .. } = *self.rare(parent);
        let node = Node { most, ..Node::new(parent, weight, virtual_time) };
        let rare = RareNode { next: first_child, ..RareNode::new(weight) };
        let id = self.free.pop().unwrap_or(self.nodes.len() as ClassId);
        if id as usize == self.nodes.len() {
            self.nodes.push(node);
            self.rare.push(rare);
        } else {
            // Of a former class of this number, which may still be listed.
            let is_debtor = self.rare(id).is_debtor;
            (*self.node_mut(id), *self.rare_mut(id)) = (node, RareNode { is_debtor, ..rare });
        }
        if first_child != NO_CLASS {
            self.rare_mut(first_child).previous = id;
        }
        let parent = self.rare_mut(parent);
        parent.first_child = id;
        parent.children += 1;
        id
    }

    /// Moves what is known about the front claim of a leaf to a new leaf below it, so that the class can have children.
    pub(crate) fn split(&mut self, id: ClassId, now: u64) -> ClassId {
        let Node { front, since, is_divided, .. } = *self.node(id);
        let leaf = self.add(id, 1);
        self.rare_mut(leaf).former_next = self.rare(id).former_next;
        let (parent, own) = (self.node_mut(id), leaf);
        (parent.front, parent.is_divided) = (None, false);
        let own = self.node_mut(own);
        (own.front, own.since, own.is_divided) = (front, since, is_divided);
        self.rare_mut(leaf).leaf = std::mem::take(&mut self.rare_mut(id).leaf);
        self.note_whether_bare(leaf);
        self.note_whether_bare(id);
        if front.is_some() {
            let rare = self.rare_mut(id);
            (rare.backlogged, rare.weights) = (1, 1);
            self.refresh(leaf, now);
        }
        leaf
    }

    /// Removes a leaf without claims and without a floor.
    pub(crate) fn remove(&mut self, id: ClassId) {
        debug_assert!(self.node(id).front.is_none() && self.is_leaf(id) && id != ROOT);
        // Its number is used again.
        let Node { parent, by_tag_slot, .. } = *self.node(id);
        let RareNode { next, previous, slots, .. } = *self.rare(id);
        debug_assert!(by_tag_slot == NOWHERE && slots == RareSlots::NONE, "a tournament still has the class");
        if previous == NO_CLASS {
            self.rare_mut(parent).first_child = next;
        } else {
            self.rare_mut(previous).next = next;
        }
        if next != NO_CLASS {
            self.rare_mut(next).previous = previous;
        }
        self.rare_mut(parent).children -= 1;
        self.free.push(id);
    }

    /// The class is one of many that come and go as keys do; see [`enter`](Self::enter).
    pub(crate) fn mark_as_key(&mut self, id: ClassId) {
        self.node_mut(id).is_key = true;
    }

    /// Whether the front claim of a leaf is served in parts, or waits for a debt to be paid.
    #[inline]
    pub(crate) fn is_divided(&self, leaf: ClassId) -> bool {
        self.node(leaf).is_divided
    }

    /// What the front claim of a leaf lacks; 0 if no claim waits.
    #[inline]
    pub(crate) fn front(&self, leaf: ClassId) -> u64 {
        self.node(leaf).lacks()
    }

    /// The new weight applies from the next charge on.
    pub(crate) fn set_weight(&mut self, id: ClassId, weight: u64, now: u64) {
        let (weight, before, parent) = (Weight::new(weight), self.weight(id), self.parent(id));
        if weight.weight() == before {
            return;
        }
        if self.is_backlogged(id) {
            let weights = &mut self.rare_mut(parent).weights;
            *weights = *weights - before + weight.weight();
        }
        let rare = self.rare_mut(id);
        rare.weight = weight;
        rare.idle_start.iter_mut().for_each(StartTag::drop_carried);
        let node = self.node_mut(id);
        (node.unit, node.is_exact) = (weight.unit(), weight.is_exact());
        node.start.drop_carried();
        self.refresh(id, now);
    }

    /// Sets the floor of a leaf; `quota` is checked and refilled by time.
    ///
    /// A floor that is set again after it was taken off goes on where it was: a class gains nothing by doing so.
    pub(crate) fn set_floor(&mut self, id: ClassId, quota: Option<Quota>, now: u64) {
        let rate = quota.and_then(Rate::of);
        let node = self.rare_mut(id);
        let old = node.floor.as_ref().map(|floor| floor.rate);
        if old == rate {
            return;
        }
        if let Some(floor) = &node.floor {
            node.former_next = floor.next;
        }
        let next = node.former_next;
        node.floor = rate.map(|rate| match node.floor.take() {
            Some(floor) => Box::new(Floor { rate, applied: rate, ..*floor }),
            None => Box::new(Floor::new(rate, now).not_before(next)),
        });
        self.note_whether_bare(id);
        let was_scaled = self.are_floors_scaled();
        let fixed = |rate: Option<Rate>| rate.map_or(0, Rate::fixed);
        let zero = Rate::ZERO;
        self.floors = self.floors.minus(old.unwrap_or(zero)).plus(rate.unwrap_or(zero));
        let mut above = id;
        loop {
            self.unlist_ceiling(above);
            let node = self.rare_mut(above);
            node.floors = node.floors - fixed(old) + fixed(rate);
            self.list_ceiling(above);
            if above == ROOT {
                break;
            }
            above = self.parent(above);
        }
        // Rounded again and again, the sum would get ever smaller.
        self.floors = self.floors.at_least(self.rare(ROOT).floors);
        if was_scaled || self.are_floors_scaled() {
            // Not now: many floors can be taken off in one call.
            self.stale_from = ROOT;
        }
        self.refresh_fully(id, now);
    }

    fn are_floors_scaled(&self) -> bool {
        self.limits.rate.is_some_and(|rate| self.rare(ROOT).floors > rate.fixed_up())
    }

    /// What is applied of a floor: all of it, or scaled by the same factor as all others if together they exceed the rate of
    /// the limiter.
    pub(super) fn scaled(&self, floor: Rate) -> Rate {
        let limit = self.limits.rate.filter(|_| self.are_floors_scaled());
        limit.map_or(floor, |limit| floor.scaled(limit, self.floors))
    }

    fn unlist_ceiling(&mut self, id: ClassId) {
        if let Some(ceiling) = &self.rare[id as usize].ceiling {
            self.ceilings.remove(&(ceiling.burst(), id));
        }
    }

    fn list_ceiling(&mut self, id: ClassId) {
        let node = &self.rare[id as usize];
        if let Some(ceiling) = node.ceiling.as_ref().filter(|_| node.floors > 0) {
            self.ceilings.insert((ceiling.burst(), id));
        }
    }

    /// Sets the ceiling of a class to a checked quota.
    ///
    /// A ceiling that is set again after it was taken off has minted meanwhile, and no more.
    pub(crate) fn set_ceiling(&mut self, id: ClassId, quota: Option<Quota>, now: u64) {
        self.unlist_ceiling(id);
        let node = self.rare_mut(id);
        let known = node.ceiling.take().or_else(|| node.former_ceiling.take());
        match quota {
            Some(quota) => {
                let mut ceiling = known.unwrap_or_else(|| Box::new(Ceiling::new(quota, now)));
                ceiling.change(quota, now);
                node.ceiling = Some(ceiling);
            }
            None => node.former_ceiling = known,
        }
        self.list_ceiling(id);
        self.note_whether_bare(id);
        self.limit_classes(id, now);
    }

    /// The quotas of the limiter have changed.
    pub(crate) fn set_limits(&mut self, limits: Limits, now: u64) {
        let (was_scaled, burst) = (self.are_floors_scaled(), self.limits.burst);
        self.limits = limits;
        if was_scaled || self.are_floors_scaled() || limits.burst != burst {
            self.limit_classes(ROOT, now);
        }
    }

    pub(super) fn note_whether_bare(&mut self, id: ClassId) {
        let rare = self.rare(id);
        self.node_mut(id).is_bare = rare.floor.is_none() && rare.ceiling.is_none();
    }
}
