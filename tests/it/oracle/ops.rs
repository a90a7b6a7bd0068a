//! A history: the setup of a limiter, and a sequence of operations on it.
//!
//! A history is printed as the Rust code that creates it: see [`recorded`].

use std::fmt;

use proptest::prelude::*;

use super::{Int, Refill, Rule};

/// Futures and grants are selected by their index among the existing ones, modulo their number.
pub(crate) type Place = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Try(Int),
    /// `consume`, polled once.
    Consume(Int),
    /// `consume`, not polled yet.
    Create(Int),
    /// `consume(cost).within(allowed)`, polled once.
    Within(Int, Int),
    /// Polls a future, whether it was woken or not.
    Poll(Place),
    /// Drops a future: before its first poll, waiting, or granted and not polled since.
    Cancel(Place),
    Settle(Place, Int),
    Drop(Place),
    Forget(Place),
    Release(Int),
    Replenish(Int),
    Tick,
    Pass(Int),
    Back(Int),
    SetQuota(usize, Rule),
    SetMax(Int),
    Pause(Int),
    Resume,
    Close,
    Estimate(Int),
    /// `try_acquire`; if the refusal has a `retry_after`, once more a nanosecond too early, and once more after exactly
    /// that time.
    Heed(Int),
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) rules: Vec<Rule>,
    pub(crate) max_in_flight: Option<Int>,
    pub(crate) max_waiting: u64,
    /// The start of the rovers.
    pub(crate) rovers_at: u64,
    /// Whether everything visible is compared after each op: reading it serves the queue.
    pub(crate) watched: bool,
}

#[derive(Clone)]
pub(crate) struct History {
    pub(crate) setup: Setup,
    pub(crate) ops: Vec<Op>,
}

/// A history in its printed form.
pub(crate) fn recorded(
    rules: Vec<Rule>,
    max_in_flight: Option<Int>,
    max_waiting: u64,
    rovers_at: u64,
    watched: bool,
    ops: Vec<Op>,
) -> History {
    History { setup: Setup { rules, max_in_flight, max_waiting, rovers_at, watched }, ops }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Written by hand: proptest requests the pretty format, which puts every number on a line of its own.
        let Setup { rules, max_in_flight, max_waiting, rovers_at, watched } = &self.setup;
        write!(
            f,
            "recorded(vec!{rules:?}, {max_in_flight:?}, {max_waiting}, {rovers_at}, {watched}, vec!{:?})",
            self.ops
        )
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { refill, burst, initial } = self;
        match refill {
            Refill::Continuous { amount, period } => write!(f, "continuous({amount}, {period}, {burst}, {initial})"),
            Refill::Stepped { amount, period } => write!(f, "stepped({amount}, {period}, {burst}, {initial})"),
            Refill::Calendar { amount, period } => write!(f, "calendar({amount}, {period}, {initial})"),
            Refill::Manual => write!(f, "manual({burst}, {initial})"),
            Refill::Sliding { amount, period } => write!(f, "sliding({amount}, {period}, {initial})"),
        }
    }
}

pub(crate) fn continuous(amount: Int, period: Int, burst: Int, initial: Int) -> Rule {
    Rule { refill: Refill::Continuous { amount, period }, burst, initial }
}

pub(crate) fn stepped(amount: Int, period: Int, burst: Int, initial: Int) -> Rule {
    Rule { refill: Refill::Stepped { amount, period }, burst, initial }
}

#[allow(dead_code, reason = "for histories that failed")]
pub(crate) fn calendar(amount: Int, period: Int, initial: Int) -> Rule {
    Rule { refill: Refill::Calendar { amount, period }, burst: amount, initial }
}

pub(crate) fn sliding(amount: Int, period: Int, initial: Int) -> Rule {
    Rule { refill: Refill::Sliding { amount, period }, burst: amount, initial }
}

/// Makes a rule sliding, unless it is manual or of a calendar.
pub(crate) fn slide(rule: &mut Rule) {
    if let Refill::Continuous { period, .. } | Refill::Stepped { period, .. } = rule.refill {
        *rule = sliding(rule.burst, period, rule.initial);
    }
}

