//! One history over many keys, done to a keyed limiter and to one oracle for each key: everybody must be told the same, in
//! the same order, at the same time.
//!
//! A history that fails is printed as Rust. More of them: `PROPTEST_CASES=100000 cargo test --features keyed --test it keyed::histories`.

use super::hands::{Hands, Key, build};
use crate::oracle::model::{Model, Seen};
use crate::oracle::ops::{History, Op, Setup, any_scale, config, continuous, history};
use crate::oracle::words::quota;
use crate::oracle::{Answer, Int, Refill, Rule};
use proptest::prelude::*;
use tollgate::ManualClock;

const DAY: Int = 86_400_000_000_000;
/// So few that they meet, so many that they can be mixed up.
const KEYS: u8 = 3;

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn each_key_agrees_with_an_oracle_of_its_own(
        history in history(any_scale(), 1, 80),
        keys in "[012]{80}",
        rooms in 1_usize..3,
    ) {
        let keys: Vec<Key> = keys.bytes().map(|digit| digit - b'0').collect();
        agree(&history, &keys, rooms)?;
    }

    #[test]
    fn one_key_agrees(history in history(any_scale(), 1, 60)) {
        agree(&history, &[0; 60], 1)?;
    }
}

/// A rule that a keyed limiter can have: newcomers are full.
fn full(rule: Rule) -> Rule {
    let rule = match rule.refill {
        Refill::Manual => continuous(3, 10, rule.burst, rule.burst),
        _ => rule,
    };
    Rule { initial: rule.burst, ..rule }
}

/// How many tries of an op were refused.
fn denials(seen: &Seen) -> u64 {
    let is_denied = |answer: &Answer| u64::from(*answer != Answer::Granted);
    match seen {
        Seen::Told(answer) => is_denied(answer),
        Seen::Heeded { first, early, then } => is_denied(first) + early.iter().chain(then).map(is_denied).sum::<u64>(),
        _ => 0,
    }
}

struct Both<'a> {
    hands: Hands<'a>,
    models: Vec<Model>,
    keyed: &'a tollgate::KeyedLimiter<Key>,
    /// Keys with a quota of their own.
    own: [bool; KEYS as usize],
    /// The quota of all others.
    common: Rule,
    capped: bool,
    watched: bool,
    /// Calls of `try_acquire` that were refused: limiters do not count them.
    denied: u64,
}

