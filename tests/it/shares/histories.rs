//! Random histories of a limiter with classes, equal to those of the model: the grants, the levels, what waits, what is
//! in flight, and the estimates.
//!
//! `TOLLGATE_SHARES=100000 cargo test --test it shares::histories` runs that many of each kind, and
//! `TOLLGATE_SHARES=20742..20743` those of these seeds.

use super::fixture::{Fixture, Rate, share};
use super::fraction::{Fraction, rate};
use super::model::{ClassId, Id, Int, Model};
use super::seeds::seeds;
use crate::fixture::*;
use crate::oracle::Rule;
use crate::oracle::conversions::quota;
use crate::oracle::ops::{continuous, manual, stepped};

/// The most installments for which an estimate has to be exact.
const MAX_EXACT: usize = 340;

#[derive(Clone, Copy, Debug)]
struct Kind {
    floors: bool,
    ceilings: bool,
    changes: bool,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    weight: Int,
    floor: Option<Rate>,
    ceiling: Option<Rule>,
}

struct History {
    random: Rng,
    kind: Kind,
    model: Model,
    fixture: Fixture,
    now: Int,
    plans: Vec<Plan>,
    leaves: Vec<ClassId>,
    inner: Vec<ClassId>,
    claims: Vec<(Id, Int)>,
    scale: Int,
    cap: Option<Int>,
}

fn rule(random: &mut Rng, scale: Int, any: bool) -> Rule {
    let burst = random.i128(1..14);
    let initial = random.i128(0..=burst);
    if any && random.u8(0..5) == 0 {
        let period = scale * random.i128(5..60);
        return stepped(random.i128(1..=burst), period, burst, initial);
    }
    if any && random.u8(0..6) == 0 {
        return manual(burst, initial);
    }
    continuous(random.i128(1..5), scale * random.i128(4..20), burst, initial)
}

impl History {
    fn new(seed: u64, kind: Kind) -> Self {
        let mut random = Rng::with_seed(seed);
        let scale = *random.choice(&[1, 10, 1_000, 1_000_000]).expect("not empty");
        let mut rules = vec![rule(&mut random, scale, kind.changes)];
        let is_unlimited = kind.changes && random.u8(0..20) == 0;
        if is_unlimited {
            rules.clear();
        } else if kind.changes && random.u8(0..3) == 0 {
            rules.push(rule(&mut random, scale, true));
        }
        let least = rules.iter().map(|rule| rule.burst).min().unwrap_or(9);
        let cap = (is_unlimited || kind.changes && random.u8(0..3) == 0).then(|| least * 4 + 4 + random.i128(0..30));
        let root = Plan { weight: 1, floor: None, ceiling: None };
        let mut history = Self {
            random,
            kind,
            model: Model::new(&rules, cap),
            fixture: Fixture::new(&rules, cap),
            now: 0,
            plans: vec![root],
            leaves: Vec::new(),
            inner: vec![0],
            claims: Vec::new(),
            scale,
            cap,
        };
        while history.leaves.len() < 2 || history.random.u8(0..3) > 0 && history.leaves.len() < 6 {
            history.add();
        }
        history
    }

    fn plan(&mut self, is_inner: bool) -> Plan {
        let weight = *self.random.choice(&[1, 1, 2, 3, 4, 6, 12]).expect("not empty");
        let floor =
            (self.kind.floors && !is_inner && self.random.bool()).then(|| (self.random.i128(1..5), 100 * self.scale));
        let ceiling =
            (self.kind.ceilings && self.random.u8(0..3) == 0).then(|| rule(&mut self.random, self.scale, false));
        Plan { weight, floor, ceiling }
    }

    fn add(&mut self) {
        let parent = *self.random.choice(&self.inner).expect("the root");
        let is_inner = self.inner.len() < 3 && self.random.u8(0..4) == 0;
        let plan = self.plan(is_inner);
        let Some(id) = self.add_planned(parent, plan) else { return };
        if is_inner {
            // In the model an inner class has no claims of its own.
            self.inner.push(id);
            let plan = Plan { floor: None, ceiling: None, ..self.plan(true) };
            let child = self.add_planned(id, plan).expect("a plain share is valid");
            self.leaves.push(child);
        } else {
            self.leaves.push(id);
        }
    }