/// A history in which half of the rules are sliding instead, the first one always.
pub(crate) fn with_windows(History { mut setup, mut ops }: History) -> History {
    setup.rules.iter_mut().step_by(2).for_each(slide);
    for op in &mut ops {
        if let Op::SetQuota(_, rule) = op
            && rule.initial == rule.burst
        {
            slide(rule);
        }
    }
    History { setup, ops }
}

pub(crate) fn manual(burst: Int, initial: Int) -> Rule {
    Rule { refill: Refill::Manual, burst, initial }
}

/// How many random histories a test runs: as many as `PROPTEST_CASES` says, else `usual`.
pub(crate) fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|asked| asked.parse().ok()).unwrap_or(usual)
}

/// A failing history is printed for copying, and not stored in a file.
pub(crate) fn config(usual: u32) -> ProptestConfig {
    ProptestConfig { cases: cases(usual), failure_persistence: None, ..ProptestConfig::default() }
}

/// Random numbers that encode a quota or an op. They shrink towards the one that zeros encode.
pub(crate) type Dice = (u8, u16, u16, u16);

/// The units of the numbers of one history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) tokens: Int,
    pub(crate) nanoseconds: Int,
}

const SECOND: Int = 1_000_000_000;
const DAY: Int = 86_400 * SECOND;

/// Small numbers find most errors; the others find overflow and rounding errors.
pub(crate) fn any_scale() -> impl Strategy<Value = Scale> {
    let tokens = prop_oneof![8 => Just(1), 1 => Just(97), 1 => Just(1_000_000_000)];
    let nanoseconds = prop_oneof![5 => Just(1), 2 => Just(10), 1 => Just(1_000_003), 1 => Just(SECOND), 1 => Just(DAY)];
    (tokens, nanoseconds).prop_map(|(tokens, nanoseconds)| Scale { tokens, nanoseconds })
}

/// Positions wrap where the type does, and change sign in the middle.
fn rovers_at() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(0),
        1 => (0_u64..300).prop_map(|below| u64::MAX - below),
        1 => (0_u64..300).prop_map(|below| i64::MAX as u64 + 100 - below),
    ]
}

pub(crate) fn history(
    scale: impl Strategy<Value = Scale>,
    rules: usize,
    length: usize,
) -> impl Strategy<Value = History> {
    let dice = any::<Dice>;
    let rules = prop::collection::vec(dice(), 1..=rules);
    let limits = (prop::option::of(0_u16..40), prop_oneof![4 => Just(1000), 1 => 0_u64..4]);
    let ops = prop::collection::vec(dice(), 1..=length);
    (scale, rules, limits, rovers_at(), any::<bool>(), ops).prop_map(
        |(scale, rules, (most, max_waiting), rovers_at, watched, ops)| {
            let rules: Vec<Rule> = rules.into_iter().map(|dice| any_rule(scale, dice)).collect();
            let max_in_flight = most.map(|most| (1 + Int::from(most)) * scale.tokens);
            done_to(Setup { rules, max_in_flight, max_waiting, rovers_at, watched }, scale, ops)
        },
    )
}

/// The history that `dice` encode.
pub(crate) fn done_to(setup: Setup, scale: Scale, dice: Vec<Dice>) -> History {
    let last = dice.len();
    let ops = dice.into_iter().enumerate().map(|(place, dice)| op(&setup, scale, dice, last - place));
    History { ops: ops.collect(), setup }
}

pub(crate) fn rule(scale: Scale, (kind, a, b, c): Dice) -> Rule {
    let (a, b, c) = (Int::from(a), Int::from(b), Int::from(c));
    let amount = (1 + a % 12) * scale.tokens;
    let period = (1 + b % 20) * scale.nanoseconds;
    let burst = (1 + c % 20) * scale.tokens;
    let initial = |burst| match kind / 8 % 8 {
        0..=4 => burst,
        5 => 0,
        _ => burst * (1 + b % 3) / 4,
    };
    match kind % 8 {
        0..=4 => continuous(amount, period, burst, initial(burst)),
        5 | 6 => stepped(amount, period, burst + amount, initial(burst + amount)),
        _ => manual(burst, initial(burst)),
    }
}

