//! A limiter made of a scheduler and a supply, as the core makes it, without threads and wakers.

use super::bucket::Rule;
use super::model::Int;
use crate::Quota;
use crate::core::classes::scheduler::{Paid, Step};
use crate::core::classes::{Backlog, ClassId, ROOT, Scheduler, Simulation};
use crate::core::rovers::ahead;
use crate::core::supply::Supply;
use std::collections::VecDeque;

/// A claim in a queue, and the debt noted behind it.
#[derive(Clone, Copy, Debug)]
struct Claim {
    id: usize,
    cost: u64,
    debt: u64,
}

/// A limiter made of a scheduler and a supply, as the core makes it, without threads and wakers.
pub(super) struct Replica {
    pub(super) scheduler: Scheduler,
    pub(super) supply: Supply,
    base: u64,
    /// By the model's numbers of classes: the class in the tree, and its queue.
    classes: Vec<(ClassId, VecDeque<Claim>)>,
    next: usize,
    pub(super) grants: Vec<(usize, u64)>,
    pub(super) installments: Vec<(ClassId, u64, u64, bool)>,
}

impl Replica {
    pub(super) fn new(rules: &[Rule], cap: Option<Int>) -> Self {
        let quotas: Vec<_> = rules.iter().map(|rule| rule.quota()).collect();
        let start = u64::MAX - 7;
        let supply = Supply::new(&quotas, cap.map(|cap| cap as u64), start);
        Self {
            scheduler: Scheduler::new(&supply),
            supply,
            base: start,
            classes: vec![(ROOT, VecDeque::new())],
            next: 0,
            grants: Vec::new(),
            installments: Vec::new(),
        }
    }

    pub(super) fn leaf(&self, class: usize) -> ClassId {
        self.classes[class].0
    }

    fn waits(&self) -> bool {
        self.classes.iter().any(|(_, queue)| !queue.is_empty())
    }

    pub(super) fn serve(&mut self, now: u64) {
        loop {
            let step = self.scheduler.next_step(&self.supply, self.base);
            let (at, ticket) = match step {
                Step::Pay { at, ticket } if at <= now => {
                    self.supply.mint(at, Some(ticket));
                    self.pay(at);
                    continue;
                }
                Step::Recheck { at } if at <= now => {
                    self.supply.mint(at, None);
                    continue;
                }
                Step::Pay { ticket, .. } | Step::Wait { ticket } => (now, Some(ticket)),
                Step::Recheck { .. } => (now, None),
            };
            return self.supply.mint(at, ticket);
        }
    }

    fn pay(&mut self, at: u64) {
        let pick = self.scheduler.tree.picked().expect("an installment is in service");
        self.installments.push((pick.leaf, at, pick.tokens, pick.by_floor));
        let mut at_once = (self.scheduler.clone(), self.supply.clone());
        let paid = self.scheduler.pay(&mut self.supply, self.base);
        let base = self.base;
        self.base = self.base.wrapping_add(pick.tokens);
        if let Paid::Claim(leaf) = paid {
            let (_, queue) = self.classes.iter_mut().find(|(id, _)| *id == leaf).expect("a known leaf");
            let claim = queue.pop_front().expect("the claim in service waits");
            let next = queue.front().map(|claim| claim.cost);
            self.scheduler.advance(leaf, next, claim.debt, at);
            // The limiter does both in one step.
            at_once.0.pay_claim(next, claim.debt, &mut at_once.1, base);
            assert_eq!(format!("{at_once:?}"), format!("{:?}", (&self.scheduler, &self.supply)));
            self.grants.push((claim.id, at));
            self.charge_debts();
        }
    }

    fn charge_debts(&mut self) {
        if !self.waits() {
            let sum = self.scheduler.charge_debts(&mut self.supply);
            self.base = self.base.wrapping_add(sum);
        }
    }

    pub(super) fn add(
        &mut self,
        now: u64,
        parent: usize,
        weight: u64,
        floor: Option<Quota>,
        ceiling: Option<Quota>,
    ) -> usize {
        self.serve(now);
        self.scheduler.tree.unpick();
        let (id, _) = self.scheduler.add(self.leaf(parent), weight, now);
        self.scheduler.tree.set_floor(id, floor, now);
        self.scheduler.tree.set_ceiling(id, ceiling, now);
        self.classes.push((id, VecDeque::new()));
        self.serve(now);
        self.classes.len() - 1
    }