    fn add_planned(&mut self, parent: ClassId, plan: Plan) -> Option<ClassId> {
        let added = self.fixture.add(parent, share(plan.weight, plan.floor, plan.ceiling));
        assert_eq!(added.is_err(), self.conflicts(parent, None, plan), "{added:?} {plan:?}");
        let id = added.ok()?;
        let floor = plan.floor.map(|(tokens, nanos)| Fraction::new(tokens, nanos));
        assert_eq!(id, self.model.add_class(self.now, parent, plan.weight, floor, plan.ceiling));
        self.plans.push(plan);
        Some(id)
    }

    fn step(&mut self) {
        let now = self.now;
        let Some(&leaf) = self.random.choice(&self.leaves) else { return };
        let op = self.random.u8(0..if self.kind.changes { 37 } else { 20 });
        match op {
            0..9 => {
                let most = self.model.least_burst().min(14);
                let cost = match self.random.u8(0..4) {
                    0 => self.random.i128(1..=most),
                    1 => self.random.i128(1..=most * 4 + 3),
                    _ => 1,
                };
                let cost = cost.min(self.cap.unwrap_or(Int::MAX));
                for _ in 0..self.random.usize(1..4) {
                    let id = self.model.arrive(now, leaf, cost);
                    assert_eq!(id, self.fixture.arrive(leaf, cost));
                    self.claims.push((id, cost));
                }
            }
            9..12 if !self.claims.is_empty() => {
                let index = self.random.usize(0..self.claims.len());
                let (id, _) = self.claims.swap_remove(index);
                self.model.cancel(now, id);
                self.fixture.cancel(id);
            }
            12..20 => {
                self.now += self.random.i128(0..40) * self.scale / 2 + self.random.i128(0..3);
                self.fixture.at(self.now);
            }
            20 | 21 => self.change_share(leaf),
            22 => {
                let class = self.random.usize(1..self.plans.len());
                if self.leaves.contains(&class) || self.inner.contains(&class) {
                    self.change_share(class);
                }
            }
            23 if !self.model.quotas.is_empty() => {
                let index = self.random.usize(0..self.model.quotas.len());
                let rule = rule(&mut self.random, self.scale, true);
                let conflicts = self.conflicts_with(index, rule);
                assert_eq!(self.fixture.limiter.set_quota(index, quota(rule)).is_err(), conflicts, "{rule:?}");
                if !conflicts {
                    self.model.set_quota(now, index, rule);
                }
            }
            24 => {
                let span = self.random.i128(0..60) * self.scale;
                self.model.pause_for(now, span);
                self.fixture.limiter.pause_for(Duration::from_nanos(span as u64));
            }
            25 if self.plans.len() < 12 => self.add(),
            26 | 27 if !self.fixture.held.is_empty() => {
                let index = self.random.usize(0..self.fixture.held.len());
                let tokens = self.random.i128(1..12);
                let (_, class, grant) = &mut self.fixture.held[index];
                if self.leaves.contains(class) {
                    let cost = grant.cost();
                    grant.settle(cost + tokens as u64);
                    self.model.charge(now, *class, tokens);
                    // The model knows nothing of grants: from now on this one is released as a whole.
                    let id = self.fixture.held[index].0;
                    self.claims.retain(|(known, _)| *known != id);
                }
            }
            28..31 if !self.fixture.held.is_empty() => {
                let index = self.random.usize(0..self.fixture.held.len());
                let (id, _, grant) = self.fixture.held.swap_remove(index);
                self.model.release(now, grant.cost().into());
                drop(grant);
                self.claims.retain(|(known, _)| *known != id);
            }
            31 if self.leaves.len() > 1 => {
                self.leaves.retain(|known| *known != leaf);
                self.plans[leaf].floor = None;
                self.model.remove_class(now, leaf);
                self.fixture.remove(leaf);
                if self.random.bool() {
                    self.fixture.drop_class(leaf);
                }
            }
            35 if !self.fixture.held.is_empty() => {
                let index = self.random.usize(0..self.fixture.held.len());
                let (id, class, grant) = &mut self.fixture.held[index];
                let (id, class) = (*id, *class);
                if self.leaves.contains(&class) && self.claims.iter().any(|(known, _)| *known == id) {
                    let tokens = self.random.u64(0..=grant.cost());
                    grant.settle(grant.cost() - tokens);
                    self.model.settle_down(now, class, id, tokens.into());
                }
            }
            33 | 34 => {
                let tokens = self.random.i128(1..12);
                self.fixture.limiter.replenish(tokens as u64);
                self.model.replenish(now, tokens);
            }
            32 if self.cap.is_none() => {
                let cost = self.random.i128(1..=self.model.least_burst().min(14));
                let granted = self.fixture.try_acquire(leaf, cost);
                let most = self.plans.iter().filter_map(|plan| plan.ceiling).map(|rule| rule.burst).min();
                // `try_acquire` does not wait between installments; the model does, at one instant.
                if most.is_none_or(|most| cost <= most) {
                    assert_eq!(granted, self.model.try_acquire(now, leaf, cost), "try_acquire {cost} at {now}");
                } else if granted {
                    assert!(self.model.try_acquire(now, leaf, cost));
                }
                if granted {
                    // The model numbers it as a claim.
                    self.fixture.skip_id(leaf);
                }
            }
            _ => {
                // More than the in-flight cap allows is never granted, and has no estimate.
                let cost = self.random.i128(1..20).min(self.cap.unwrap_or(Int::MAX));
                let expected = self.model.forecast(now, leaf, cost);
                let estimate = self.fixture.class(leaf).estimate(cost as u64).map(|wait| wait.as_nanos() as Int);
                let subject = format!("estimate of {cost} in {leaf} at {now}");
                match expected {
                    // Beyond 1,024 steps an estimate is not exact. Most installments take one or two.
                    Some((_, served)) if served > MAX_EXACT => assert!(estimate.is_some(), "{subject}"),
                    _ => assert_eq!(estimate, expected.map(|(at, _)| at - now), "{subject}"),
                }
            }
        }
    }

