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
use super::floor::{Floor, FloorTime, Rate, RateSum, units};
use super::name::ClassName;
use super::offer::{ClassId, Deadline, NEW, Offer, Pick, ROOT};
use super::steps;
use super::tags::{StartTag, Tag, Turn, Weight};
use super::tournament::{Entry, NOWHERE, Tournament};
use crate::Quota;
use crate::quota::MAX_BURST;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// What the limiter's quotas mean for the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The smallest burst: no installment is larger. Without a quota, the largest burst that there is.
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
            burst: quotas.map(|quota| quota.capacity()).min().unwrap_or(MAX_BURST),
            rate: slowest,
            arrears: times.max().unwrap_or(0),
        }
    }

    pub(super) fn burst(&self) -> u64 {
        self.burst
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        self.rate
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
    ceiling: Option<Box<Ceiling>>,
    /// What the classes in it have left, by name.
    pub(super) children: BTreeMap<ClassName, Retained>,
}

impl Retained {
    /// The class around it is gone too, and its virtual time begins anew: there the tag means nothing.
    pub(super) fn without_tag(self) -> Self {
        Self { tag: 0, ..self }
    }
}

/// A class. Fields that only leaves use are empty in inner classes, and the other way round.
///
/// The order, fixed by `repr(C)`, puts what each grant reads and writes into the first cache lines: with thousands of
/// classes, the node of a class is usually in no cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    /// In the virtual time of the parent.
    pub(super) start: StartTag,
    pub(super) weight: Weight,
    pub(super) ceiling: Option<Box<Ceiling>>,
    /// Only leaves have one.
    pub(super) floor: Option<Box<Floor>>,

    /// What could be served next below this class; `None` if nothing waits or a ceiling holds it back. Not kept for the
    /// root.
    pub(super) offer: Option<Offer>,
    /// A leaf: what the front claim of its queue still lacks. `None` if no claim waits.
    pub(super) front: Option<NonZeroU64>,
    /// No installment is larger: the smallest burst of the quotas and of the ceilings on its path.
    pub(super) most: u64,
    /// Orders classes of equal tags by how long they have been backlogged.
    pub(super) since: u64,
    pub(super) parent: ClassId,
    /// Among the children that may be served by weight: its slot in the parent's `by_tag`.
    pub(super) by_tag_slot: u32,

    /// The class of a key: see [`Tree::enter`].
    pub(super) is_key: bool,
    pub(super) slots: RareSlots,
    /// How many children are backlogged.
    pub(super) backlogged: u32,
    /// The children that may be served by weight, and those with a floor that is due.
    pub(super) by_tag: Tournament<Turn>,
    pub(super) by_deadline: Tournament<Deadline>,
    /// An inner class: its virtual time, and the largest tag that it has given to a child.
    pub(super) virtual_time: Tag,
    pub(super) largest: Tag,
    children: u32,
    /// The first child; in each child, its neighbours among the children.
    pub(super) first_child: ClassId,
    pub(super) next: ClassId,
    previous: ClassId,

    /// The class of a key that was not served since it was idle: the tag it had then, which it has again if it leaves.
    pub(super) idle_start: Option<StartTag>,
    /// The ceiling that was taken off, or that a former class of the same name had: it goes on if a ceiling is set again.
    former_ceiling: Option<Box<Ceiling>>,
    /// The same for the floor: the instant of its next installment.
    former_next: FloorTime,
    /// The sum of the floors of the class and of all classes below it.
    floors: RateSum,
}

/// The slots of a class in its parent's `by_deadline`, and in the tree's `held` and `upcoming`. A class that has neither
/// a floor nor a ceiling, and none in it, is in none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RareSlots {
    pub(super) by_deadline: u32,
    pub(super) held: u32,
    pub(super) upcoming: u32,
}

impl RareSlots {
    const NONE: Self = Self { by_deadline: NOWHERE, held: NOWHERE, upcoming: NOWHERE };
}

impl Node {
    fn new(parent: ClassId, weight: u64, tag: Tag) -> Self {
        Self {
            parent,
            weight: Weight::new(weight),
            is_key: false,
            start: StartTag::at(tag),
            idle_start: None,
            since: 0,
            ceiling: None,
            former_ceiling: None,
            former_next: 0,
            floors: 0,
            offer: None,
            front: None,
            most: u64::MAX,
            floor: None,
            virtual_time: 0,
            largest: 0,
            backlogged: 0,
            children: 0,
            first_child: NEW,
            next: NEW,
            previous: NEW,
            by_tag_slot: NOWHERE,
            slots: RareSlots::NONE,
            by_tag: Tournament::default(),
            by_deadline: Tournament::default(),
        }
    }
}

