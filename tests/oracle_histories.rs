//! One history, done to a limiter and to the oracle: everybody must be told the same, in the same order, at the same time.
//!
//! A history that fails is printed as Rust: paste it into `replayed` and run `cargo test --test oracle_histories replayed`.
//! More of them: `PROPTEST_CASES=100000 cargo test --test oracle_histories`.

#[path = "oracle/hands.rs"]
mod hands;
#[path = "oracle/itself.rs"]
mod itself;
mod oracle;
#[path = "oracle/words.rs"]
mod words;

use hands::Hands;
use oracle::model::{END, Model, Seen};
use oracle::ops::{History, Op, Scale, any_scale, config, history};
use oracle::{Answer, Int, law};
use proptest::prelude::*;
use tollgate::ManualClock;

const DAY: Int = 86_400_000_000_000;

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn limiter_and_oracle_agree(history in history(any_scale(), 3, 60)) {
        agree(&history)?;
    }

    #[test]
    fn one_quota_agrees(history in history(any_scale(), 1, 60)) {
        agree(&history)?;
    }

    #[test]
    fn a_stride_keeps_the_law_and_strands_nobody(
        history in history(Just(Scale { tokens: 20, nanoseconds: 10 }), 2, 60),
        stride in 1_u64..200,
    ) {
        keep_the_law(&history, stride)?;
    }

    #[test]
    fn the_hint_is_neither_early_nor_late(history in history(any_scale(), 3, 40), cost in 1_u64..30) {
        hint_is_honest(&history, cost.into())?;
    }
}

/// Both are told the same after every op; what can be seen, and who was woken, is the same whenever somebody looks.
fn agree(History { setup, ops }: &History) -> Result<(), TestCaseError> {
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
fn passes_by(op: Op) -> bool {
    matches!(op, Op::Pass(_) | Op::Back(_) | Op::Create(_) | Op::Poll(_) | Op::Cancel(_) | Op::Settle(..))
        || matches!(op, Op::Drop(_) | Op::Forget(_) | Op::Release(_) | Op::SetMax(_))
}

/// Everything is given back, and every future is polled once more, now and a day later.
fn ending(hands: &Hands<'_>) -> Vec<Op> {
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
fn keep_the_law(History { setup, ops }: &History, stride: u64) -> Result<(), TestCaseError> {
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

/// The limiter alone: after any history, a refusal that names a time is right to the nanosecond.
fn hint_is_honest(History { setup, ops }: &History, cost: Int) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiter = words::limiter(setup, 0, &clock);
    let mut hands = Hands::new(&limiter, &clock);
    for &op in ops {
        hands.apply(op);
    }
    if let Seen::Heeded { first, early, then } = hands.apply(Op::Heed(cost)) {
        prop_assert!(
            early.is_none_or(|answer| answer != Answer::Granted),
            "{:?} was too long, early is {:?}",
            first,
            early
        );
        prop_assert!(
            then.is_none_or(|answer| answer == Answer::Granted),
            "{:?} was too short, then is {:?}",
            first,
            then
        );
    }
    Ok(())
}

/// Histories that failed once, and what was wrong.
#[test]
fn replayed() {
    use oracle::ops::{Op::*, continuous, recorded};
    let histories = [
        // A giant left a full bucket behind, and nearly another token on top.
        recorded(
            vec![continuous(1, 10, 4, 4)],
            None,
            1000,
            0,
            false,
            vec![Consume(9), Pass(9), Cancel(0), Try(4), Heed(1)],
        ),
        // So did a refund.
        recorded(
            vec![continuous(1, 1000, 12, 12)],
            None,
            1000,
            0,
            false,
            vec![Try(12), Pass(999), Settle(0, 0), Try(12), Heed(1)],
        ),
        // What was settled on top behind others did not count as in flight ...
        recorded(
            vec![continuous(1, 1000, 100, 100), continuous(1, 10, 5, 0)],
            Some(9),
            1000,
            0,
            true,
            vec![Replenish(5), Try(5), Consume(4), Settle(0, 8), Pass(40)],
        ),
        // ... and widened the ceiling when it was released.
        recorded(
            vec![continuous(1, 1000, 100, 100)],
            Some(10),
            1000,
            0,
            true,
            vec![Try(1), Try(9), Consume(3), Settle(0, 4), Drop(0)],
        ),
        // The estimate was late by as much as the clock was behind, though there was nothing to wait for.
        recorded(
            vec![continuous(1, 1, 3, 3)],
            None,
            1000,
            0,
            false,
            vec![Pass(5), Back(1), Estimate(1), Close, Estimate(0)],
        ),
    ];
    let failed: Vec<_> = histories.iter().filter_map(|history| agree(history).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
