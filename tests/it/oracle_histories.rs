//! One history, executed on a limiter and on the oracle: all results must be equal, in the same order and at the same
//! time.
//!
//! A failing history is printed as Rust: copy it into `replayed` and run `cargo test --test it
//! oracle_histories::replayed`. To run more of them: `PROPTEST_CASES=100000 cargo test --test it oracle_histories`.

use crate::fixture::*;
use crate::oracle::checks::{agree, keep_the_law};
use crate::oracle::executor::Executor;
use crate::oracle::model::Seen;
use crate::oracle::ops::{History, Op, Scale, any_scale, config, history, with_windows};
use crate::oracle::{Answer, Int};

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn limiter_and_oracle_agree(history in history(any_scale(), 3, 60)) {
        agree(&history)?;
    }

    #[test]
    fn sliding_windows_agree(history in history(any_scale(), 3, 60).prop_map(with_windows)) {
        agree(&history)?;
    }

    #[test]
    fn late_sliding_windows_keep_the_law(
        history in history(Just(Scale { tokens: 20, nanoseconds: 1_000_003 }), 2, 60).prop_map(with_windows),
    ) {
        keep_the_law(&history, None)?;
        hint_is_honest(&history, 7)?;
    }

    #[test]
    fn a_stride_keeps_the_law_and_strands_no_claim(
        history in history(Just(Scale { tokens: 20, nanoseconds: 10 }), 2, 60),
        stride in prop::option::weighted(0.8, 1_u64..200),
    ) {
        keep_the_law(&history, stride)?;
    }

    /// The queue is served seldom: a window then contains what the rate brings in it and in the lateness.
    #[test]
    fn a_late_driver_keeps_the_law(history in history(Just(Scale { tokens: 20, nanoseconds: 1_000_003 }), 3, 60)) {
        keep_the_law(&history, None)?;
    }

    #[test]
    fn the_hint_is_neither_early_nor_late(history in history(any_scale(), 3, 40), cost in 1_u64..30) {
        hint_is_honest(&history, cost.into())?;
    }
}

/// The limiter alone: after any history, the `retry_after` of a refusal is correct to the nanosecond.
fn hint_is_honest(History { setup, ops }: &History, cost: Int) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let limiter = crate::oracle::conversions::limiter(setup, 0, &clock);
    let mut executor = Executor::new(&limiter, &clock);
    for &op in ops {
        executor.apply(op);
    }
    if let Seen::Heeded { first, early, then } = executor.apply(Op::Heed(cost)) {
        let is_granted = |answer| answer == Answer::Granted;
        prop_assert!(!early.is_some_and(is_granted), "{:?} was too long, early is {:?}", first, early);
        prop_assert!(then.is_none_or(is_granted), "{:?} was too short, then is {:?}", first, then);
    }
    Ok(())
}

/// Histories that failed once, with their errors.
#[test]
fn replayed() {
    use crate::oracle::ops::{Op::*, continuous, recorded};
    let plain = |rules, ops| recorded(rules, None, 1000, 0, false, ops);
    let capped = |rules, most, ops| recorded(rules, Some(most), 1000, 0, true, ops);
    let slow = continuous(1, 1000, 100, 100);
    let histories = [
        // A giant left a full bucket behind, plus nearly another token.
        plain(vec![continuous(1, 10, 4, 4)], vec![Consume(9), Pass(9), Cancel(0), Try(4), Heed(1)]),
        plain(
            vec![continuous(1, 4, 9, 0), continuous(1, 1, 9, 0)],
            vec![
                Pass(35),
                Consume(10),
                Consume(10),
                Pass(2),
                Cancel(0),
                Pass(1),
                Consume(1),
                Cancel(0),
                Consume(9),
                Pass(2),
            ],
        ),
        // So did a refund.
        plain(vec![continuous(1, 1000, 12, 12)], vec![Try(12), Pass(999), Settle(0, 0), Try(12), Heed(1)]),
        // Tokens settled on top while others waited were not counted in flight ...
        capped(vec![slow, continuous(1, 10, 5, 0)], 9, vec![Replenish(5), Try(5), Consume(4), Settle(0, 8), Pass(40)]),
        // ... and raised the ceiling when they were released.
        capped(vec![slow], 10, vec![Try(1), Try(9), Consume(3), Settle(0, 4), Drop(0)]),
        // The estimate was late by as much as the clock was behind, though no wait was needed.
        plain(vec![continuous(1, 1, 3, 3)], vec![Pass(5), Back(1), Estimate(1), Close, Estimate(0)]),
    ];
    let failed: Vec<_> = histories.iter().filter_map(|history| agree(history).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
