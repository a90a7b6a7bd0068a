//! The model: how a limiter shares its tokens among classes, written from the specification and not from the code.
//!
//! Exact fractions, recursion over the whole tree, one step per installment; no positions, no heaps, no locks.
//!
//! The terms: a *child* of an inner class has a start tag `s` in the virtual time `v` of its parent; a *leaf* has a
//! queue of claims; an *installment* is what a claim receives in one turn.

mod calls;

use super::fraction::{Fraction, rate};
use crate::oracle::{Bucket, Rule};
use std::collections::{BTreeMap, VecDeque};

pub(crate) type Int = i128;
/// The number of a claim, counted from 0 over the whole limiter.
pub(crate) type Id = usize;
/// The number of a class. The root is 0.
pub(crate) type ClassId = usize;

/// An instant that never comes.
const NEVER: Int = Int::MAX;

#[derive(Clone, Debug)]
struct Claim {
    id: Id,
    cost: Int,
    paid: Int,
    /// A debt: no waiter waits for it.
    debt: bool,
}

impl Claim {
    fn rest(&self) -> Int {
        self.cost - self.paid
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) parent: ClassId,
    children: Vec<ClassId>,
    pub(crate) weight: Int,
    /// In tokens per nanosecond, as configured.
    pub(crate) floor: Option<Fraction>,
    ceiling: Option<Bucket>,
    /// The ceiling that was taken off: it mints on, and is used if a ceiling is set again.
    former_ceiling: Option<Bucket>,
    queue: VecDeque<Claim>,
    /// The start tag, in the parent's virtual time.
    s: Fraction,
    /// The virtual time of the children, and the largest tag given to one of them.
    v: Fraction,
    largest: Fraction,
    /// The instant of the next installment of the floor.
    r: Fraction,
    /// Orders children by the instant since when they have been backlogged.
    since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) id: Id,
    pub(crate) leaf: ClassId,
    pub(crate) at: Int,
    pub(crate) cost: Int,
}

/// What a class could be served next.
#[derive(Clone, Copy, Debug)]
struct Offer {
    leaf: ClassId,
    q: Int,
    debt: bool,
    deadline: Option<Fraction>,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) quotas: Vec<Bucket>,
    /// While something is set aside: the quotas as if no divided claim had taken from them.
    shadows: Vec<Bucket>,
    pub(crate) classes: Vec<Class>,
    cap: Option<Int>,
    pub(crate) in_flight: Int,
    gate: Int,
    /// The instant up to which the limiter has been served.
    pub(crate) synced: Int,
    count: u64,
    next: Id,
    /// Of the grants that were charged to tags: by how many tokens refunds can still lower these.
    refundable: BTreeMap<Id, Int>,
    pub(crate) log: Vec<Granted>,
    /// The instants of the installments.
    installments: Vec<Int>,
}

impl Model {
    pub(crate) fn new(rules: &[Rule], cap: Option<Int>) -> Self {
        let root = Class {
            parent: 0,
            children: Vec::new(),
            weight: 1,
            floor: None,
            ceiling: None,
            former_ceiling: None,
            queue: VecDeque::new(),
            s: Fraction::ZERO,
            v: Fraction::ZERO,
            largest: Fraction::ZERO,
            r: Fraction::ZERO,
            since: 0,
        };
        Self {
            quotas: rules.iter().map(|rule| Bucket::new(*rule, 0)).collect(),
            shadows: Vec::new(),
            classes: vec![root],
            cap,
            in_flight: 0,
            gate: 0,
            synced: 0,
            count: 0,
            next: 0,
            refundable: BTreeMap::new(),
            log: Vec::new(),
            installments: Vec::new(),
        }
    }

    pub(crate) fn add_class(
        &mut self,
        now: Int,
        parent: ClassId,
        weight: Int,
        floor: Option<Fraction>,
        ceiling: Option<Rule>,
    ) -> ClassId {
        self.serve(now);
        let id = self.classes.len();
        let ceiling = ceiling.map(|rule| Bucket::new(rule, 0));
        let (s, r) = (self.classes[parent].v, Fraction::whole(self.synced));
        self.classes.push(Class { parent, weight, floor, ceiling, s, r, ..self.blank() });
        self.classes[parent].children.push(id);
        self.serve(now);
        id
    }

    fn blank(&self) -> Class {
        let (queue, children) = (VecDeque::new(), Vec::new());
        let zero = Fraction::ZERO;
        let root = &self.classes[0];
        Class { queue, children, v: zero, largest: zero, since: 0, former_ceiling: None, ..root.clone() }
    }

