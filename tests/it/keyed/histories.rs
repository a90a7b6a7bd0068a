//! One history over many keys, executed on a keyed limiter and on one oracle for each key: all results must be equal,
//! in the same order and at the same time.
//!
//! A failing history is printed as Rust. To run more of them: `PROPTEST_CASES=100000 cargo test --features keyed --test
//! it keyed::histories`.

use super::executor::{Key, KeyOf, build};
use crate::fixture::*;
use crate::oracle::conversions::{nanoseconds, quota, unsigned};
use crate::oracle::executor::Executor;
use crate::oracle::model::{END, Model, Seen};
use crate::oracle::ops::{History, Op, Setup, any_scale, config, continuous, history, recorded, stepped};
use crate::oracle::{Answer, Int, Refill, Rule};

const DAY: Int = 86_400_000_000_000;
/// Few enough that ops meet on a key, and enough that keys could be mixed up.
const KEYS: u8 = 3;

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn each_key_agrees_with_an_oracle_of_its_own(
        history in prop_oneof![history(any_scale(), 1, 80), history(any_scale(), 4, 80)],
        keys in "[012]{80}",
        shards in 1_usize..3,
    ) {
        let keys: Vec<Key> = keys.bytes().map(|digit| digit - b'0').collect();
        agree(&history, &keys, shards)?;
    }
}

/// The front claim saved a fraction of a token above the burst.
#[test]
fn a_close_with_two_waiters_burns_the_fraction_above_a_full_bucket() {
    use Op::*;
    let quota = stepped(7, 4 * DAY, 14, 14);
    let until_step = 4 * DAY - 1;
    let slower = SetQuota(0, continuous(10, 12 * DAY, 6, 6));
    let ops = [Consume(0), Consume(8), Pass(until_step), Consume(8), Consume(4)];
    let ops = ops.into_iter().chain([Tick, slower, Pass(98_742_857_142_857), Settle(0, 14), Close]);
    let history = recorded(vec![quota], None, 1_000, 0, false, ops.collect());
    agree(&history, &[0; 60], 1).unwrap();
}

#[test]
fn a_closed_key_in_debt_is_replenished() {
    use Op::*;
    let ops = vec![Consume(1), Settle(0, 7), Close, Replenish(4), Tick];
    let history = recorded(vec![continuous(1, DAY, 1, 1)], Some(1), 1_000, 0, false, ops);
    agree(&history, &[0; 5], 1).unwrap();
}

/// A rule that a keyed limiter can have: new keys are full.
fn full(rule: Rule) -> Rule {
    let rule = match rule.refill {
        Refill::Manual => continuous(3, 10, rule.burst, rule.burst),
        _ => rule,
    };
    Rule { initial: rule.burst, ..rule }
}

fn is_stepped(rule: &Rule) -> bool {
    matches!(rule.refill, Refill::Stepped { .. })
}

fn quotas(rules: &[Rule]) -> Quotas {
    rules.iter().copied().map(quota).collect()
}

/// How many tries of an op were refused.
fn denials(seen: &Seen) -> u64 {
    let is_denied = |answer: &Answer| u64::from(*answer != Answer::Granted);
    match seen {
        Seen::Answered(answer) => is_denied(answer),
        Seen::Heeded { first, early, then } => is_denied(first) + early.iter().chain(then).map(is_denied).sum::<u64>(),
        _ => 0,
    }
}

struct Both<'a> {
    executors: Vec<Executor<'a, KeyOf<'a>>>,
    models: Vec<Model>,
    keyed: &'a tollgate::KeyedLimiter<Key>,
    /// The quotas of each key.
    rules: Vec<Vec<Rule>>,
    /// The keys with quotas of their own.
    own: [bool; KEYS as usize],
    /// The quotas of all other keys.
    common: Vec<Rule>,
    now: Int,
    /// The instants until which each key is paused by itself, and all keys are.
    gates: ([Int; KEYS as usize], Int),
    capped: bool,
    watched: bool,
    /// Refused calls of `try_acquire`: limiters do not count them.
    denied: u64,
}

fn agree(History { setup, ops }: &History, keys: &[Key], shards: usize) -> Result<(), TestCaseError> {
    let rules: Vec<Rule> = setup.rules.iter().copied().map(full).collect();
    let setup = Setup { rules, rovers_at: 0, ..setup.clone() };
    let clock = ManualClock::new();
    let keyed = build(&setup, shards, &clock);
    let mut both = Both {
        executors: (0..KEYS).map(|key| Executor::new(KeyOf(&keyed, key), &clock)).collect(),
        models: (0..KEYS).map(|_| Model::new(&setup)).collect(),
        keyed: &keyed,
        rules: vec![setup.rules.clone(); KEYS.into()],
        own: [false; KEYS as usize],
        common: setup.rules.clone(),
        now: 0,
        gates: Default::default(),
        capped: setup.max_in_flight.is_some(),
        watched: setup.watched,
        denied: 0,
    };
    for (place, (&op, &key)) in ops.iter().zip(keys).enumerate() {
        both.step(place, key, op)?;
    }
    both.end(ops.len())
}

