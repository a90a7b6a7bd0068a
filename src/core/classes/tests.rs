//! The scheduler against the exact model: the same installments at the same instants, and the same levels.

#[path = "../../../tests/it/shares/bucket.rs"]
mod bucket;
#[path = "../../../tests/it/shares/fraction.rs"]
mod fraction;
#[path = "../../../tests/it/shares/model.rs"]
mod model;
#[path = "../../../tests/it/shares/seeds.rs"]
mod seeds;

use super::scheduler::Paid;
use super::{Backlog, ClassId, ROOT, Scheduler, Simulation, Step};
use crate::Quota;
use crate::core::rovers::ahead;
use crate::core::supply::Supply;
use bucket::Rule;
use fastrand::Rng;
use fraction::Fraction;
use model::{Int, Model, Served};
use seeds::seeds;
use std::collections::VecDeque;
use std::time::Duration;

/// A claim in a queue, and the debt noted behind it.
#[derive(Clone, Copy, Debug)]
struct Claim {
    id: usize,
    cost: u64,
    debt: u64,
}

/// A limiter made of a scheduler and a supply, as the core makes it, without threads and wakers.
struct Replica {
    scheduler: Scheduler,
    supply: Supply,
    base: u64,
    /// By the model's numbers of classes: the class in the tree, and its queue.
    classes: Vec<(ClassId, VecDeque<Claim>)>,
    next: usize,
    grants: Vec<(usize, u64)>,
    installments: Vec<(ClassId, u64, u64, bool)>,
}

fn quota(rule: Rule) -> Quota {
    let quota = match rule.period {
        0 => Quota::manual(rule.burst as u64),
        period => Quota::new(rule.amount as u64, Duration::from_nanos(period as u64)).burst(rule.burst as u64),
    };
    let quota = quota.initial(rule.initial as u64);
    if rule.stepped { quota.stepped() } else { quota }
}

