//! The tree of classes and the scheduler on it: hierarchical start-time fair queueing with floors and ceilings.
//!
//! Pure: no queues, no lock, no clock. The owner keeps the queue of each leaf and tells the tree what the front claim
//! of each queue still lacks ([`Tree::set_front`]). The tree [picks](Tree::pick) the leaf to be served next and the
//! installment, and the owner reports each installment that was served ([`Tree::pay`]). The owner's time never moves
//! back.
//!
//! This file holds the shape of the tree and its configuration; `pick.rs` holds the rules of service.
//!
//! The scheduler is SFQ (Goyal, Vin, Cheng: StartTag-time Fair Queueing, 1996), hierarchical as in the paper, with tags
//! given when a claim is served and not when it arrives, and with reservations and limits beside the weights as in
//! mClock (Gulati, Merchant, Varman, 2010).

use super::ceiling::Ceiling;
use super::floor::{Floor, FloorTime, Rate, units};
use super::heap::{Heap, NOWHERE};
use super::pick::{Offer, Pick};
use super::tags::{StartTag, Tag, Weight};
use crate::Quota;
use std::collections::BTreeMap;

/// The number of a class in its tree.
pub(crate) type ClassId = u32;

/// The class of the limiter itself. It has no weight, floor or ceiling, and is never picked for itself.
pub(crate) const ROOT: ClassId = 0;

/// Stands for a class that is about to be added.
pub(crate) const NEW: ClassId = ClassId::MAX;

/// What the limiter's quotas mean for the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The smallest burst: no installment is larger.
    burst: u64,
    /// The rate of the slowest quota, if time refills any of them.
    rate: Option<Rate>,
    /// The time in which a quota mints two bursts; that of the quota that takes longest.
    pub(super) arrears: FloorTime,
}

impl Limits {
    pub(crate) fn of(quotas: impl Iterator<Item = Quota> + Clone) -> Self {
        let rates = quotas.clone().filter_map(|quota| Some((Rate::of(quota)?, quota.capacity())));
        let slowest = rates.clone().map(|(rate, _)| rate).reduce(|a, b| if b.is_below(a) { b } else { a });
        let times = rates.map(|(rate, burst)| rate.time_of(burst.saturating_mul(2)));
        Self {
            burst: quotas.map(|quota| quota.capacity()).min().unwrap_or(1),
            rate: slowest,
            arrears: times.max().unwrap_or(0),
        }
    }

    pub(super) fn burst(&self) -> u64 {
        self.burst
    }
}

/// Why the floors of a tree could not all be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloorConflict {
    /// Together they exceed the rate of the slowest quota.
    Rate,
    /// Those below a ceiling exceed its rate.
    CeilingRate,
    /// A ceiling above a floor has a smaller burst than the limiter.
    CeilingBurst { burst: u64, least: u64 },
}

/// What a removed class leaves for another class of the same name.
#[derive(Clone, Debug)]
pub(crate) struct Retained {
    tag: Tag,
    /// The instant of the next installment of its floor.
    next: FloorTime,
    ceiling: Option<Ceiling>,
}