impl Both<'_> {
    fn step(&mut self, place: usize, key: Key, op: Op) -> Result<(), TestCaseError> {
        let own = usize::from(key);
        match op {
            // The clocks of unused keys advance independently.
            Op::Back(_) => return Ok(()),
            Op::Pass(span) => self.pass(span),
            Op::Pause(span) if place.is_multiple_of(3) => {
                self.keyed.pause_all_for(nanoseconds(span));
                self.gates.1 = self.gates.1.max(self.now + span);
                self.everybody(op);
            }
            Op::Pause(span) => {
                self.gates.0[own] = self.gates.0[own].max(self.now + span);
                prop_assert_eq!(self.executors[own].apply(op), self.models[own].apply(op));
            }
            Op::Resume if place.is_multiple_of(3) => {
                self.keyed.resume_all();
                self.gates.1 = 0;
                for (model, gate) in self.models.iter_mut().zip(self.gates.0) {
                    model.resume_until(gate);
                }
            }
            Op::Resume => {
                self.executors[own].apply(op);
                self.gates.0[own] = 0;
                self.models[own].resume_until(self.gates.1);
            }
            Op::SetMax(most) => {
                let is_set = self.keyed.set_max_in_flight(unsigned(most)).is_ok();
                prop_assert_eq!(is_set, self.capped);
                if is_set {
                    self.everybody(op);
                }
            }
            Op::Tick => {
                self.keyed.tick();
                self.everybody(op);
            }
            Op::Close => {
                self.keyed.close();
                self.everybody(op);
            }
            Op::SetQuota(index, rule) => self.set_quota(own, place, index, rule),
            Op::Heed(_) => {
                let before = self.models[own].now();
                let (seen, expected) = (self.executors[own].apply(op), self.models[own].apply(op));
                self.denied += denials(&seen);
                prop_assert_eq!(seen, expected, "result of key {} in op {}: {:?}", key, place, op);
                let span = self.models[own].now() - before;
                self.now += span;
                for other in (0..usize::from(KEYS)).filter(|other| *other != own) {
                    self.executors[other].note(span);
                    self.models[other].apply(Op::Pass(span));
                }
            }
            _ => {
                let (seen, expected) = (self.executors[own].apply(op), self.models[own].apply(op));
                self.denied += if matches!(op, Op::Try(_)) { denials(&seen) } else { 0 };
                prop_assert_eq!(seen, expected, "result of key {} in op {}: {:?}", key, place, op);
            }
        }
        if self.watched || matches!(op, Op::Tick | Op::Close) {
            self.look(place, op)?;
        }
        Ok(())
    }

    fn pass(&mut self, span: Int) {
        let passed = span.min(END - self.now);
        self.executors[0].pass(passed);
        self.executors[1..].iter_mut().for_each(|executor| executor.note(passed));
        self.now += passed;
        self.everybody(Op::Pass(span));
    }

    fn everybody(&mut self, op: Op) {
        for model in &mut self.models {
            assert_eq!(model.apply(op), Seen::Nothing);
        }
    }

    /// For all keys, for one, or reset for one. Steps of a keyed quota are counted from another instant than the
    /// oracle's.
    fn set_quota(&mut self, key: usize, kind: usize, index: usize, rule: Rule) {
        let rule = full(rule);
        if is_stepped(&rule) {
            return;
        }
        let with_rule = |rules: &[Rule]| -> Vec<Rule> {
            let mut rules = rules.to_vec();
            rules[index] = rule;
            rules
        };
        match kind % 3 {
            0 => {
                let rules = with_rule(&self.rules[key]);
                self.keyed.set_quota_for(&(key as Key), quotas(&rules)).expect("the map has no bound");
                self.give(key, rules);
                self.own[key] = true;
            }
            1 if !self.common.iter().any(is_stepped) => {
                self.keyed.reset_quota_for(&(key as Key));
                self.give(key, self.common.clone());
                self.own[key] = false;
            }
            _ => {
                let common = with_rule(&self.common);
                // The keys that would get stepped quotas again.
                let regains =
                    |rules: &Vec<Rule>| rules.iter().zip(&common).any(|(old, new)| old != new && is_stepped(new));
                if self.rules.iter().any(regains) {
                    return;
                }
                self.let_fractions_burn();
                let owing: Vec<bool> = (0..KEYS).map(|key| self.owes(key)).collect();
                self.keyed.set_quota(quotas(&common)).expect("the quotas are valid");
                self.common = common;
                for key in (0..usize::from(KEYS)).filter(|key| !self.own[*key]).collect::<Vec<_>>() {
                    self.give(key, self.common.clone());
                    if !owing[key] {
                        let most = self.common.iter().map(|rule| rule.burst).max().expect("at least one");
                        self.models[key].apply(Op::Replenish(most));
                    }
                }
            }
        }
    }

    fn give(&mut self, key: usize, rules: Vec<Rule>) {
        for (index, (old, new)) in self.rules[key].iter().zip(&rules).enumerate() {
            if old != new {
                self.models[key].apply(Op::SetQuota(index, *new));
            }
        }
        self.rules[key] = rules;
    }

    /// Which buckets of each key are full.
    fn brimful(&mut self) -> Vec<bool> {
        let of_key = |(model, rules): (&mut Model, &Vec<Rule>)| {
            let levels = model.view().levels;
            levels.into_iter().zip(rules).map(|(level, rule)| level == rule.burst).collect::<Vec<_>>()
        };
        self.models.iter_mut().zip(&self.rules).flat_map(of_key).collect()
    }

    /// Advances the time until no full bucket has a fraction of a token in addition, which the oracle would keep.
    fn let_fractions_burn(&mut self) {
        loop {
            let before = self.brimful();
            self.pass(1);
            let after = self.brimful();
            if after.iter().zip(before).all(|(after, before)| before || !after) {
                return;
            }
        }
    }

    /// Whether the key is in debt. A key that is not may be removed, and is full under the next quotas.
    fn owes(&mut self, key: Key) -> bool {
        let own = usize::from(key);
        let view = self.models[own].view();
        let lacks = view.levels.iter().zip(&self.rules[own]).any(|(level, rule)| *level < rule.burst);
        let executor = &self.executors[own];
        let holds = executor.polled() > 0 || self.capped && executor.grants() > 0;
        let is_paused = self.gates.0[own] > self.now;
        lacks || view.in_flight.is_some_and(|tokens| tokens > 0) || holds || is_paused
    }

    /// Compares everything visible of each key, and the claims that were woken.
    fn look(&mut self, place: usize, op: Op) -> Result<(), TestCaseError> {
        let mut turnover: (Int, Int) = (0, 0);
        let mut sums = (0, 0, 0, self.keyed.snapshot().in_flight.map(|_| 0), self.denied);
        for key in 0..KEYS {
            let view = self.models[usize::from(key)].view();
            let seen = (Int::from(self.keyed.available(&key)), Int::from(self.keyed.deficiency(&key)));
            let expected = (view.available, view.deficiency);
            prop_assert_eq!(seen, expected, "available, deficiency of key {} after op {}: {:?}", key, place, op);
            // To the nanosecond, and so to the fraction of a token.
            let ask = Op::Estimate(1_000);
            let (seen, expected) =
                (self.executors[usize::from(key)].apply(ask), self.models[usize::from(key)].apply(ask));
            prop_assert_eq!(seen, expected, "estimate for key {} after op {}: {:?}", key, place, op);
            let (woken, expected) = (self.executors[usize::from(key)].woken(), self.models[usize::from(key)].woken());
            prop_assert_eq!(woken, expected, "woken of key {} by op {}: {:?}", key, place, op);
            sums.0 += u64::from(view.waiting.0 > 0);
            sums.1 += view.waiting.0;
            sums.2 += view.waiting.1;
            sums.3 = sums.3.map(|sum: Int| sum + view.in_flight.unwrap_or(0));
            sums.4 += view.refused_calls;
            turnover = (turnover.0 + view.turnover.0, turnover.1 + view.turnover.1);
        }
        let seen = self.keyed.snapshot();
        // Also for the keys that have become live entries or packed levels again.
        let observed = (seen.granted.into(), seen.refunded.into());
        prop_assert_eq!(observed, turnover, "granted and refunded after op {}: {:?}", place, op);
        let in_flight = seen.in_flight.map(Int::from);
        let seen = (seen.keys_waiting, seen.waiting_tasks, seen.waiting_tokens.into(), in_flight, seen.refused);
        prop_assert_eq!(seen, sums, "snapshot after op {}: {:?}", place, op);
        Ok(())
    }

    /// Returns all tokens and polls every future once more, now and a day later. Then no key remains in memory.
    fn end(&mut self, place: usize) -> Result<(), TestCaseError> {
        for span in [0, DAY] {
            self.step(place, 0, Op::Pass(span))?;
            self.step(place, 0, Op::Tick)?;
            for key in 0..KEYS {
                for _ in 0..self.executors[usize::from(key)].grants() {
                    self.step(place, key, Op::Drop(0))?;
                }
                for future in (0..self.executors[usize::from(key)].futures()).rev() {
                    self.step(place, key, Op::Poll(future))?;
                }
            }
        }
        self.step(place, 0, Op::Tick)
    }
}