    /// Whether floors conflict with the rate or with a ceiling if a class of `parent` has this plan; written from the
    /// constraints in section 1 of the specification. What does not become worse is not refused.
    fn conflicts(&self, parent: ClassId, class: Option<ClassId>, plan: Plan) -> bool {
        let zero = Fraction::ZERO;
        let floor_rate = |(tokens, nanos)| Fraction::new(tokens, nanos);
        let floor_of =
            |id: ClassId| if Some(id) == class { plan.floor } else { self.plans[id].floor }.map_or(zero, floor_rate);
        let old = class.map(|id| self.plans[id]);
        let new_floor = plan.floor.map_or(zero, floor_rate);
        let rises = new_floor > old.and_then(|old| old.floor).map_or(zero, floor_rate);
        let is_stricter = plan.ceiling.is_some_and(|new| {
            old.and_then(|old| old.ceiling).is_none_or(|old| new.burst < old.burst || rate(&new) < rate(&old))
        });
        let all = (1..self.plans.len()).chain(class.is_none().then_some(self.plans.len()));
        let floor_of = |id: ClassId| if id == self.plans.len() { new_floor } else { floor_of(id) };
        let is_in = |id: ClassId, above: ClassId| {
            id == above
                || (id == self.plans.len() && self.model.path(parent).contains(&above))
                || (id < self.plans.len() && self.model.path(id).contains(&above))
        };
        let least = self.model.least_burst();
        let limit = self.model.quotas.iter().filter_map(|quota| rate(&quota.rule)).min();
        let breaks = |above: ClassId, ceiling: Rule| {
            let floors = all.clone().filter(|id| is_in(*id, above)).map(floor_of).fold(zero, Fraction::plus);
            floors > zero
                && (limit.is_some() && ceiling.burst < least || rate(&ceiling).is_some_and(|rate| rate < floors))
        };
        let own = class.unwrap_or(self.plans.len());
        if plan.ceiling.is_some_and(|ceiling| (rises || is_stricter) && breaks(own, ceiling)) {
            return true;
        }
        let above = self.model.path(parent);
        let sum = all.clone().map(floor_of).fold(zero, Fraction::plus);
        rises
            && (limit.is_some_and(|limit| limit < sum)
                || above.into_iter().any(|id| self.plans[id].ceiling.is_some_and(|ceiling| breaks(id, ceiling))))
    }