    /// The class itself and its ancestors, without the root.
    pub(crate) fn path(&self, class: ClassId) -> Vec<ClassId> {
        let mut path = Vec::new();
        let mut at = class;
        while at != 0 {
            path.push(at);
            at = self.classes[at].parent;
        }
        path
    }

    pub(crate) fn is_backlogged(&self, class: ClassId) -> bool {
        let node = &self.classes[class];
        !node.queue.is_empty() || node.children.iter().any(|child| self.is_backlogged(*child))
    }

    fn waits(&self) -> bool {
        self.classes.iter().any(|class| class.queue.iter().any(|claim| !claim.debt))
    }

    pub(crate) fn waiting(&self) -> (u64, Int) {
        let claims = self.classes.iter().flat_map(|class| &class.queue).filter(|claim| !claim.debt);
        claims.fold((0, 0), |(count, tokens), claim| (count + 1, tokens + claim.cost))
    }

    fn set_aside(&self) -> Int {
        let claims = self.classes.iter().flat_map(|class| &class.queue).filter(|claim| !claim.debt);
        claims.map(|claim| claim.paid).sum()
    }

    pub(crate) fn least_burst(&self) -> Int {
        self.quotas.iter().map(|quota| quota.rule.burst).min().unwrap_or(1 << 61)
    }

    /// The scaled floor of a leaf.
    pub(crate) fn floor(&self, class: ClassId) -> Option<Fraction> {
        let floor = self.classes[class].floor?;
        let sum = self.classes.iter().filter_map(|class| class.floor).fold(Fraction::ZERO, Fraction::plus);
        let rate = self.quotas.iter().filter_map(|quota| rate(&quota.rule)).min();
        match rate {
            Some(rate) if sum > rate => Some(floor.times(rate).over(sum)),
            _ => Some(floor),
        }
    }

    /// The time in which two bursts are minted.
    fn two_bursts_time(&self) -> Fraction {
        let times =
            self.quotas.iter().filter_map(|quota| Some(Fraction::whole(2 * quota.rule.burst).over(rate(&quota.rule)?)));
        times.max().unwrap_or(Fraction::ZERO)
    }

    fn installment(&self, leaf: ClassId, rest: Int) -> Int {
        let ceilings = self.path(leaf).into_iter().filter_map(|class| self.classes[class].ceiling.as_ref());
        ceilings.map(|ceiling| ceiling.rule.burst).fold(rest.min(self.least_burst()), Int::min)
    }

    fn pick(&self, class: ClassId) -> (Option<Offer>, Int) {
        let node = &self.classes[class];
        let offer;
        let mut again = NEVER;
        if let Some(front) = node.queue.front() {
            let q = self.installment(class, front.rest());
            let mut deadline = None;
            if let Some(floor) = self.floor(class) {
                if node.r <= Fraction::whole(self.synced) {
                    deadline = Some(node.r.plus(Fraction::whole(q).over(floor)));
                } else {
                    again = node.r.ceil();
                }
            }
            offer = Some(Offer { leaf: class, q, debt: front.debt, deadline });
        } else {
            let mut offers = Vec::new();
            for &child in node.children.iter().filter(|child| self.is_backlogged(**child)) {
                let (offered, later) = self.pick(child);
                again = again.min(later);
                offers.extend(offered.map(|offered| (child, offered)));
            }
            let due = offers.iter().filter(|(_, offered)| offered.deadline.is_some());
            offer = due
                .min_by_key(|(child, offered)| (offered.deadline, self.classes[*child].since))
                .or_else(|| {
                    offers.iter().min_by_key(|(child, offered)| {
                        let child = &self.classes[*child];
                        let start = child.s.max(node.v);
                        (start, start.plus(Fraction::new(offered.q, child.weight)), child.since)
                    })
                })
                .map(|(_, offered)| *offered);
        }
        // Debts are charged to ceilings when they are made.
        if let (Some(offered), Some(ceiling)) = (offer, &node.ceiling)
            && !offered.debt
            && ceiling.level < offered.q
        {
            let enough = ceiling.when(self.synced, offered.q).unwrap_or(NEVER);
            return (None, again.min(enough));
        }
        (offer, again)
    }

    /// When an installment is served, if it stays the one that is picked.
    fn due(&self, offer: Offer) -> Int {
        let front = &self.classes[offer.leaf].queue[0];
        let capped = self.cap.is_some_and(|cap| self.in_flight + front.cost > cap);
        if offer.q == front.rest() && !front.debt && capped {
            return NEVER;
        }
        let minted = self.quotas.iter().map(|quota| quota.when(self.synced, offer.q).unwrap_or(NEVER));
        minted.fold(self.synced.max(self.gate), Int::max)
    }

