//! The model: how a limiter shares its tokens among classes, written from the specification and not from the code.
//!
//! Exact fractions, recursion over the whole tree, one step per installment; no positions, no heaps, no locks. The
//! model keeps a log of the installments that it serves, for those that compare it.
//!
//! The terms: a *child* of an inner class has a start tag `s` in the virtual time `v` of its parent; a *leaf* has a
//! queue of claims; an *installment* is what a claim receives in one turn.
#![allow(dead_code, reason = "included by the tests of the crate and by the integration tests, which use parts of it")]

use super::bucket::{Bucket, Rule};
use super::fraction::Fraction;
use std::collections::VecDeque;

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

/// One installment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) leaf: ClassId,
    pub(crate) id: Id,
    pub(crate) at: Int,
    pub(crate) tokens: Int,
    pub(crate) by_floor: bool,
    /// Whether the claim was paid in one piece.
    pub(crate) whole: bool,
    /// Whether the claim was granted with this installment.
    pub(crate) last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) id: Id,
    pub(crate) at: Int,
    pub(crate) cost: Int,
}

/// What a class could be served next.
#[derive(Clone, Copy, Debug)]
struct Offer {
    leaf: ClassId,
    q: Int,
    deadline: Option<Fraction>,
}

#[derive(Clone, Copy, Debug)]
struct InService {
    leaf: ClassId,
    by_floor: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// False for a limiter without classes: one leaf, whose claims are paid in one piece.
    divides: bool,
    pub(crate) quotas: Vec<Bucket>,
    /// While something is set aside: the quotas as if no divided claim had taken from them.
    shadows: Vec<Bucket>,
    pub(crate) classes: Vec<Class>,
    cap: Option<Int>,
    pub(crate) in_flight: Int,
    gate: Int,
    /// The instant up to which the limiter has been served.
    pub(crate) synced: Int,
    in_service: Option<InService>,
    count: u64,
    next: Id,
    pub(crate) log: Vec<Granted>,
    pub(crate) installments: Vec<Served>,
    /// Tokens that cancelled divided claims and refunds gave back, with their instants.
    pub(crate) given: Vec<(Int, Int)>,
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
            divides: true,
            quotas: rules.iter().map(|rule| Bucket::new(*rule)).collect(),
            shadows: Vec::new(),
            classes: vec![root],
            cap,
            in_flight: 0,
            gate: 0,
            synced: 0,
            in_service: None,
            count: 0,
            next: 0,
            log: Vec::new(),
            installments: Vec::new(),
            given: Vec::new(),
        }
    }

    /// A limiter without classes. Its claims are made in class 0.
    pub(crate) fn without_classes(rules: &[Rule], cap: Option<Int>) -> Self {
        Self { divides: false, ..Self::new(rules, cap) }
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
        let ceiling = ceiling.map(Bucket::new);
        let (s, r) = (self.classes[parent].v, Fraction::whole(self.synced));
        self.classes.push(Class { parent, weight, floor, ceiling, s, r, ..self.blank() });
        self.classes[parent].children.push(id);
        self.pick_again(now);
        id
    }

    fn blank(&self) -> Class {
        let (queue, children) = (VecDeque::new(), Vec::new());
        let zero = Fraction::ZERO;
        let root = &self.classes[0];
        Class { queue, children, v: zero, largest: zero, since: 0, former_ceiling: None, ..root.clone() }
    }

    fn is_leaf(&self, class: ClassId) -> bool {
        self.classes[class].children.is_empty()
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

    pub(crate) fn waiting(&self) -> (usize, Int) {
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
        let rate = self.quotas.iter().filter_map(|quota| quota.rule.rate()).min();
        match rate {
            Some(rate) if sum > rate => Some(floor.times(rate).over(sum)),
            _ => Some(floor),
        }
    }

    /// The time in which two bursts are minted.
    fn two_bursts_time(&self) -> Fraction {
        let times =
            self.quotas.iter().filter_map(|quota| Some(Fraction::whole(2 * quota.rule.burst).over(quota.rule.rate()?)));
        times.max().unwrap_or(Fraction::ZERO)
    }

    fn installment(&self, leaf: ClassId, rest: Int) -> Int {
        let ceilings = self.path(leaf).into_iter().filter_map(|class| self.classes[class].ceiling.as_ref());
        let mut q = ceilings.map(|ceiling| ceiling.rule.burst).fold(rest, Int::min);
        if self.divides {
            q = q.min(self.least_burst());
        }
        q
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
            offer = Some(Offer { leaf: class, q, deadline });
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
        if let (Some(offered), Some(ceiling)) = (offer, &node.ceiling)
            && ceiling.level < offered.q
        {
            let enough = ceiling.when(self.synced, offered.q).unwrap_or(NEVER);
            return (None, again.min(enough));
        }
        (offer, again)
    }

    fn choose(&mut self) -> Int {
        let (offer, again) = self.pick(0);
        if let Some(offer) = offer {
            let by_floor = offer.deadline.is_some();
            self.in_service = Some(InService { leaf: offer.leaf, by_floor });
            if !by_floor {
                for child in self.path(offer.leaf) {
                    let (parent, s) = (self.classes[child].parent, self.classes[child].s);
                    self.classes[parent].v = self.classes[parent].v.max(s);
                }
            }
        }
        self.cut();
        again
    }

    /// The installment of the claim in service.
    fn due_installment(&self) -> Option<Int> {
        let leaf = self.in_service?.leaf;
        let front = self.classes[leaf].queue.front().expect("the claim in service waits");
        Some(self.installment(leaf, front.rest()))
    }

    fn cut(&mut self) {
        let q = self.due_installment().unwrap_or(0);
        self.quotas.iter_mut().for_each(|quota| quota.cut(quota.rule.burst.max(q)));
    }

    /// Serves the limiter up to `now`, each installment at its own instant.
    pub(crate) fn serve(&mut self, now: Int) {
        let now = now.max(self.synced);
        loop {
            let mut at = NEVER;
            if self.in_service.is_none() {
                at = self.choose();
            }
            if let (Some(service), Some(q)) = (self.in_service, self.due_installment()) {
                let front = &self.classes[service.leaf].queue[0];
                at = self.synced.max(self.gate);
                for quota in &self.quotas {
                    at = at.max(quota.when(self.synced, q).unwrap_or(NEVER));
                }
                let capped = self.cap.is_some_and(|cap| self.in_flight + front.cost > cap);
                if q == front.rest() && !front.debt && capped {
                    at = NEVER;
                }
            }
            if at > now {
                return self.mint(now);
            }
            self.mint(at);
            if self.in_service.is_some() {
                self.pay(at);
            }
        }
    }

    fn mint(&mut self, to: Int) {
        let q = self.due_installment().unwrap_or(0);
        for quota in &mut self.quotas {
            quota.mint(self.synced, to, quota.rule.burst.max(q));
        }
        let ceilings =
            self.classes.iter_mut().filter_map(|class| class.ceiling.as_mut().or(class.former_ceiling.as_mut()));
        for bucket in ceilings.chain(&mut self.shadows) {
            bucket.mint(self.synced, to, bucket.rule.burst);
        }
        self.synced = to;
    }

    fn pay(&mut self, at: Int) {
        let service = self.in_service.take().expect("a claim is in service");
        let leaf = service.leaf;
        let front = self.classes[leaf].queue[0].clone();
        let q = self.installment(leaf, front.rest());
        let (two_bursts, span) = (2 * self.least_burst(), self.two_bursts_time());
        let whole = front.cost == q;
        if !whole && !front.debt && self.shadows.is_empty() {
            self.shadows = self.quotas.clone();
        }
        self.quotas.iter_mut().for_each(|quota| quota.level -= q);
        if whole || front.debt {
            self.shadows.iter_mut().for_each(|shadow| shadow.level -= q);
        }
        for child in self.path(leaf) {
            let v = self.classes[self.classes[child].parent].v;
            let class = &mut self.classes[child];
            if let Some(ceiling) = &mut class.ceiling {
                ceiling.level -= q;
            }
            let start = class.s.max(v);
            class.s = start.plus(Fraction::new(q, class.weight));
            if service.by_floor {
                class.s = start.max(class.s.min(v.plus(Fraction::new(two_bursts, class.weight))));
            }
            let (s, parent) = (class.s, class.parent);
            self.classes[parent].largest = self.classes[parent].largest.max(s);
        }
        if let Some(floor) = self.floor(leaf) {
            let class = &mut self.classes[leaf];
            let at = Fraction::whole(at);
            let next = class.r.min(at).plus(Fraction::whole(q).over(floor));
            class.r = class.r.max(next).max(at.minus(span));
        }
        self.classes[leaf].queue[0].paid += q;
        let last = front.rest() == q;
        self.installments.push(Served {
            leaf,
            id: front.id,
            at,
            tokens: q,
            by_floor: service.by_floor,
            whole,
            last: last && !front.debt,
        });
        if last {
            self.leave(leaf, 0);
            self.merge_debts(leaf);
            if !front.debt {
                self.in_flight += front.cost;
                self.log.push(Granted { id: front.id, at, cost: front.cost });
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
                    if self.in_service.is_some_and(|service| service.leaf == leaf) {
                        self.in_service = None;
                    }
                    let rest = self.leave(leaf, 0).rest();
                    self.owe(leaf, rest);
                }
            }
        }
        if self.set_aside() == 0 {
            self.shadows.clear();
        }
    }

    /// Debts without a claim between them are one debt. If the debt in service grows, the pick is made anew.
    fn merge_debts(&mut self, leaf: ClassId) {
        let queue = &mut self.classes[leaf].queue;
        let mut index = 1;
        while index < queue.len() {
            if queue[index - 1].debt && queue[index].debt {
                let rest = queue.remove(index).expect("in range").rest();
                queue[index - 1].cost += rest;
                if index == 1 && self.in_service.is_some_and(|service| service.leaf == leaf) {
                    self.in_service = None;
                }
            } else {
                index += 1;
            }
        }
    }

    fn owe(&mut self, leaf: ClassId, tokens: Int) {
        self.quotas.iter_mut().for_each(|quota| quota.level -= tokens);
        for class in self.path(leaf) {
            if let Some(ceiling) = &mut self.classes[class].ceiling {
                ceiling.level -= tokens;
            }
        }
    }

    /// A caller claims `cost` tokens and waits for them if necessary.
    pub(crate) fn arrive(&mut self, now: Int, leaf: ClassId, cost: Int) -> Id {
        self.serve(now);
        let id = self.next;
        self.next += 1;
        if self.passes_fast(leaf, cost) {
            self.quotas.iter_mut().for_each(|quota| quota.level -= cost);
            self.in_flight += cost;
            self.log.push(Granted { id, at: self.synced, cost });
            return id;
        }
        self.enter(leaf, Claim { id, cost, paid: 0, debt: false });
        self.serve(now);
        id
    }

    fn passes_fast(&self, leaf: ClassId, cost: Int) -> bool {
        !self.waits()
            && self.gate <= self.synced
            && self.quotas.iter().all(|quota| quota.level >= cost)
            && self.cap.is_none_or(|cap| self.in_flight + cost <= cap)
            && self.path(leaf).iter().all(|class| self.classes[*class].ceiling.is_none())
    }

    /// A caller claims `cost` tokens unless it would have to wait for them.
    pub(crate) fn try_acquire(&mut self, now: Int, leaf: ClassId, cost: Int) -> bool {
        self.serve(now);
        let mut tried = self.clone();
        let id = tried.arrive(now, leaf, cost);
        let granted = tried.log.iter().any(|granted| granted.id == id);
        if granted {
            *self = tried;
        }
        granted
    }

    fn enter(&mut self, leaf: ClassId, claim: Claim) {
        self.count += 1;
        let now = Fraction::whole(self.synced);
        if self.classes[leaf].queue.is_empty() {
            if self.classes[leaf].floor.is_some() {
                self.classes[leaf].r = self.classes[leaf].r.max(now);
            }
            for child in self.path(leaf) {
                if self.is_backlogged(child) {
                    break;
                }
                let v = self.classes[self.classes[child].parent].v;
                self.classes[child].s = self.classes[child].s.max(v);
                self.classes[child].since = self.count;
            }
        }
        self.classes[leaf].queue.push_back(claim);
    }

    fn find(&self, id: Id) -> Option<(ClassId, usize)> {
        self.classes.iter().enumerate().find_map(|(leaf, class)| {
            let index = class.queue.iter().position(|claim| claim.id == id && !claim.debt)?;
            Some((leaf, index))
        })
    }

    /// The caller gives a claim up. A claim that was granted is refunded: its caller has not seen the grant.
    pub(crate) fn cancel(&mut self, now: Int, id: Id) {
        self.serve(now);
        let Some((leaf, index)) = self.find(id) else {
            if let Some(granted) = self.log.iter().copied().find(|granted| granted.id == id) {
                self.refund(now, granted.cost);
            }
            return;
        };
        self.withdraw(leaf, index);
        self.serve(now);
    }

    fn withdraw(&mut self, leaf: ClassId, index: usize) {
        let claim = self.leave(leaf, index);
        self.merge_debts(leaf);
        if index == 0 && self.in_service.is_some_and(|service| service.leaf == leaf) {
            self.in_service = None;
            self.cut();
        }
        if claim.paid > 0 {
            let mut back = 0;
            for (quota, shadow) in self.quotas.iter_mut().zip(&self.shadows) {
                let space = quota.rule.burst.min(shadow.level) - quota.level;
                let returned = claim.paid.min(space).max(0);
                quota.level += returned;
                if quota.level >= shadow.level {
                    quota.rest = quota.rest.min(shadow.rest);
                }
                back = back.max(returned);
            }
            self.given.push((self.synced, claim.paid));
        }
        self.tidy();
    }

    /// Tokens of a grant come back unused and are not in flight any more.
    pub(crate) fn refund(&mut self, now: Int, tokens: Int) {
        self.serve(now);
        for bucket in self.quotas.iter_mut().chain(&mut self.shadows) {
            bucket.add(tokens, bucket.rule.burst);
        }
        self.in_flight -= tokens;
        self.given.push((self.synced, tokens));
        self.serve(now);
    }

    /// Tokens are added by hand: to the manual quotas if there are any, else to all.
    pub(crate) fn replenish(&mut self, now: Int, tokens: Int) {
        self.serve(now);
        let any_manual = self.quotas.iter().any(|quota| quota.rule.period == 0);
        for bucket in self.quotas.iter_mut().chain(&mut self.shadows) {
            if bucket.rule.period == 0 || !any_manual {
                bucket.add(tokens, bucket.rule.burst);
            }
        }
        self.given.push((self.synced, tokens));
        self.serve(now);
    }

    /// A grant of this class cost more than was claimed.
    pub(crate) fn charge(&mut self, now: Int, leaf: ClassId, tokens: Int) {
        self.serve(now);
        self.in_flight += tokens;
        if self.waits() {
            self.enter(leaf, Claim { id: Id::MAX, cost: tokens, paid: 0, debt: true });
            self.merge_debts(leaf);
        } else {
            self.owe(leaf, tokens);
        }
        self.serve(now);
    }

    pub(crate) fn release(&mut self, now: Int, tokens: Int) {
        self.serve(now);
        self.in_flight -= tokens;
        self.serve(now);
    }

    pub(crate) fn pause_for(&mut self, now: Int, span: Int) {
        self.serve(now);
        self.gate = self.gate.max(now + span);
    }

    fn pick_again(&mut self, now: Int) {
        self.in_service = None;
        self.serve(now);
    }

    pub(crate) fn set_quota(&mut self, now: Int, index: usize, rule: Rule) {
        self.serve(now);
        let at = self.synced;
        self.quotas[index].change(rule, at);
        if let Some(shadow) = self.shadows.get_mut(index) {
            shadow.change(rule, at);
            shadow.cut(rule.burst);
        }
        self.pick_again(now);
    }

    pub(crate) fn set_floor(&mut self, now: Int, class: ClassId, floor: Option<Fraction>) {
        self.serve(now);
        self.replace_floor(class, floor);
        self.pick_again(now);
    }

    pub(crate) fn set_ceiling(&mut self, now: Int, class: ClassId, ceiling: Option<Rule>) {
        self.serve(now);
        self.replace_ceiling(class, ceiling);
        self.pick_again(now);
    }

    /// Changes the weight, and floor and ceiling if `bounds` has them. That is one event: no claim is served while only
    /// a part of the change applies.
    pub(crate) fn set_share(
        &mut self,
        now: Int,
        class: ClassId,
        weight: Int,
        bounds: Option<(Option<Fraction>, Option<Rule>)>,
    ) {
        self.serve(now);
        self.classes[class].weight = weight;
        if let Some((floor, ceiling)) = bounds {
            self.replace_floor(class, floor);
            self.replace_ceiling(class, ceiling);
            self.in_service = None;
        }
        self.serve(now);
    }

    fn replace_floor(&mut self, class: ClassId, floor: Option<Fraction>) {
        let at = Fraction::whole(self.synced);
        let class = &mut self.classes[class];
        if class.floor.is_none() {
            // If it had a floor before, that goes on where it was.
            class.r = class.r.max(at);
        }
        class.floor = floor;
    }

    fn replace_ceiling(&mut self, class: ClassId, ceiling: Option<Rule>) {
        let at = self.synced;
        let class = &mut self.classes[class];
        let known = class.ceiling.take().or_else(|| class.former_ceiling.take());
        match (known, ceiling) {
            (Some(mut known), Some(rule)) => {
                known.change(rule, at);
                known.cut(rule.burst);
                class.ceiling = Some(known);
            }
            (None, Some(rule)) => class.ceiling = Some(Bucket::starting(rule, at)),
            (known, None) => class.former_ceiling = known,
        }
    }

    /// Turns the waiters of a leaf away. Its debts stay, and are paid in its turns.
    pub(crate) fn remove_class(&mut self, now: Int, leaf: ClassId) {
        self.serve(now);
        while let Some(index) = self.classes[leaf].queue.iter().position(|claim| !claim.debt) {
            self.withdraw(leaf, index);
        }
        self.classes[leaf].floor = None;
        self.pick_again(now);
    }

    /// The instant at which a claim made now would be granted if no caller did anything else and there were no in-flight
    /// cap.
    pub(crate) fn estimate(&self, now: Int, leaf: ClassId, cost: Int) -> Option<Int> {
        self.forecast(now, leaf, cost).map(|(at, _)| at)
    }

    /// The same, with the number of installments until then.
    pub(crate) fn forecast(&self, now: Int, leaf: ClassId, cost: Int) -> Option<(Int, usize)> {
        let mut tried = self.clone();
        let id = tried.arrive(now, leaf, cost);
        tried.cap = None;
        let mut horizon = 1_000;
        while horizon < 1 << 62 {
            tried.serve(now + horizon);
            if let Some(granted) = tried.log.iter().find(|granted| granted.id == id) {
                let served = tried.installments[self.installments.len()..].iter();
                return Some((granted.at, served.take_while(|served| served.at <= granted.at).count()));
            }
            horizon *= 2;
        }
        None
    }
}