impl Replica {
    fn new(rules: &[Rule], cap: Option<Int>) -> Self {
        let quotas: Vec<_> = rules.iter().map(|rule| quota(*rule)).collect();
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

    fn leaf(&self, class: usize) -> ClassId {
        self.classes[class].0
    }

    fn waits(&self) -> bool {
        self.classes.iter().any(|(_, queue)| !queue.is_empty())
    }

    fn serve(&mut self, now: u64) {
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
        let paid = self.scheduler.pay(&mut self.supply, self.base);
        self.base = self.base.wrapping_add(pick.tokens);
        if let Paid::Claim(leaf) = paid {
            let (_, queue) = self.classes.iter_mut().find(|(id, _)| *id == leaf).expect("a known leaf");
            let claim = queue.pop_front().expect("the claim in service waits");
            let next = queue.front().map(|claim| claim.cost);
            self.scheduler.advance(leaf, next, claim.debt, at);
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

    fn add(&mut self, now: u64, parent: usize, weight: u64, floor: Option<Quota>, ceiling: Option<Quota>) -> usize {
        self.serve(now);
        self.scheduler.tree.unpick();
        let (id, _) = self.scheduler.add(self.leaf(parent), weight, now);
        self.scheduler.tree.set_floor(id, floor, now);
        self.scheduler.tree.set_ceiling(id, ceiling, now);
        self.classes.push((id, VecDeque::new()));
        self.serve(now);
        self.classes.len() - 1
    }

    fn arrive(&mut self, now: u64, class: usize, cost: u64) -> usize {
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

    fn cancel(&mut self, now: u64, id: usize, cost: u64) {
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

    fn release(&mut self, now: u64, tokens: u64) {
        self.serve(now);
        self.supply.raise_ceiling(tokens);
        self.serve(now);
    }

    fn charge(&mut self, now: u64, class: usize, tokens: u64) {
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

    fn set_quota(&mut self, now: u64, index: usize, quota: Quota) {
        self.serve(now);
        self.supply.set_quota(index, quota, None);
        self.scheduler.requote(&self.supply, index, now);
        self.serve(now);
    }

    fn estimate(&self, class: usize, cost: u64) -> Option<u64> {
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
        Simulation::new(&self.scheduler, &self.supply, self.base).grants((leaf, cost), backlog, queue)
    }

    fn levels(&self) -> Vec<Int> {
        self.supply.quotas().iter().map(|quota| Int::from(ahead(quota.head, self.base))).collect()
    }
}

/// What a random history consists of.
#[derive(Clone, Copy, Debug)]
struct Kind {
    floors: bool,
    ceilings: bool,
    changes: bool,
    exact_weights: bool,
}

struct History {
    random: Rng,
    kind: Kind,
    model: Model,
    replica: Replica,
    now: u64,
    leaves: Vec<usize>,
    inner: Vec<usize>,
    /// Claims that may still wait, and grants: number, class and cost.
    claims: Vec<(usize, usize, u64)>,
    scale: u64,
}

impl History {
    fn new(seed: u64, kind: Kind) -> Self {
        let mut random = Rng::with_seed(seed);
        let scale = *random.choice(&[1, 10, 1_000, 1_000_000]).expect("not empty");
        let mut rules = vec![rule(&mut random, scale, kind.changes)];
        if kind.changes && random.u8(0..3) == 0 {
            rules.push(rule(&mut random, scale, true));
        }
        let least = rules.iter().map(|rule| rule.burst).min().expect("one");
        let cap = (kind.changes && random.u8(0..3) == 0).then(|| least + random.i128(0..30));
        let (model, replica) = (Model::new(&rules, cap), Replica::new(&rules, cap));
        let (leaves, inner, claims) = (Vec::new(), vec![0], Vec::new());
        let mut history = Self { random, kind, model, replica, now: 0, leaves, inner, claims, scale };
        for _ in 0..history.random.usize(2..6) {
            history.add();
        }
        history
    }

    fn weight(&mut self) -> u64 {
        let weights: &[u64] = if self.kind.exact_weights { &[1, 1, 2, 3, 4, 6, 12] } else { &[1, 7, 41, 997, 65_537] };
        *self.random.choice(weights).expect("not empty")
    }

    fn floor(&mut self) -> Option<(u64, u64)> {
        let wanted = self.kind.floors && self.random.bool();
        // 1, 2, 3, 4, 5 or 6 tokens in 60 times the scale.
        wanted.then(|| (self.random.u64(1..7), 60 * self.scale))
    }

    fn ceiling(&mut self) -> Option<Rule> {
        let wanted = self.kind.ceilings && self.random.u8(0..3) == 0;
        wanted.then(|| rule(&mut self.random, self.scale, false))
    }

    /// A class at the top or inside another one; a few classes are inner classes.
    fn add(&mut self) {
        let parent = *self.random.choice(&self.inner).expect("the root");
        let is_inner = self.inner.len() < 3 && self.random.u8(0..4) == 0;
        let weight = self.weight();
        let floor = if is_inner { None } else { self.floor() };
        let ceiling = self.ceiling();
        let now = Int::from(self.now);
        let fraction = floor.map(|(tokens, nanos)| Fraction::new(tokens.into(), nanos.into()));
        let id = self.model.add_class(now, parent, weight.into(), fraction, ceiling);
        let floor = floor.map(|(tokens, nanos)| Quota::new(tokens, Duration::from_nanos(nanos)));
        let added = self.replica.add(self.now, parent, weight, floor, ceiling.map(quota));
        assert_eq!(id, added);
        if is_inner {
            self.inner.push(id);
        } else {
            self.leaves.push(id);
        }
        if is_inner {
            // Inner classes have no queue in the model: give it a child at once.
            self.inner.push(id);
            let weight = self.weight();
            let child = self.model.add_class(now, id, weight.into(), None, None);
            assert_eq!(child, self.replica.add(self.now, id, weight, None, None));
            self.leaves.push(child);
        }
    }

    fn step(&mut self) {
        let now = Int::from(self.now);
        let leaf = *self.random.choice(&self.leaves).expect("a leaf");
        match self.random.u8(0..if self.kind.changes { 32 } else { 20 }) {
            0..9 => {
                let most = self.model.least_burst() as u64;
                let cost = match self.random.u8(0..4) {
                    0 => self.random.u64(1..=most),
                    1 => self.random.u64(1..=most * 4 + 3),
                    _ => 1,
                };
                for _ in 0..self.random.usize(1..4) {
                    let id = self.model.arrive(now, leaf, cost.into());
                    assert_eq!(id, self.replica.arrive(self.now, leaf, cost));
                    self.claims.push((id, leaf, cost));
                }
            }
            9..12 if !self.claims.is_empty() => {
                let index = self.random.usize(0..self.claims.len());
                let (id, _, cost) = self.claims.swap_remove(index);
                self.model.cancel(now, id);
                self.replica.cancel(self.now, id, cost);
            }
            12..20 => self.now += self.random.u64(0..40) * self.scale / 2 + self.random.u64(0..3),
            20 => {
                let weight = self.weight();
                self.model.set_share(now, leaf, weight.into(), None);
                self.replica.serve(self.now);
                let id = self.replica.leaf(leaf);
                self.replica.scheduler.tree.set_weight(id, weight, self.now);
            }
            21 => {
                let floor = self.floor();
                let fraction = floor.map(|(tokens, nanos)| Fraction::new(tokens.into(), nanos.into()));
                self.model.set_floor(now, leaf, fraction);
                self.replica.serve(self.now);
                let id = self.replica.leaf(leaf);
                let floor = floor.map(|(tokens, nanos)| Quota::new(tokens, Duration::from_nanos(nanos)));
                self.replica.scheduler.tree.set_floor(id, floor, self.now);
                self.replica.scheduler.tree.unpick();
            }
            22 => {
                let index = self.random.usize(1..self.model.classes.len());
                let ceiling = self.ceiling();
                self.model.set_ceiling(now, index, ceiling);
                self.replica.serve(self.now);
                let id = self.replica.leaf(index);
                self.replica.scheduler.tree.set_ceiling(id, ceiling.map(quota), self.now);
            }
            23 => {
                let index = self.random.usize(0..self.model.quotas.len());
                let rule = rule(&mut self.random, self.scale, true);
                self.model.set_quota(now, index, rule);
                self.replica.set_quota(self.now, index, quota(rule));
            }
            24 => {
                let span = self.random.u64(0..60) * self.scale;
                self.model.pause_for(now, span.into());
                self.replica.serve(self.now);
                self.replica.supply.pause_until(self.now + span);
            }
            25 if self.model.classes.len() < 12 => self.add(),
            26 | 27 => {
                let tokens = self.random.u64(1..12);
                self.model.charge(now, leaf, tokens.into());
                self.replica.charge(self.now, leaf, tokens);
            }
            28..31 => {
                self.model.serve(now);
                let tokens = self.model.in_flight.max(0) as u64;
                if tokens > 0 {
                    let tokens = self.random.u64(1..=tokens);
                    self.model.release(now, tokens.into());
                    self.replica.release(self.now, tokens);
                }
            }
            _ => self.estimate(),
        }
    }

    fn estimate(&mut self) {
        self.model.serve(self.now.into());
        self.replica.serve(self.now);
        let leaf = *self.random.choice(&self.leaves).expect("a leaf");
        let cost = self.random.u64(1..20);
        let expected = self.model.estimate(self.now.into(), leaf, cost.into());
        assert_eq!(self.replica.estimate(leaf, cost).map(Int::from), expected);
    }

    fn compare(&mut self, seed: u64) {
        self.model.serve(self.now.into());
        self.replica.serve(self.now);
        let known = |served: &Served| {
            let leaf = self.replica.leaf(served.leaf);
            (leaf, served.at as u64, served.tokens as u64, served.by_floor)
        };
        let expected: Vec<_> = self.model.installments.iter().map(known).collect();
        assert_eq!(self.replica.installments, expected, "seed {seed} {:?}", self.kind);
        let grants: Vec<_> = self.model.log.iter().map(|granted| (granted.id, granted.at as u64)).collect();
        assert_eq!(self.replica.grants, grants, "seed {seed} {:?}", self.kind);
        let levels: Vec<_> = self.model.quotas.iter().map(|quota| quota.level).collect();
        assert_eq!(self.replica.levels(), levels, "seed {seed} {:?} at {}", self.kind, self.now);
    }
}

fn rule(random: &mut Rng, scale: u64, any: bool) -> Rule {
    let burst = random.i128(1..14);
    let scale = Int::from(scale);
    let initial = random.i128(0..=burst);
    if any && random.u8(0..5) == 0 {
        let period = scale * random.i128(5..60);
        return Rule { amount: random.i128(1..=burst), period, stepped: true, burst, initial };
    }
    Rule::continuous(random.i128(1..5), scale * random.i128(4..20), burst, initial)
}

fn histories(kind: Kind) {
    for seed in seeds(400) {
        let mut history = History::new(seed, kind);
        for _ in 0..40 {
            history.step();
            history.compare(seed);
        }
        history.now += 40 * history.scale;
        history.compare(seed);
    }
}

const PLAIN: Kind = Kind { floors: false, ceilings: false, changes: false, exact_weights: true };

#[test]
fn weights_alone_agree_with_the_model() {
    histories(PLAIN);
}

#[test]
fn floors_agree_with_the_model() {
    histories(Kind { floors: true, ..PLAIN });
}

#[test]
fn ceilings_agree_with_the_model() {
    histories(Kind { ceilings: true, ..PLAIN });
}

#[test]
fn floors_and_ceilings_agree_with_the_model() {
    histories(Kind { floors: true, ceilings: true, ..PLAIN });
}

#[test]
fn everything_agrees_with_the_model() {
    histories(Kind { floors: true, ceilings: true, changes: true, ..PLAIN });
}