    /// Serves the limiter up to `now`, each installment at its own instant. The choice is made anew at each instant at
    /// which it can change.
    pub(crate) fn serve(&mut self, now: Int) {
        let now = now.max(self.synced);
        loop {
            let (offer, again) = self.pick(0);
            let q = offer.map_or(0, |offer| offer.q);
            self.quotas.iter_mut().for_each(|quota| quota.cut(quota.rule.burst.max(q)));
            let due = offer.map_or(NEVER, |offer| self.due(offer));
            if let Some(offer) = offer.filter(|_| due <= self.synced) {
                self.mint(self.synced, q);
                self.pay(offer);
            } else if due.min(again) > now {
                return self.mint(now, q);
            } else {
                self.mint(due.min(again), q);
            }
        }
    }

    /// Mints up to `to`, while an installment of `q` is picked.
    fn mint(&mut self, to: Int, q: Int) {
        for quota in &mut self.quotas {
            quota.mint(self.synced, to, Some(q));
        }
        let ceilings =
            self.classes.iter_mut().filter_map(|class| class.ceiling.as_mut().or(class.former_ceiling.as_mut()));
        for bucket in ceilings.chain(&mut self.shadows) {
            bucket.mint(self.synced, to, None);
        }
        self.synced = to;
    }

    fn pay(&mut self, offer: Offer) {
        let Offer { leaf, q, debt, .. } = offer;
        let (at, by_floor) = (self.synced, offer.deadline.is_some());
        let front = self.classes[leaf].queue[0].clone();
        let (two_bursts, span) = (2 * self.least_burst(), self.two_bursts_time());
        let whole = front.cost == q;
        if !whole && !debt && self.shadows.is_empty() {
            self.shadows = self.quotas.clone();
        }
        self.quotas.iter_mut().for_each(|quota| quota.level -= q);
        if whole || debt {
            self.shadows.iter_mut().for_each(|shadow| shadow.level -= q);
        }
        for child in self.path(leaf) {
            let parent = self.classes[child].parent;
            if !by_floor {
                self.classes[parent].v = self.classes[parent].v.max(self.classes[child].s);
            }
            let v = self.classes[parent].v;
            let class = &mut self.classes[child];
            if let Some(ceiling) = class.ceiling.as_mut().filter(|_| !debt) {
                ceiling.level -= q;
            }
            let start = class.s.max(v);
            class.s = start.plus(Fraction::new(q, class.weight));
            if by_floor {
                class.s = start.max(class.s.min(v.plus(Fraction::new(two_bursts, class.weight))));
            }
            let s = class.s;
            self.classes[parent].largest = self.classes[parent].largest.max(s);
        }
        if let Some(floor) = self.floor(leaf) {
            let class = &mut self.classes[leaf];
            let at = Fraction::whole(at);
            let next = class.r.min(at).plus(Fraction::whole(q).over(floor));
            class.r = class.r.max(next).max(at.minus(span));
        }
        self.classes[leaf].queue[0].paid += q;
        self.installments.push(at);
        if front.rest() == q {
            self.leave(leaf, 0);
            self.merge_debts(leaf);
            if !debt {
                self.in_flight += front.cost;
                // A sixteenth of what a grant was charged stays charged.
                self.refundable.insert(front.id, front.cost - (front.cost + 15) / 16);
                self.log.push(Granted { id: front.id, leaf, at, cost: front.cost });
            }
        }
        self.tidy();
    }

    /// Removes a claim from its queue.
    fn leave(&mut self, leaf: ClassId, index: usize) -> Claim {
        let claim = self.classes[leaf].queue.remove(index).expect("the claim waits");
        for class in self.path(leaf) {
            let parent = self.classes[class].parent;
            if !self.is_backlogged(parent) {
                self.classes[parent].v = self.classes[parent].largest;
            }
        }
        claim
    }

    /// Debts that no claim waits behind are charged at once; shadows that are not needed are dropped.
    fn tidy(&mut self) {
        if !self.waits() {
            for leaf in 0..self.classes.len() {
                while !self.classes[leaf].queue.is_empty() {
                    let rest = self.leave(leaf, 0).rest();
                    self.quotas.iter_mut().for_each(|quota| quota.level -= rest);
                }
            }
        }
        if self.set_aside() == 0 {
            self.shadows.clear();
        }
    }

    /// Debts without a claim between them are one debt.
    fn merge_debts(&mut self, leaf: ClassId) {
        let queue = &mut self.classes[leaf].queue;
        let mut index = 1;
        while index < queue.len() {
            if queue[index - 1].debt && queue[index].debt {
                let rest = queue.remove(index).expect("in range").rest();
                queue[index - 1].cost += rest;
            } else {
                index += 1;
            }
        }
    }
}