    pub(super) fn arrive(&mut self, now: u64, class: usize, cost: u64) -> usize {
        self.serve(now);
        let id = self.next;
        self.next += 1;
        let leaf = self.leaf(class);
        let end = self.base.wrapping_add(cost);
        let fits = ahead(end, self.supply.limit()) <= 0 && !self.supply.is_paused();
        if !self.waits() && fits && !self.scheduler.tree.is_under_ceiling(leaf) {
            self.supply.claim(cost);
            self.base = end;
            self.grants.push((id, now));
            return id;
        }
        let queue = &mut self.classes[class].1;
        queue.push_back(Claim { id, cost, debt: 0 });
        self.scheduler.arrive(leaf, cost, now);
        self.serve(now);
        id
    }

    pub(super) fn cancel(&mut self, now: u64, id: usize, cost: u64) {
        self.serve(now);
        let found = self.classes.iter().position(|(_, queue)| queue.iter().any(|claim| claim.id == id));
        let Some(class) = found else { return self.refund(now, cost) };
        let (leaf, queue) = &mut self.classes[class];
        let index = queue.iter().position(|claim| claim.id == id).expect("found above");
        let claim = queue.remove(index).expect("found above");
        if index > 0 {
            queue[index - 1].debt += claim.debt;
            return self.shift(claim.cost);
        }
        let (leaf, next) = (*leaf, queue.front().map(|claim| claim.cost));
        let in_service = self.scheduler.tree.picked().is_some_and(|pick| pick.leaf == leaf);
        let paid = self.scheduler.withdraw(leaf, &mut self.supply, self.base);
        self.shift(claim.cost - paid);
        self.supply.raise_ceiling(paid);
        if in_service && self.scheduler.tree.picked().is_none() {
            self.supply.cut(None);
        }
        self.scheduler.advance(leaf, next, claim.debt, now);
        self.charge_debts();
        self.serve(now);
    }

    /// The positions of a claim that is gone.
    fn shift(&mut self, tokens: u64) {
        self.supply.shift(tokens);
        self.base = self.base.wrapping_add(tokens);
    }

    fn refund(&mut self, now: u64, tokens: u64) {
        self.serve(now);
        self.supply.refund(tokens);
        self.scheduler.refund(tokens, now);
        self.supply.raise_ceiling(tokens);
        self.serve(now);
    }

    pub(super) fn release(&mut self, now: u64, tokens: u64) {
        self.serve(now);
        self.supply.raise_ceiling(tokens);
        self.serve(now);
    }

    pub(super) fn charge(&mut self, now: u64, class: usize, tokens: u64) {
        self.serve(now);
        let (waits, leaf) = (self.waits(), self.leaf(class));
        if !waits {
            self.supply.claim(tokens);
            self.base = self.base.wrapping_add(tokens);
            self.scheduler.tree.charge_ceilings(leaf, tokens, now);
        } else if let Some(last) = self.classes[class].1.back_mut() {
            last.debt += tokens;
            self.scheduler.note_debt(tokens);
        } else {
            self.scheduler.add_debt(leaf, tokens, now);
        }
        self.serve(now);
    }

    pub(super) fn set_quota(&mut self, now: u64, index: usize, quota: Quota) {
        self.serve(now);
        self.supply.set_quota(index, quota, None);
        self.scheduler.requote(&self.supply, index, now);
        self.serve(now);
    }

    pub(super) fn estimate(&self, class: usize, cost: u64) -> Option<u64> {
        let leaf = self.leaf(class);
        let end = self.base.wrapping_add(cost);
        let is_free = !self.waits() && ahead(end, self.supply.limit()) <= 0 && !self.supply.is_paused();
        if is_free && !self.scheduler.tree.is_under_ceiling(leaf) {
            return Some(self.supply.synced());
        }
        let queue = |id: ClassId| {
            let known = self.classes.iter().find(|(known, _)| *known == id);
            known.into_iter().flat_map(|(_, queue)| queue).map(|claim| (claim.cost, claim.debt))
        };
        // Larger than it is: no estimate here takes so many steps that it matters.
        let backlog = Backlog { own: u64::MAX >> 8, all: u64::MAX >> 8 };
        Simulation::new(&self.scheduler, &self.supply, self.base).grants(leaf, cost, backlog, queue)
    }

    pub(super) fn levels(&self) -> Vec<Int> {
        self.supply.quotas().iter().map(|quota| Int::from(ahead(quota.head, self.base))).collect()
    }
}