/// A rule of any kind, for histories of a limiter.
pub(crate) fn any_rule(scale: Scale, dice: Dice) -> Rule {
    match rule(scale, dice) {
        Rule { refill: Refill::Stepped { amount, period }, initial, .. }
            if dice.1 & 1 == 0 && "1/s@epoch".parse::<tollgate::Quota>().is_ok() =>
        {
            let period = period.max(3);
            Rule { refill: Refill::Calendar { amount, period }, burst: amount, initial: initial.min(amount) }
        }
        rule => rule,
    }
}

fn op(setup: &Setup, scale: Scale, (kind, a, b, c): Dice, left: usize) -> Op {
    let place = usize::from(b);
    match kind % 100 {
        0..=13 => Op::Pass(span(setup, a, b)),
        14..=27 => Op::Consume(cost(setup, scale, a, b)),
        28..=39 => Op::Try(cost(setup, scale, a, b)),
        40..=48 => Op::Poll(place),
        49..=56 => Op::Cancel(place),
        57..=63 => Op::Drop(place),
        64..=70 => Op::Settle(place, cost(setup, scale, a, c)),
        71..=73 => Op::Heed(cost(setup, scale, a, b)),
        74..=77 => Op::Estimate(cost(setup, scale, a, b)),
        78..=79 => Op::Create(cost(setup, scale, a, b)),
        80..=82 => Op::Within(cost(setup, scale, a, b), span(setup, c, a)),
        83..=84 => Op::Pause(span(setup, a, b)),
        85..=87 => Op::SetQuota(place % setup.rules.len(), any_rule(scale, (kind.wrapping_add(a as u8), a, b, c))),
        88..=89 => Op::SetMax((1 + Int::from(a % 40)) * scale.tokens),
        90..=92 => Op::Replenish(cost(setup, scale, a, b)),
        93 => Op::Forget(place),
        94 => Op::Release(1 + Int::from(a % 8) * scale.tokens),
        95 => Op::Back(span(setup, a, b)),
        96 if left < 6 => Op::Close,
        97 => Op::Pass(if a % 4 == 0 { 100 * 365 * DAY } else { DAY + Int::from(a) }),
        98 => Op::Resume,
        _ => Op::Tick,
    }
}

/// Around the bursts, where results change, or small; sometimes zero, or far above.
pub(crate) fn cost(setup: &Setup, scale: Scale, a: u16, b: u16) -> Int {
    let (a, b) = (Int::from(a), Int::from(b));
    let burst = setup.rules[b as usize % setup.rules.len()].burst;
    match a % 16 {
        0..=6 => 1 + a / 16 % 4 * scale.tokens,
        7..=10 => 1 + a / 16 % burst,
        11 => burst,
        12 => burst + 1,
        13 | 14 => burst + 1 + a / 16 % (2 * burst),
        _ => {
            if b % 8 == 0 {
                1 << 40
            } else {
                0
            }
        }
    }
}

/// Around the instants at which tokens arrive.
fn span(setup: &Setup, a: u16, b: u16) -> Int {
    let (a, b) = (Int::from(a), Int::from(b));
    let (amount, period) = match setup.rules[a as usize % setup.rules.len()].refill {
        Refill::Continuous { amount, period }
        | Refill::Stepped { amount, period }
        | Refill::Calendar { amount, period } => (amount, period),
        Refill::Sliding { period, .. } => (1 + a / 2 % 40, period),
        Refill::Manual => (1, 10),
    };
    match b % 16 {
        0..=2 => 1 + b / 16 % 3,
        3 => 0,
        4..=7 => (1 + b / 16 % 6) * period / amount,
        8 | 9 => (1 + b / 16 % 6) * period / amount + 1,
        10 | 11 => (1 + b / 16 % 4) * period,
        12 => (1 + b / 16 % 4) * period - 1,
        13 => a % 50,
        14 => a % (3 * period),
        _ => 10 * period + a,
    }
}