fn agree(History { setup, ops }: &History, keys: &[Key], rooms: usize) -> Result<(), TestCaseError> {
    let setup = Setup { rules: vec![full(setup.rules[0])], rovers_at: 0, ..setup.clone() };
    let clock = ManualClock::new();
    let keyed = build(&setup, rooms, &clock);
    let mut both = Both {
        hands: Hands::new(&keyed, &clock, KEYS.into()),
        models: (0..KEYS).map(|_| Model::new(&setup)).collect(),
        keyed: &keyed,
        own: [false; KEYS as usize],
        common: setup.rules[0],
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
            // Keyed limiters have none of these, and the clocks of keys that nobody touches go their own ways.
            Op::Replenish(_) | Op::SetMax(_) | Op::Pause(_) | Op::Back(_) => return Ok(()),
            Op::Pass(span) => {
                self.hands.pass(span);
                self.everybody(op);
            }
            Op::Tick => {
                self.keyed.tick();
                self.everybody(op);
            }
            Op::Close => {
                self.keyed.close();
                self.everybody(op);
            }
            Op::SetQuota(way, rule) => self.set_quota(own, way + place, rule),
            Op::Heed(_) => {
                let before = self.models[own].now();
                let (seen, expected) = (self.hands.apply(key, op), self.models[own].apply(op));
                self.denied += denials(&seen);
                prop_assert_eq!(seen, expected, "told key {} in op {}: {:?}", key, place, op);
                let span = self.models[own].now() - before;
                for (other, model) in self.models.iter_mut().enumerate() {
                    if other != own {
                        model.apply(Op::Pass(span));
                    }
                }
            }
            _ => {
                let (seen, expected) = (self.hands.apply(key, op), self.models[own].apply(op));
                self.denied += if matches!(op, Op::Try(_)) { denials(&seen) } else { 0 };
                prop_assert_eq!(seen, expected, "told key {} in op {}: {:?}", key, place, op);
            }
        }
        if self.watched || matches!(op, Op::Tick | Op::Close) {
            self.look(place, op)?;
        }
        Ok(())
    }

    fn everybody(&mut self, op: Op) {
        for model in &mut self.models {
            assert_eq!(model.apply(op), Seen::Nothing);
        }
    }

    /// For all, for one, or for one no more. Steps of a keyed quota are counted from another instant than the oracle's.
    fn set_quota(&mut self, key: usize, way: usize, rule: Rule) {
        let rule = full(rule);
        if matches!(rule.refill, Refill::Stepped { .. }) {
            return;
        }
        match way % 3 {
            0 => {
                self.keyed.set_quota_for(&(key as Key), quota(rule)).expect("no bound");
                self.models[key].apply(Op::SetQuota(0, rule));
                self.own[key] = true;
            }
            1 if !matches!(self.common.refill, Refill::Stepped { .. }) => {
                self.keyed.reset_quota_for(&(key as Key));
                self.models[key].apply(Op::SetQuota(0, self.common));
                self.own[key] = false;
            }
            _ => {
                self.let_fractions_burn();
                let owing: Vec<bool> = (0..KEYS).map(|key| self.owes(key)).collect();
                self.keyed.set_quota(quota(rule)).expect("a sensible quota");
                self.common = rule;
                let own = self.own;
                for key in (0..KEYS).filter(|key| !own[usize::from(*key)]) {
                    let model = &mut self.models[usize::from(key)];
                    model.apply(Op::SetQuota(0, rule));
                    if !owing[usize::from(key)] {
                        model.apply(Op::Replenish(rule.burst));
                    }
                }
            }
        }
    }

    /// Lets time pass until nobody who is full has the fraction of a token on top, which the oracle would keep.
    fn let_fractions_burn(&mut self) {
        let full = |models: &mut Vec<Model>| -> Vec<bool> {
            models.iter_mut().map(|model| model.view().levels[0] == model.burst()).collect()
        };
        loop {
            let before = full(&mut self.models);
            self.hands.pass(1);
            self.everybody(Op::Pass(1));
            let after = full(&mut self.models);
            if after.iter().zip(before).all(|(after, before)| before || !after) {
                return;
            }
        }
    }

    /// Who does not may be forgotten, and is full by whatever quota comes next.
    fn owes(&mut self, key: Key) -> bool {
        let model = &mut self.models[usize::from(key)];
        let view = model.view();
        let holds = self.hands.waiting(key) > 0 || self.capped && self.hands.grants(key) > 0;
        view.levels[0] < model.burst() || view.in_flight.is_some_and(|tokens| tokens > 0) || holds
    }

    /// Everything that can be seen of each key, and who was woken.
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
            let (seen, expected) = (self.hands.apply(key, ask), self.models[usize::from(key)].apply(ask));
            prop_assert_eq!(seen, expected, "estimate for key {} after op {}: {:?}", key, place, op);
            let (woken, expected) = (self.hands.rung(key), self.models[usize::from(key)].woken());
            prop_assert_eq!(woken, expected, "woken of key {} by op {}: {:?}", key, place, op);
            sums.0 += usize::from(view.waiting.0 > 0);
            sums.1 += view.waiting.0;
            sums.2 += view.waiting.1;
            sums.3 = sums.3.map(|sum: Int| sum + view.in_flight.unwrap_or(0));
            sums.4 += view.refused_calls;
            turnover = (turnover.0 + view.turnover.0, turnover.1 + view.turnover.1);
        }
        let seen = self.keyed.snapshot();
        // Also of those that have become seats and words again.
        let told = (seen.granted.into(), seen.refunded.into());
        prop_assert_eq!(told, turnover, "granted and refunded after op {}: {:?}", place, op);
        let in_flight = seen.in_flight.map(Int::from);
        let seen = (seen.keys_waiting, seen.waiting_tasks, seen.waiting_tokens.into(), in_flight, seen.refused);
        prop_assert_eq!(seen, sums, "snapshot after op {}: {:?}", place, op);
        Ok(())
    }

    /// Everything is given back, and every future is polled once more, now and a day later; then nobody is remembered.
    fn end(&mut self, place: usize) -> Result<(), TestCaseError> {
        for span in [0, DAY] {
            self.step(place, 0, Op::Pass(span))?;
            self.step(place, 0, Op::Tick)?;
            for key in 0..KEYS {
                for _ in 0..self.hands.grants(key) {
                    self.step(place, key, Op::Drop(0))?;
                }
                for future in (0..self.hands.futures(key)).rev() {
                    self.step(place, key, Op::Poll(future))?;
                }
            }
        }
        self.step(place, 0, Op::Tick)
    }
}