/// A class. Fields that only leaves use are empty in inner classes, and the other way round.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: ClassId,
    pub(super) weight: Weight,
    /// In the virtual time of the parent.
    pub(super) start: StartTag,
    /// Orders classes of equal tags by how long they have been backlogged.
    pub(super) since: u64,
    pub(super) ceiling: Option<Box<Ceiling>>,
    /// What a former class of the same name has left for the floor and the ceiling of this one.
    retained: Option<Box<Retained>>,
    /// What could be served next below this class; `None` if nothing waits or a ceiling holds it back.
    pub(super) offer: Option<Offer>,
    /// The positions in the parent's `by_tag` and `by_deadline`, and in the tree's `held` and `upcoming`.
    pub(super) positions: Positions,

    /// A leaf: what the front claim of its queue still lacks. `None` if no claim waits.
    pub(super) front: Option<u64>,
    /// A leaf: no installment is larger. The smallest burst of the quotas and of the ceilings on its path.
    pub(super) most: u64,
    pub(super) floor: Option<Floor>,

    /// An inner class: its virtual time, and the largest tag that it has given to a child.
    pub(super) virtual_time: Tag,
    pub(super) largest: Tag,
    pub(super) backlogged: u32,
    children: u32,
    /// The children that may be served by weight, and those with a floor that is due.
    pub(super) by_tag: Heap<(Tag, Tag, u64)>,
    pub(super) by_deadline: Heap<(FloorTime, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Positions {
    pub(super) by_tag: u32,
    pub(super) by_deadline: u32,
    pub(super) held: u32,
    pub(super) upcoming: u32,
}

impl Node {
    fn new(parent: ClassId, weight: u64, tag: Tag) -> Self {
        Self {
            parent,
            weight: Weight::new(weight),
            start: StartTag::at(tag),
            since: 0,
            ceiling: None,
            retained: None,
            offer: None,
            positions: Positions { by_tag: NOWHERE, by_deadline: NOWHERE, held: NOWHERE, upcoming: NOWHERE },
            front: None,
            most: u64::MAX,
            floor: None,
            virtual_time: 0,
            largest: 0,
            backlogged: 0,
            children: 0,
            by_tag: Heap::default(),
            by_deadline: Heap::default(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// Numbers of removed classes, to be used again.
    free: Vec<ClassId>,
    pub(super) limits: Limits,
    /// The sum of the floors as configured.
    floors: Option<Rate>,
    /// Classes that their ceiling holds back, by the instant at which it lets them go.
    pub(super) held: Heap<u64>,
    /// Backlogged leaves with a floor that is not due, by the instant at which it is.
    pub(super) upcoming: Heap<u64>,
    /// What is in service, until it is served or the pick is made anew.
    pub(super) picked: Option<Pick>,
    /// Counts the instants at which classes became backlogged.
    pub(super) count: u64,
}

impl Tree {
    /// Creates a tree with the root alone, which is a leaf as long as it has no children.
    pub(crate) fn new(limits: Limits) -> Self {
        let mut tree = Self {
            nodes: vec![Node::new(ROOT, 1, 0)],
            free: Vec::new(),
            limits,
            floors: None,
            held: Heap::default(),
            upcoming: Heap::default(),
            picked: None,
            count: 0,
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

    /// The class and its ancestors, without the root.
    pub(super) fn path(&self, id: ClassId) -> impl Iterator<Item = ClassId> {
        std::iter::successors(Some(id), |id| Some(self.node(*id).parent)).take_while(|id| *id != ROOT)
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
        self.node(id).children
    }

    pub(crate) fn is_leaf(&self, id: ClassId) -> bool {
        self.node(id).children == 0
    }

    /// The largest installment of a leaf.
    pub(crate) fn most(&self, leaf: ClassId) -> u64 {
        self.node(leaf).most
    }

    /// How many tokens the ceilings above claims in a leaf have.
    pub(crate) fn space_below_ceilings(&mut self, leaf: ClassId, now: u64) -> u64 {
        let (mut id, mut space) = (leaf, u64::MAX);
        while id != ROOT {
            let node = self.node_mut(id);
            if let Some(ceiling) = &mut node.ceiling {
                ceiling.mint(now);
                space = space.min(ceiling.level().max(0) as u64);
            }
            id = node.parent;
        }
        space
    }

    /// Whether a ceiling holds back all claims in a class, and the level of the ceiling of the class.
    pub(crate) fn view(&mut self, id: ClassId, now: u64) -> (bool, Option<i64>) {
        let node = self.node_mut(id);
        let level = node.ceiling.as_mut().map(|ceiling| {
            ceiling.mint(now);
            ceiling.level()
        });
        let is_backlogged = node.front.is_some() || node.backlogged > 0;
        (is_backlogged && self.path(id).any(|id| self.node(id).offer.is_none()), level)
    }

    pub(crate) fn weight(&self, id: ClassId) -> u64 {
        self.node(id).weight.weight
    }

    pub(crate) fn has_floor(&self, id: ClassId) -> bool {
        self.node(id).floor.is_some()
    }

    pub(crate) fn ceiling(&self, id: ClassId) -> Option<Quota> {
        self.node(id).ceiling.as_ref().map(|ceiling| ceiling.quota())
    }

    /// Whether a ceiling is above claims of this class: its own, or that of a class around it.
    pub(crate) fn is_under_ceiling(&self, id: ClassId) -> bool {
        self.path(id).any(|id| self.node(id).ceiling.is_some())
    }

    /// Adds a leaf. Its tag is the virtual time of `parent`, and the pick is made anew.
    pub(crate) fn add(&mut self, parent: ClassId, weight: u64) -> ClassId {
        self.picked = None;
        let tag = self.node(parent).virtual_time;
        let mut node = Node::new(parent, weight, tag);
        node.most = self.most_below(parent);
        self.node_mut(parent).children += 1;
        if let Some(id) = self.free.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as ClassId
    }

    /// Moves what is known about the front claim of a leaf to a new leaf below it, so that the class can have children.
    pub(crate) fn split(&mut self, id: ClassId, now: u64) -> ClassId {
        let front = self.node(id).front;
        let leaf = self.add(id, 1);
        if front.is_some() {
            let (since, parent) = (self.node(id).since, self.node_mut(id));
            (parent.front, parent.backlogged) = (None, 1);
            let own = self.node_mut(leaf);
            (own.front, own.since) = (front, since);
            self.refresh(leaf, now);
        }
        leaf
    }

    /// Removes a leaf without claims and without a floor.
    pub(crate) fn remove(&mut self, id: ClassId) {
        debug_assert!(self.node(id).front.is_none() && self.is_leaf(id) && id != ROOT);
        let parent = self.node(id).parent;
        self.node_mut(parent).children -= 1;
        self.free.push(id);
    }

    /// What a class that is removed still owes; `None` if nothing is lost with it: neither a charge that is still ahead
    /// of its siblings, nor a floor or a ceiling that was used lately.
    pub(crate) fn retained(&self, id: ClassId, now: u64) -> Option<Retained> {
        let node = self.node(id);
        let retained = Retained {
            tag: node.start.tag,
            next: node.floor.map_or(0, |floor| floor.next),
            ceiling: node.ceiling.as_ref().map(|ceiling| (**ceiling).clone()),
        };
        (!self.is_forgettable(node.parent, &retained, now)).then_some(retained)
    }

    /// Whether a class of `parent` that had left `retained` would be none the worse for it.
    pub(crate) fn is_forgettable(&self, parent: ClassId, retained: &Retained, now: u64) -> bool {
        let is_full = retained.ceiling.as_ref().is_none_or(|ceiling| ceiling.is_full_by(now));
        is_full && retained.tag <= self.node(parent).virtual_time && retained.next <= units(now)
    }

    /// A class of the same name was removed and left `retained`: otherwise a caller that makes and drops a class again and
    /// again would gain an installment, a burst of its ceiling, and a service by floor each time.
    pub(crate) fn restore(&mut self, id: ClassId, retained: Retained) {
        let node = self.node_mut(id);
        node.start.raise(retained.tag);
        node.retained = Some(Box::new(retained));
    }

    /// The new weight applies from the next charge on.
    pub(crate) fn set_weight(&mut self, id: ClassId, weight: u64, now: u64) {
        let node = self.node_mut(id);
        node.weight = Weight::new(weight);
        node.start.drop_rest();
        self.refresh(id, now);
    }

    /// Sets the floor of a leaf; `quota` is checked and refilled by time. The pick is made anew.
    pub(crate) fn set_floor(&mut self, id: ClassId, quota: Option<Quota>, now: u64) {
        let rate = quota.and_then(Rate::of);
        let node = self.node_mut(id);
        if node.floor.map(|floor| floor.rate) == rate {
            return;
        }
        node.floor = rate.map(|rate| match node.floor {
            Some(floor) => Floor { rate, ..floor },
            None => {
                let next = node.retained.as_ref().map_or(0, |retained| retained.next);
                Floor::new(rate, now).not_before(next)
            }
        });
        let was_scaled = self.are_floors_scaled();
        let floors = self.nodes.iter().filter_map(|node| Some(node.floor?.rate));
        self.floors = floors.reduce(Rate::plus);
        if was_scaled || self.are_floors_scaled() {
            return self.reconfigure(now);
        }
        if let Some(floor) = &mut self.node_mut(id).floor {
            floor.applied = floor.rate;
        }
        self.picked = None;
        self.refresh(id, now);
    }

    fn are_floors_scaled(&self) -> bool {
        self.floors.zip(self.limits.rate).is_some_and(|(sum, rate)| rate.is_below(sum))
    }

    /// Sets the ceiling of a class to a checked quota. The pick is made anew.
    pub(crate) fn set_ceiling(&mut self, id: ClassId, quota: Option<Quota>, now: u64) {
        let node = self.node_mut(id);
        match (&mut node.ceiling, quota) {
            (Some(ceiling), Some(quota)) => ceiling.change(quota, now),
            (ceiling, Some(quota)) => {
                let known = node.retained.as_mut().and_then(|retained| retained.ceiling.take());
                let known = known.map(|mut known| {
                    known.change(quota, now);
                    known
                });
                *ceiling = Some(Box::new(known.unwrap_or_else(|| Ceiling::new(quota, now))));
            }
            (ceiling, None) => *ceiling = None,
        }
        if !self.is_leaf(id) {
            return self.reconfigure(now);
        }
        self.picked = None;
        self.node_mut(id).most = self.most_below(id);
        self.refresh(id, now);
    }

    /// Checks that all floors can be kept if a class of `parent` has this floor and this ceiling. `id` is the class, or
    /// [`NEW`] if it is about to be added.
    pub(crate) fn check(
        &self,
        (parent, id): (ClassId, ClassId),
        floor: Option<Quota>,
        ceiling: Option<Quota>,
    ) -> Result<(), FloorConflict> {
        let others = (1..self.len() as ClassId).filter(|class| *class != id);
        let others = others.filter_map(|class| Some((class, self.node(class).floor?.rate)));
        let all = others.chain(floor.and_then(Rate::of).map(|rate| (id, rate)));
        let (mut sum, mut below) = (None, BTreeMap::new());
        let add = |sum: Option<Rate>, rate: Rate| Some(sum.map_or(rate, |sum| sum.plus(rate)));
        for (class, rate) in all {
            sum = add(sum, rate);
            let path = if class == id { vec![id] } else { Vec::new() };
            let rest = if class == id { parent } else { class };
            for above in path.into_iter().chain(self.path(rest)) {
                let Some(quota) = (if above == id { ceiling } else { self.ceiling(above) }) else { continue };
                let sum = below.entry(above).or_default();
                *sum = add(*sum, rate);
                if quota.capacity() < self.limits.burst {
                    return Err(FloorConflict::CeilingBurst { burst: quota.capacity(), least: self.limits.burst });
                }
                if Rate::of(quota).zip(*sum).is_some_and(|(rate, sum)| rate.is_below(sum)) {
                    return Err(FloorConflict::CeilingRate);
                }
            }
        }
        let is_kept = floor.is_none() || self.limits.rate.zip(sum).is_none_or(|(rate, sum)| !rate.is_below(sum));
        if is_kept { Ok(()) } else { Err(FloorConflict::Rate) }
    }

    /// The quotas of the limiter have changed. The pick is made anew.
    pub(crate) fn set_limits(&mut self, limits: Limits, now: u64) {
        self.limits = limits;
        self.reconfigure(now);
    }

    /// The largest installment of a claim in this class.
    fn most_below(&self, id: ClassId) -> u64 {
        let ceilings = self.path(id).filter_map(|id| self.node(id).ceiling.as_ref());
        ceilings.map(|ceiling| ceiling.burst()).fold(self.limits.burst, u64::min)
    }

    fn reconfigure(&mut self, now: u64) {
        self.picked = None;
        let floors = self.floors.zip(self.limits.rate).filter(|_| self.are_floors_scaled());
        for id in 0..self.nodes.len() as ClassId {
            let most = self.most_below(id);
            let node = self.node_mut(id);
            node.most = most;
            if let Some(floor) = &mut node.floor {
                floor.applied = floors.map_or(floor.rate, |(sum, rate)| floor.rate.scaled(rate, sum));
            }
        }
        for id in 0..self.nodes.len() as ClassId {
            if self.node(id).front.is_some() {
                self.refresh(id, now);
            }
        }
    }
}