    /// Whether a floor could not be kept below a ceiling any more if quota number `index` became `rule`.
    fn conflicts_with(&self, index: usize, rule: Rule) -> bool {
        let rules = self.model.quotas.iter().map(|quota| quota.rule).enumerate();
        let rules: Vec<_> = rules.map(|(at, known)| if at == index { rule } else { known }).collect();
        let least = rules.iter().map(|rule| rule.burst).min().expect("a quota");
        let was_timed = self.model.quotas.iter().any(|quota| rate(&quota.rule).is_some());
        let is_known = least <= self.model.least_burst() && was_timed;
        let has_floor = |above: ClassId| {
            (1..self.plans.len()).any(|id| self.plans[id].floor.is_some() && self.model.path(id).contains(&above))
        };
        !is_known
            && rules.iter().any(|rule| rate(rule).is_some())
            && (1..self.plans.len())
                .any(|id| self.plans[id].ceiling.is_some_and(|ceiling| ceiling.burst < least) && has_floor(id))
    }

    fn change_share(&mut self, class: ClassId) {
        let (old, plan) = (self.plans[class], self.plan(!self.leaves.contains(&class)));
        let refused = self.fixture.class(class).set_share(share(plan.weight, plan.floor, plan.ceiling)).is_err();
        let parent = self.model.classes[class].parent;
        assert_eq!(refused, self.conflicts(parent, Some(class), plan), "{class} {plan:?} after {old:?}");
        if refused {
            return;
        }
        let floor = plan.floor.map(|(tokens, nanos)| Fraction::new(tokens, nanos));
        let is_bound_anew = (plan.floor, plan.ceiling) != (old.floor, old.ceiling);
        self.model.set_share(self.now, class, plan.weight, is_bound_anew.then_some((floor, plan.ceiling)));
        self.plans[class] = plan;
    }

    fn compare(&mut self, seed: u64) {
        self.model.serve(self.now);
        self.fixture.look();
        let known = format!("seed {seed} at {} {:?}", self.now, self.kind);
        let mut granted: Vec<_> = self.model.log.iter().map(|granted| granted.id).collect();
        granted.retain(|id| !self.fixture.skipped.contains(id));
        granted.sort_unstable();
        let mut seen = self.fixture.granted.clone();
        seen.extend(&self.fixture.unseen);
        seen.sort_unstable();
        assert_eq!(seen, granted, "{known}");
        let levels: Vec<_> = self.model.quotas.iter().map(|quota| quota.level).collect();
        assert_eq!(self.fixture.levels(), levels, "{known}");
        let snapshot = self.fixture.limiter.snapshot();
        let waiting = (snapshot.waiting_tasks, Int::from(snapshot.waiting_tokens));
        assert_eq!(waiting, self.model.waiting(), "{known}");
        if self.cap.is_some() {
            assert_eq!(snapshot.in_flight.map(Int::from), Some(self.model.in_flight.max(0)), "{known}");
        }
    }
}

fn histories(kind: Kind) {
    for seed in seeds(400) {
        let mut history = History::new(seed, kind);
        for _ in 0..40 {
            history.step();
            history.compare(seed);
        }
        history.now += 40 * history.scale;
        history.fixture.at(history.now);
        history.compare(seed);
    }
}

const PLAIN: Kind = Kind { floors: false, ceilings: false, changes: false };

#[test]
fn weights_agree_with_the_model() {
    histories(PLAIN);
}

#[test]
fn floors_and_ceilings_agree_with_the_model() {
    histories(Kind { floors: true, ceilings: true, ..PLAIN });
}

#[test]
fn everything_agrees_with_the_model() {
    histories(Kind { floors: true, ceilings: true, changes: true });
}