impl Node {
    /// What is served at a time of a front claim that lacks `front` tokens: a burst at most, which is at least 1.
    #[inline]
    pub(super) fn installment(&self, front: NonZeroU64) -> NonZeroU64 {
        NonZeroU64::new(self.most).map_or(front, |most| front.min(most))
    }

    /// Whether the class has neither a floor nor a ceiling.
    #[inline]
    pub(super) fn is_bare(&self) -> bool {
        self.floor.is_none() && self.ceiling.is_none()
    }

    /// The child that is served next below this class: one with a floor that is due, else by weight.
    #[inline]
    pub(super) fn first_child_in_turn(&self) -> Option<ClassId> {
        let by_floor = self.by_deadline.first().map(Entry::owner);
        if by_floor.is_some() { by_floor } else { self.by_tag.first().map(Entry::owner) }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// Numbers of removed classes, to be used again.
    free: Vec<ClassId>,
    pub(super) limits: Limits,
    /// Classes that their ceiling holds back, by the instant at which it lets them go.
    pub(super) held: Tournament<(u64, ClassId)>,
    /// Backlogged leaves with a floor that is not due, by the instant at which it is.
    pub(super) upcoming: Tournament<(u64, ClassId)>,
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
            held: Tournament::default(),
            upcoming: Tournament::default(),
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

    /// The class and all classes below it; each comes before those in it.
    pub(crate) fn subtree(&self, root: ClassId) -> impl Iterator<Item = ClassId> {
        std::iter::successors(Some(root), move |id| self.after(root, *id))
    }

    /// The class that follows `id` in the subtree of `root`.
    fn after(&self, root: ClassId, id: ClassId) -> Option<ClassId> {
        steps::count();
        let mut at = id;
        let mut next = self.node(at).first_child;
        while next == NEW && at != root {
            next = self.node(at).next;
            at = self.node(at).parent;
        }
        (next != NEW).then_some(next)
    }

    pub(crate) fn is_leaf(&self, id: ClassId) -> bool {
        self.node(id).children == 0
    }

    /// The largest installment of a leaf.
    pub(crate) fn most(&self, leaf: ClassId) -> u64 {
        self.node(leaf).most
    }

    /// The instant at which all ceilings above claims in a leaf have `cost` tokens, which are at most their bursts.
    pub(crate) fn ceilings_have(&self, leaf: ClassId, cost: u64) -> u64 {
        let ceilings = self.path(leaf).filter_map(|id| self.node(id).ceiling.as_ref());
        ceilings.map(|ceiling| ceiling.has(cost)).max().unwrap_or(0)
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
        self.node(id).weight.weight()
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

    /// Adds a leaf. Its tag is the virtual time of `parent`.
    pub(crate) fn add(&mut self, parent: ClassId, weight: u64) -> ClassId {
        let Node { virtual_time, most, first_child, .. } = *self.node(parent);
        let node = Node { most, next: first_child, ..Node::new(parent, weight, virtual_time) };
        let id = self.free.pop().unwrap_or(self.nodes.len() as ClassId);
        if id as usize == self.nodes.len() {
            self.nodes.push(node);
        } else {
            *self.node_mut(id) = node;
        }
        if first_child != NEW {
            self.node_mut(first_child).previous = id;
        }
        let parent = self.node_mut(parent);
        parent.first_child = id;
        parent.children += 1;
        id
    }

    /// Moves what is known about the front claim of a leaf to a new leaf below it, so that the class can have children.
    pub(crate) fn split(&mut self, id: ClassId, now: u64) -> ClassId {
        let front = self.node(id).front;
        let leaf = self.add(id, 1);
        self.node_mut(leaf).former_next = self.node(id).former_next;
        if front.is_some() {
            let (since, parent) = (self.node(id).since, self.node_mut(id));
            (parent.front, parent.backlogged) = (None, 1);
            let own = self.node_mut(leaf);
            (own.front, own.since) = (front, since);
            self.refresh(leaf, now);
        }
        if let Some(pick) = self.picked.as_mut().filter(|pick| pick.leaf == id) {
            pick.leaf = leaf;
        }
        leaf
    }

    /// Removes a leaf without claims and without a floor.
    pub(crate) fn remove(&mut self, id: ClassId) {
        debug_assert!(self.node(id).front.is_none() && self.is_leaf(id) && id != ROOT);
        // Its number is used again.
        let Node { parent, next, previous, by_tag_slot, slots, .. } = *self.node(id);
        debug_assert!(by_tag_slot == NOWHERE && slots == RareSlots::NONE, "a tournament still has the class");
        if previous == NEW {
            self.node_mut(parent).first_child = next;
        } else {
            self.node_mut(previous).next = next;
        }
        if next != NEW {
            self.node_mut(next).previous = previous;
        }
        self.node_mut(parent).children -= 1;
        self.free.push(id);
    }

    /// What a class that is removed leaves, beside what its own `children` have left; `None` if nothing is lost with it:
    /// neither a charge that is still ahead of its siblings, nor a floor or a ceiling that was used lately. `leaf` is the
    /// leaf for its own claims.
    pub(crate) fn retained(
        &self,
        (id, leaf): (ClassId, ClassId),
        children: BTreeMap<ClassName, Retained>,
        now: u64,
    ) -> Option<Retained> {
        let (node, own) = (self.node(id), self.node(leaf));
        let retained = Retained {
            tag: node.start.tag,
            next: own.floor.as_ref().map_or(own.former_next, |floor| floor.next),
            ceiling: node.ceiling.as_ref().or(node.former_ceiling.as_ref()).cloned(),
            children,
        };
        (!self.is_forgettable(node.parent, &retained, now)).then_some(retained)
    }

    /// Whether a class of `parent` that had left `retained` would be none the worse for it.
    pub(crate) fn is_forgettable(&self, parent: ClassId, retained: &Retained, now: u64) -> bool {
        let Node { virtual_time, largest, .. } = *self.node(parent);
        retained.tag.min(largest) <= virtual_time
            && retained.next <= units(now)
            && retained.ceiling.as_ref().is_none_or(|ceiling| ceiling.is_full_by(now))
            && retained.children.values().all(|child| self.is_forgettable(parent, child, now))
    }

    /// A class of the same name was removed and left `retained`: otherwise a caller that makes and drops a class again and
    /// again would gain an installment, a burst of its ceiling, and a service by floor each time.
    pub(crate) fn restore(&mut self, id: ClassId, retained: Retained) {
        // No tag is beyond the largest one, unless the tags were set back meanwhile.
        let tag = retained.tag.min(self.node(self.node(id).parent).largest);
        let node = self.node_mut(id);
        node.start.raise(tag);
        (node.former_ceiling, node.former_next) = (retained.ceiling, retained.next);
    }

    /// The class is one of many that come and go as keys do; see [`enter`](Self::enter).
    pub(crate) fn mark_as_key(&mut self, id: ClassId) {
        self.node_mut(id).is_key = true;
    }

    /// The new weight applies from the next charge on.
    pub(crate) fn set_weight(&mut self, id: ClassId, weight: u64, now: u64) {
        let node = self.node_mut(id);
        node.weight = Weight::new(weight);
        node.idle_start.iter_mut().chain([&mut node.start]).for_each(StartTag::drop_rest);
        self.refresh(id, now);
    }

    /// Sets the floor of a leaf; `quota` is checked and refilled by time. The pick is made anew.
    ///
    /// A floor that is set again after it was taken off goes on where it was: a class gains nothing by doing so.
    pub(crate) fn set_floor(&mut self, id: ClassId, quota: Option<Quota>, now: u64) {
        let rate = quota.and_then(Rate::of);
        let node = self.node_mut(id);
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
        let was_scaled = self.are_floors_scaled();
        let fixed = |rate: Option<Rate>| rate.map_or(0, Rate::fixed);
        let mut above = id;
        loop {
            let node = self.node_mut(above);
            node.floors = node.floors - fixed(old) + fixed(rate);
            if above == ROOT {
                break;
            }
            above = node.parent;
        }
        self.picked = None;
        if was_scaled || self.are_floors_scaled() {
            self.scale_floors(now);
        }
        self.refresh_fully(id, now);
    }

    fn are_floors_scaled(&self) -> bool {
        self.limits.rate.is_some_and(|rate| self.node(ROOT).floors > rate.fixed_up())
    }

    /// Applies all floors as they are, or scaled by the same factor if together they exceed the rate of the limiter.
    fn scale_floors(&mut self, now: u64) {
        let sum = self.nodes.iter().filter_map(|node| Some(node.floor.as_ref()?.rate)).reduce(Rate::plus);
        let scale = sum.zip(self.limits.rate).filter(|_| self.are_floors_scaled());
        for id in 0..self.len() as ClassId {
            steps::count();
            let Some(floor) = &mut self.node_mut(id).floor else { continue };
            floor.applied = scale.map_or(floor.rate, |(sum, rate)| floor.rate.scaled(rate, sum));
            if self.node(id).front.is_some() {
                self.refresh(id, now);
            }
        }
    }

    /// Sets the ceiling of a class to a checked quota. The pick is made anew.
    ///
    /// A ceiling that is set again after it was taken off has minted meanwhile, and no more.
    pub(crate) fn set_ceiling(&mut self, id: ClassId, quota: Option<Quota>, now: u64) {
        let node = self.node_mut(id);
        let known = node.ceiling.take().or_else(|| node.former_ceiling.take());
        match quota {
            Some(quota) => {
                node.ceiling = Some(match known {
                    Some(mut known) => {
                        known.change(quota, now);
                        known
                    }
                    None => Box::new(Ceiling::new(quota, now)),
                });
            }
            None => node.former_ceiling = known,
        }
        self.limit_installments(id, now);
    }

    /// The quotas of the limiter have changed. The pick is made anew.
    pub(crate) fn set_limits(&mut self, limits: Limits, now: u64) {
        let (was_scaled, burst) = (self.are_floors_scaled(), self.limits.burst);
        self.limits = limits;
        self.picked = None;
        if was_scaled || self.are_floors_scaled() {
            self.scale_floors(now);
        }
        if limits.burst != burst {
            self.limit_installments(ROOT, now);
        }
    }

    /// Computes the largest installments in a class and below it anew. The pick is made anew.
    fn limit_installments(&mut self, root: ClassId, now: u64) {
        self.picked = None;
        let mut next = Some(root);
        while let Some(id) = next {
            let above = if id == ROOT { self.limits.burst } else { self.node(self.node(id).parent).most };
            let node = self.node_mut(id);
            node.most = node.ceiling.as_ref().map_or(above, |ceiling| above.min(ceiling.burst()));
            if node.front.is_some() || id == root {
                self.refresh_fully(id, now);
            }
            next = self.after(root, id);
        }
    }

    /// Checks that the floors in which a class takes part can be kept if it has this floor and this ceiling.
    ///
    /// `id` is the class, and `leaf` the leaf for its own claims; both are [`NEW`] if it is about to be added in `parent`.
    /// What does not become worse is not checked: a change of the quotas may have made it impossible to keep.
    pub(crate) fn check(
        &self,
        (parent, id, leaf): (ClassId, ClassId, ClassId),
        floor: Option<Quota>,
        ceiling: Option<Quota>,
    ) -> Result<(), FloorConflict> {
        let new = floor.and_then(Rate::of).map_or(0, Rate::fixed);
        let (old, known, below) = match id {
            NEW => (0, None, 0),
            _ => (
                self.node(leaf).floor.as_ref().map_or(0, |floor| floor.rate.fixed()),
                self.ceiling(id),
                self.node(id).floors,
            ),
        };
        let rises = new > old;
        let sum = |floors: RateSum| (floors - old).checked_add(new).ok_or(FloorConflict::Rate);
        let is_stricter = |quota: Quota| {
            let lower =
                |known: Quota| Rate::of(quota).zip(Rate::of(known)).is_some_and(|(rate, known)| rate.is_below(known));
            known.is_none_or(|known| quota.capacity() < known.capacity() || lower(known))
        };
        if let Some(quota) = ceiling.filter(|quota| rises || is_stricter(*quota)) {
            self.check_ceiling(quota, sum(below)?)?;
        }
        if !rises {
            return Ok(());
        }
        for above in self.path(parent) {
            if let Some(ceiling) = &self.node(above).ceiling {
                self.check_ceiling(ceiling.quota(), sum(self.node(above).floors)?)?;
            }
        }
        let sum = sum(self.node(ROOT).floors)?;
        if self.limits.rate.is_some_and(|rate| rate.fixed_up() < sum) { Err(FloorConflict::Rate) } else { Ok(()) }
    }

    /// Checks that floors of this sum can be kept below a ceiling.
    fn check_ceiling(&self, quota: Quota, floors: RateSum) -> Result<(), FloorConflict> {
        if floors == 0 {
            return Ok(());
        }
        // Where no time refills the quotas, an installment of another class takes no time from this ceiling.
        if self.limits.rate.is_some() && quota.capacity() < self.limits.burst {
            return Err(FloorConflict::CeilingBurst { burst: quota.capacity(), least: self.limits.burst });
        }
        if Rate::of(quota).is_some_and(|rate| rate.fixed_up() < floors) {
            return Err(FloorConflict::CeilingRate);
        }
        Ok(())
    }

    /// A class with a ceiling below which floors could not be kept if these were the limits of the quotas.
    pub(crate) fn conflict_with(&self, limits: &Limits) -> Option<(ClassId, FloorConflict)> {
        let is_known = limits.burst <= self.limits.burst && self.limits.rate.is_some();
        if is_known || limits.rate.is_none() || self.node(ROOT).floors == 0 {
            return None;
        }
        self.subtree(ROOT).find_map(|id| {
            let node = self.node(id);
            let burst = node.ceiling.as_ref().filter(|_| node.floors > 0)?.burst();
            (burst < limits.burst).then_some((id, FloorConflict::CeilingBurst { burst, least: limits.burst }))
        })
    }
}
