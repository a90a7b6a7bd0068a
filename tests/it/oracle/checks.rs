//! Does one history to a limiter and to the oracle and compares, or to a limiter alone and counts.

use proptest::prelude::*;
use tollgate::ManualClock;

use crate::oracle::hands::Hands;
use crate::oracle::model::{END, Model};
use crate::oracle::ops::{History, Op};
use crate::oracle::words;
use crate::oracle::{Int, law};

const DAY: Int = 86_400_000_000_000;

/// Both are told the same after every op; what can be seen, and who was woken, is the same whenever somebody looks.
pub(crate) fn agree(History { setup, ops }: &History) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiter = words::limiter(setup, 0, &clock);
    let (mut hands, mut model) = (Hands::new(&limiter, &clock), Model::new(setup));
    let mut step = |hands: &mut Hands, place: usize, op: Op| {
        let (seen, expected) = (hands.apply(op), model.apply(op));
        prop_assert_eq!(seen, expected, "told by limiter (left), oracle (right) in op {}: {:?}", place, op);
        if setup.watched || op == Op::Tick {
            let (seen, expected) = (hands.view(), model.view());
            prop_assert_eq!(seen, expected, "seen at limiter (left), oracle (right) after op {}: {:?}", place, op);
        }
        if setup.watched || !passes_by(op) {
            let (woken, expected) = (hands.rung(), model.woken());
            prop_assert_eq!(woken, expected, "woken by limiter (left), oracle (right) by op {}: {:?}", place, op);
        }
        Ok(())
    };
    for (place, &op) in ops.iter().enumerate() {
        step(&mut hands, place, op)?;
    }
    for op in ending(&hands) {
        step(&mut hands, ops.len(), op)?;
    }
    Ok(())
}

/// Ops that may leave the line as it is without looking at the clock. Who was due is woken by the next one.
pub(crate) fn passes_by(op: Op) -> bool {
    matches!(op, Op::Pass(_) | Op::Back(_) | Op::Create(_) | Op::Poll(_) | Op::Cancel(_) | Op::Settle(..))
        || matches!(op, Op::Drop(_) | Op::Forget(_) | Op::Release(_) | Op::SetMax(_))
}

/// Everything is given back, and every future is polled once more, now and a day later.
pub(crate) fn ending(hands: &Hands<'_>) -> Vec<Op> {
    let mut ops = vec![Op::Tick];
    ops.extend((0..hands.grants()).map(|_| Op::Drop(0)));
    ops.push(Op::Tick);
    // Those that end make room for those behind them: from the back, everybody has a turn.
    ops.extend((0..hands.futures()).rev().map(Op::Poll));
    ops.extend([Op::Pass(DAY), Op::Tick]);
    ops.extend((0..hands.futures()).rev().map(Op::Poll));
    ops
}

/// A limiter that publishes ahead may be slower than the oracle; it may not be faster, and all must come out in the end.
pub(crate) fn keep_the_law(
    History { setup, ops }: &History,
    stride: impl Into<Option<u64>>,
) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiter = words::limiter(setup, stride, &clock);
    let mut hands = Hands::prompt(&limiter, &clock, setup);
    // When the line was last brought up to date for certain.
    let mut ticks = vec![0];
    // Another quota would be another law.
    for op in ops.iter().filter(|op| !matches!(op, Op::SetQuota(..))).map(|&op| moderate(op)) {
        hands.apply(op);
        if setup.watched || op == Op::Tick {
            hands.view();
            hands.poll_the_woken();
            ticks.push(hands.latest());
        }
    }
    let late = |at: Int| at - ticks.iter().copied().filter(|&tick| tick < at).max().unwrap_or(at);
    for &rule in &setup.rules {
        prop_assert_eq!(law::broken(rule, &hands.log, &hands.given, |granted| late(granted.at)), None);
    }
    prop_assert_eq!(&hands.broken, &None);
    strands_nobody(&mut hands, setup.max_in_flight.is_some())
}

/// Costs that are saved up in a lifetime, and polls by those only who were woken: so they are noticed in their order.
fn moderate(op: Op) -> Op {
    match op {
        Op::Consume(cost) | Op::Create(cost) => Op::Consume(cost % 10_000),
        Op::Poll(_) => Op::Tick,
        Op::Within(cost, allowed) => Op::Within(cost % 10_000, allowed),
        Op::Settle(place, cost) => Op::Settle(place, cost % 10_000),
        op => op,
    }
}

fn strands_nobody(hands: &mut Hands<'_>, capped: bool) -> Result<(), TestCaseError> {
    if capped {
        hands.apply(Op::SetMax(1 << 40));
    }
    for _ in 0..200 {
        for place in (0..hands.futures()).rev() {
            hands.apply(Op::Poll(place));
        }
        // At the end of time a pause never ends.
        if hands.futures() == 0 || hands.latest() == END {
            return Ok(());
        }
        hands.apply(Op::Replenish(20_000));
        hands.apply(Op::Pass(DAY));
        hands.apply(Op::Tick);
    }
    prop_assert!(false, "{} futures are stuck", hands.futures());
    Ok(())
}
