//! Executes a history on a limiter and on the oracle and compares them, or on a limiter alone and counts.

use proptest::prelude::*;
use tollgate::ManualClock;

use crate::oracle::conversions;
use crate::oracle::executor::Executor;
use crate::oracle::model::{END, Model};
use crate::oracle::ops::{History, Op};
use crate::oracle::{Int, law};

const DAY: Int = 86_400_000_000_000;

/// Every op has the same result on both. Everything visible, and the claims that were woken, are the same at each
/// comparison.
pub(crate) fn agree(History { setup, ops }: &History) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiter = conversions::limiter(setup, 0, &clock);
    let (mut executor, mut model) = (Executor::new(&limiter, &clock), Model::new(setup));
    let mut step = |executor: &mut Executor, place: usize, op: Op| {
        let (seen, expected) = (executor.apply(op), model.apply(op));
        prop_assert_eq!(seen, expected, "result of limiter (left), oracle (right) in op {}: {:?}", place, op);
        if setup.watched || op == Op::Tick {
            let (seen, expected) = (executor.view(), model.view());
            prop_assert_eq!(seen, expected, "seen at limiter (left), oracle (right) after op {}: {:?}", place, op);
        }
        if setup.watched || !passes_by(op) {
            let (woken, expected) = (executor.woken(), model.woken());
            prop_assert_eq!(woken, expected, "woken by limiter (left), oracle (right) by op {}: {:?}", place, op);
        }
        Ok(())
    };
    for (place, &op) in ops.iter().enumerate() {
        step(&mut executor, place, op)?;
    }
    for op in ending(&executor) {
        step(&mut executor, ops.len(), op)?;
    }
    Ok(())
}

/// Ops that may leave the queue unserved without reading the clock. The due claims are woken by the next op.
pub(crate) fn passes_by(op: Op) -> bool {
    matches!(op, Op::Pass(_) | Op::Back(_) | Op::Create(_) | Op::Poll(_) | Op::Cancel(_) | Op::Settle(..))
        || matches!(op, Op::Drop(_) | Op::Forget(_) | Op::Release(_) | Op::SetMax(_))
}

/// Returns all tokens and polls every future once more, now and a day later.
pub(crate) fn ending(executor: &Executor<'_>) -> Vec<Op> {
    let mut ops = vec![Op::Tick];
    ops.extend((0..executor.grants()).map(|_| Op::Drop(0)));
    ops.push(Op::Tick);
    // From the back: a cancelled claim lets those behind it move up, so each of them is polled.
    ops.extend((0..executor.futures()).rev().map(Op::Poll));
    ops.extend([Op::Pass(DAY), Op::Tick]);
    ops.extend((0..executor.futures()).rev().map(Op::Poll));
    ops
}

/// A limiter that publishes tokens ahead may be slower than the oracle, but not faster, and every claim must be granted
/// at last.
pub(crate) fn keep_the_law(
    History { setup, ops }: &History,
    stride: impl Into<Option<u64>>,
) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiter = conversions::limiter(setup, stride, &clock);
    let mut executor = Executor::prompt(&limiter, &clock, setup);
    // When the queue was last certainly served.
    let mut ticks = vec![0];
    // With another quota the law would be another one.
    for op in ops.iter().filter(|op| !matches!(op, Op::SetQuota(..))).map(|&op| moderate(op)) {
        executor.apply(op);
        if setup.watched || op == Op::Tick {
            executor.view();
            executor.poll_the_woken();
            ticks.push(executor.latest());
        }
    }
    let late = |at: Int| at - ticks.iter().copied().filter(|&tick| tick < at).max().unwrap_or(at);
    for &rule in &setup.rules {
        prop_assert_eq!(law::broken(rule, &executor.log, &executor.given, |granted| late(granted.at)), None);
    }
    prop_assert_eq!(&executor.broken, &None);
    strands_no_claim(&mut executor, setup.max_in_flight.is_some())
}

/// Costs that can be saved up in a lifetime, and polls only of woken claims: so grants are noticed in their order.
fn moderate(op: Op) -> Op {
    match op {
        Op::Consume(cost) | Op::Create(cost) => Op::Consume(cost % 10_000),
        Op::Poll(_) => Op::Tick,
        Op::Within(cost, allowed) => Op::Within(cost % 10_000, allowed),
        Op::Settle(place, cost) => Op::Settle(place, cost % 10_000),
        op => op,
    }
}

fn strands_no_claim(executor: &mut Executor<'_>, capped: bool) -> Result<(), TestCaseError> {
    if capped {
        executor.apply(Op::SetMax(1 << 40));
    }
    for _ in 0..200 {
        for place in (0..executor.futures()).rev() {
            executor.apply(Op::Poll(place));
        }
        // At the end of time a pause never ends.
        if executor.futures() == 0 || executor.latest() == END {
            return Ok(());
        }
        executor.apply(Op::Replenish(20_000));
        executor.apply(Op::Pass(DAY));
        executor.apply(Op::Tick);
    }
    prop_assert!(false, "{} futures are stuck", executor.futures());
    Ok(())
}
