//! Histories decoded from bytes, for a fuzzer: the meaning of the bytes, and the checks of a history.
//!
//! | bytes | mean |
//! |---|---|
//! | 0 | the kind of check |
//! | 1 | the units of tokens and time |
//! | 2 | how many quotas, whether everything is watched, whether there is a ceiling |
//! | 3, 4, 5, 6 | the ceiling, the longest queue, where the rovers start |
//! | 7 | the stride, or how many kinds of wakers there are |
//! | 7 each | the quotas |
//! | 4 each | what wakers do |
//! | 7 each | the ops |

use std::fmt;

use proptest::prelude::*;

use crate::oracle::checks::{agree, keep_the_law};
use crate::oracle::ops::{Dice, History, Scale, Setup, cost, done_to, rule};
use crate::oracle::reentrant_wakers::{Act, Acts, MAX_WAITING, agree_with_echoes};
use crate::oracle::{Int, Rule};

/// Longer histories find nothing that shorter ones do not find.
const MAX_OPS: usize = 100;

#[derive(Clone, Debug)]
enum Check {
    /// Limiter and oracle agree.
    Agree,
    /// Also with wakers that act.
    Echo(Acts),
    /// A stride, forced or adaptive, keeps the rate law.
    Law(Option<u64>),
}

#[derive(Clone)]
pub(crate) struct Case {
    history: History,
    check: Check,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // On one line, also where the pretty format is requested.
        write!(f, "{:?} of {:?}", self.check, self.history)
    }
}

impl Case {
    pub(crate) fn run(&self) -> Result<(), TestCaseError> {
        match &self.check {
            Check::Agree => agree(&self.history),
            Check::Echo(acts) => agree_with_echoes(&self.history, acts),
            Check::Law(stride) => keep_the_law(&self.history, *stride),
        }
    }
}

/// The history that `bytes` stand for. Missing bytes are zeros, so there always is one.
pub(crate) fn decoded(mut bytes: &[u8]) -> Case {
    let [kind, units, shape, ceiling, most_waiting, start, start_low, extent] = header(&mut bytes);
    let scale = scale(kind, units);
    let rules: Vec<Rule> = (0..1 + shape % 3).map(|_| rule(scale, dice(&mut bytes))).collect();
    let echoes = matches!(kind % 8, 4..=6);
    let setup = Setup {
        rules,
        max_in_flight: (shape & 0x10 != 0).then(|| (1 + Int::from(ceiling % 40)) * scale.tokens),
        max_waiting: match most_waiting {
            240.. => u64::from(most_waiting) - 240,
            _ if echoes => MAX_WAITING,
            _ => 1000,
        },
        rovers_at: rovers_at(start, start_low),
        watched: shape & 0x20 != 0,
    };
    let check = match kind % 8 {
        0..=3 => Check::Agree,
        4..=6 => Check::Echo(Acts((0..extent % 16).map(|_| act(&setup, scale, header(&mut bytes))).collect())),
        _ if extent < 40 => Check::Law(None),
        _ => Check::Law(Some(extent.into())),
    };
    let mut ops = Vec::new();
    while !bytes.is_empty() && ops.len() < MAX_OPS {
        ops.push(dice(&mut bytes));
    }
    Case { history: done_to(setup, scale, ops), check }
}

fn scale(kind: u8, units: u8) -> Scale {
    let tokens = match units % 16 {
        // No stride without bursts of 64 and more.
        _ if kind % 8 == 7 => 20,
        0..=11 => 1,
        12 | 13 => 97,
        _ => 1_000_000_000,
    };
    let nanoseconds = match units / 16 {
        0..=7 => 1,
        8..=10 => 10,
        11 | 12 => 1_000_003,
        // The check waits for every claim of such a history, but not for years.
        13.. if kind % 8 == 7 => 1_000_000_000,
        13 | 14 => 1_000_000_000,
        _ => 86_400_000_000_000,
    };
    Scale { tokens, nanoseconds }
}

/// Positions wrap where the type does, and change sign in the middle.
fn rovers_at(start: u8, low: u8) -> u64 {
    match start % 4 {
        0 | 1 => 0,
        2 => u64::MAX - u64::from(low),
        _ => i64::MAX as u64 + 100 - u64::from(low),
    }
}

fn act(setup: &Setup, scale: Scale, [kind, a, b, c]: [u8; 4]) -> (Act, bool) {
    let cost = || cost(setup, scale, u16::from_le_bytes([a, b]), c.into());
    let act = match kind % 16 {
        0 | 1 => Act::Nothing,
        2 | 3 => Act::Tick,
        4..=6 => Act::Try(cost()),
        7 => Act::Replenish(cost()),
        8 => Act::Estimate(cost()),
        9..=11 => Act::PollAnother(c.into()),
        12..=14 => Act::DropAnother(c.into()),
        _ if c >= 240 => Act::Close,
        _ => Act::Nothing,
    };
    (act, kind & 0x40 != 0)
}

fn dice(bytes: &mut &[u8]) -> Dice {
    let [kind, a, b, c, d, e, f] = header(bytes);
    (kind, u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]), u16::from_le_bytes([e, f]))
}

fn header<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (taken, rest) = bytes.split_at(N.min(bytes.len()));
    *bytes = rest;
    let mut header = [0; N];
    header[..taken.len()].copy_from_slice(taken);
    header
}
