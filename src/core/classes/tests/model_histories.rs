//! The scheduler against the exact model: the same installments at the same instants, and the same levels.

#[path = "../../../../tests/it/shares/bucket.rs"]
mod bucket;
#[path = "../../../../tests/it/shares/fraction.rs"]
mod fraction;
#[path = "../../../../tests/it/shares/model.rs"]
mod model;
mod replica;
#[path = "../../../../tests/it/shares/seeds.rs"]
mod seeds;

use crate::Quota;
use bucket::Rule;
use fastrand::Rng;
use fraction::Fraction;
use model::{Int, Model, Served};
use replica::Replica;
use seeds::seeds;
use std::time::Duration;

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
        let added = self.replica.add(self.now, parent, weight, floor, ceiling.map(Rule::quota));
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
            20..25 => self.change_rules(leaf),
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

    /// Changes the weight or the floor of `leaf`, a ceiling or a quota, or pauses.
    fn change_rules(&mut self, leaf: usize) {
        let now = Int::from(self.now);
        match self.random.u8(0..5) {
            0 => {
                let weight = self.weight();
                self.model.set_share(now, leaf, weight.into(), None);
                self.replica.serve(self.now);
                let id = self.replica.leaf(leaf);
                self.replica.scheduler.tree.set_weight(id, weight, self.now);
            }
            1 => {
                let floor = self.floor();
                let fraction = floor.map(|(tokens, nanos)| Fraction::new(tokens.into(), nanos.into()));
                self.model.set_floor(now, leaf, fraction);
                self.replica.serve(self.now);
                let id = self.replica.leaf(leaf);
                let floor = floor.map(|(tokens, nanos)| Quota::new(tokens, Duration::from_nanos(nanos)));
                self.replica.scheduler.tree.set_floor(id, floor, self.now);
                self.replica.scheduler.tree.unpick();
            }
            2 => {
                let index = self.random.usize(1..self.model.classes.len());
                let ceiling = self.ceiling();
                self.model.set_ceiling(now, index, ceiling);
                self.replica.serve(self.now);
                let id = self.replica.leaf(index);
                self.replica.scheduler.tree.set_ceiling(id, ceiling.map(Rule::quota), self.now);
            }
            3 => {
                let index = self.random.usize(0..self.model.quotas.len());
                let rule = rule(&mut self.random, self.scale, true);
                self.model.set_quota(now, index, rule);
                self.replica.set_quota(self.now, index, rule.quota());
            }
            _ => {
                let span = self.random.u64(0..60) * self.scale;
                self.model.pause_for(now, span.into());
                self.replica.serve(self.now);
                let gate = self.replica.supply.gate().max(self.now + span);
                self.replica.supply.set_gate(gate);
            }
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
