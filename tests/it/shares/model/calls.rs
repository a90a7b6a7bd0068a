//! What callers do: claims, refunds, debts, changes of rules and classes. Each call first serves what is due.

use super::{Bucket, Claim, ClassId, Fraction, Granted, Id, Int, Model, Rule};
use crate::oracle::Refill;

impl Model {
    /// A caller claims `cost` tokens and waits for them if necessary.
    pub(crate) fn arrive(&mut self, now: Int, leaf: ClassId, cost: Int) -> Id {
        self.serve(now);
        let id = self.next;
        self.next += 1;
        if self.passes_fast(leaf, cost) {
            self.quotas.iter_mut().for_each(|quota| quota.level -= cost);
            self.in_flight += cost;
            self.log.push(Granted { id, leaf, at: self.synced, cost });
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
                self.refund(now, granted.leaf, id, granted.cost);
            }
            return;
        };
        self.withdraw(leaf, index);
        self.serve(now);
    }

    fn withdraw(&mut self, leaf: ClassId, index: usize) {
        let claim = self.leave(leaf, index);
        self.merge_debts(leaf);
        if claim.paid > 0 {
            for (quota, shadow) in self.quotas.iter_mut().zip(&self.shadows) {
                let space = quota.rule.burst.min(shadow.level) - quota.level;
                let returned = claim.paid.min(space).max(0);
                quota.level += returned;
                if quota.level >= shadow.level {
                    quota.rest = quota.rest.min(shadow.rest);
                }
            }
        }
        self.tidy();
    }

    /// A grant is settled for `tokens` less than its cost.
    pub(crate) fn settle_down(&mut self, now: Int, leaf: ClassId, id: Id, tokens: Int) {
        if tokens > 0 {
            self.refund(now, leaf, id, tokens);
        }
        self.log.iter_mut().filter(|granted| granted.id == id).for_each(|granted| granted.cost -= tokens);
    }

    /// Tokens of the grant `id` come back unused and are not in flight any more.
    pub(crate) fn refund(&mut self, now: Int, leaf: ClassId, id: Id, tokens: Int) {
        self.serve(now);
        for bucket in self.quotas.iter_mut().chain(&mut self.shadows) {
            bucket.add(tokens, bucket.rule.burst);
        }
        let refundable = self.refundable.entry(id).or_default();
        let lowered = tokens.min(*refundable);
        *refundable -= lowered;
        for class in self.path(leaf) {
            let v = self.classes[self.classes[class].parent].v;
            let class = &mut self.classes[class];
            if let Some(ceiling) = &mut class.ceiling {
                ceiling.add(tokens, ceiling.rule.burst);
            }
            class.s = class.s.minus(Fraction::new(lowered, class.weight)).max(class.s.min(v));
        }
        if let Some(floor) = self.floor(leaf) {
            let (at, class) = (Fraction::whole(self.synced), &mut self.classes[leaf]);
            class.r = class.r.minus(Fraction::whole(lowered).over(floor)).max(class.r.min(at));
        }
        self.in_flight -= tokens;
        self.serve(now);
    }

    /// Tokens are added by hand: to the manual quotas if there are any, else to all.
    pub(crate) fn replenish(&mut self, now: Int, tokens: Int) {
        self.serve(now);
        let any_manual = self.quotas.iter().any(|quota| quota.rule.refill == Refill::Manual);
        for bucket in self.quotas.iter_mut().chain(&mut self.shadows) {
            if bucket.rule.refill == Refill::Manual || !any_manual {
                bucket.add(tokens, bucket.rule.burst);
            }
        }
        self.serve(now);
    }

    /// A grant of this class cost more than was claimed.
    pub(crate) fn charge(&mut self, now: Int, leaf: ClassId, tokens: Int) {
        self.serve(now);
        self.in_flight += tokens;
        for class in self.path(leaf) {
            if let Some(ceiling) = &mut self.classes[class].ceiling {
                ceiling.level -= tokens;
            }
        }
        if self.waits() {
            self.enter(leaf, Claim { id: Id::MAX, cost: tokens, paid: 0, debt: true });
            self.merge_debts(leaf);
        } else {
            self.quotas.iter_mut().for_each(|quota| quota.level -= tokens);
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

    pub(crate) fn set_quota(&mut self, now: Int, index: usize, rule: Rule) {
        self.serve(now);
        let at = self.synced;
        // What is above the burst is cut when it is known what is served next.
        self.quotas[index].change(rule, at, Some(Int::MAX));
        if let Some(shadow) = self.shadows.get_mut(index) {
            shadow.change(rule, at, None);
        }
        self.serve(now);
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
                known.change(rule, at, None);
                class.ceiling = Some(known);
            }
            (None, Some(rule)) => class.ceiling = Some(Bucket::new(rule, at)),
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
        self.serve(now);
    }

    /// The instant at which a claim made now would be granted if no caller did anything else and there were no in-flight
    /// cap, and the number of installments until then.
    pub(crate) fn forecast(&self, now: Int, leaf: ClassId, cost: Int) -> Option<(Int, usize)> {
        let mut tried = self.clone();
        let id = tried.arrive(now, leaf, cost);
        tried.cap = None;
        let mut horizon = 1_000;
        while horizon < 1 << 62 {
            tried.serve(now + horizon);
            if let Some(granted) = tried.log.iter().find(|granted| granted.id == id) {
                let served = tried.installments[self.installments.len()..].iter();
                return Some((granted.at, served.take_while(|at| **at <= granted.at).count()));
            }
            horizon *= 2;
        }
        None
    }
}
