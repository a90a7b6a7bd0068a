//! Tests of the oracle: against a model that simulates every nanosecond, against the rate law, and against hand-made
//! tables.

use crate::oracle::law;
use crate::oracle::model::{Model, Seen};
use crate::oracle::ops::{History, Op, SMALL, any_scale, config, continuous, history, manual, stepped};
use crate::oracle::{Answer, Bound, Granted, Int, Oracle, Rule};
use proptest::prelude::*;

const MS: Int = 1_000_000;
const SECOND: Int = 1_000 * MS;

fn oracle(rule: Rule) -> Oracle {
    Oracle::new(&[rule], None, usize::MAX)
}

/// Few enough nanoseconds to simulate them one by one.
fn brief(op: Op) -> Op {
    match op {
        Op::Pass(span) => Op::Pass(span % 400),
        Op::Pause(span) => Op::Pause(span % 400),
        Op::Consume(cost) => Op::Consume(cost % 100),
        Op::Create(cost) => Op::Create(cost % 100),
        Op::Within(cost, allowed) => Op::Within(cost % 100, allowed),
        Op::Settle(place, cost) => Op::Settle(place, cost % 100),
        Op::Estimate(cost) => Op::Estimate(cost % 100),
        op => op,
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn calculated_and_simulated_time_agree(History { setup, ops } in history(Just(SMALL), 3, 30)) {
        let mut calculated = Model::new(&setup);
        let mut lived = Model::new(&setup).by_nanosecond();
        for op in ops.into_iter().map(brief) {
            prop_assert_eq!(calculated.apply(op), lived.apply(op), "after {:?}", op);
            prop_assert_eq!(calculated.view(), lived.view(), "after {:?}", op);
        }
        prop_assert_eq!(calculated.oracle.log(), lived.oracle.log());
    }

    #[test]
    fn looking_changes_nothing(History { setup, ops } in history(any_scale(), 3, 60)) {
        let (mut watched, mut alone) = (Model::new(&setup), Model::new(&setup));
        // Only the readings of a clock count, so a step back of an unread clock differs.
        for op in ops.into_iter().filter(|op| !matches!(op, Op::Back(_))) {
            watched.view();
            prop_assert_eq!(watched.apply(op), alone.apply(op), "at {:?}", op);
        }
        prop_assert_eq!(watched.view(), alone.view());
        prop_assert_eq!(watched.oracle.log(), alone.oracle.log());
    }

    #[test]
    fn no_window_holds_more_than_the_law_allows(History { setup, ops } in history(any_scale(), 2, 60)) {
        let mut model = Model::new(&setup);
        // With another quota the law would be another one.
        for op in ops.into_iter().filter(|op| !matches!(op, Op::SetQuota(..))) {
            model.apply(op);
        }
        for &rule in &setup.rules {
            prop_assert_eq!(law::broken(rule, model.oracle.log(), &model.given, |_| 0), None);
        }
    }

    #[test]
    fn the_hint_is_neither_early_nor_late(History { setup, ops } in history(any_scale(), 3, 60)) {
        let mut model = Model::new(&setup);
        for op in ops {
            if let Seen::Heeded { early, then, .. } = model.apply(op) {
                prop_assert!(early.is_none_or(|answer| answer != Answer::Granted));
                prop_assert!(then.is_none_or(|answer| answer == Answer::Granted));
            }
        }
    }
}

/// Chronos: each row is an instant in ms, a request, and the tokens left after it. Requests that do not fit change
/// nothing.
fn balanced(rule: Rule, table: &[(Int, Int, Option<Int>)]) {
    let mut oracle = oracle(rule);
    for (id, &(ms, cost, left)) in table.iter().enumerate() {
        let answer = oracle.try_acquire(ms * MS, id, cost);
        assert_eq!(answer == Answer::Granted, left.is_some(), "{cost} at {ms} ms");
        if let Some(left) = left {
            assert_eq!(oracle.available(), left, "after {cost} at {ms} ms");
        }
    }
}

#[test]
fn chronos_scenario_1() {
    let table = [
        (0, 7, Some(3)),
        (200, 5, Some(0)),
        (650, 3, Some(1)),
        (1200, 6, Some(1)),
        (1800, 5, Some(2)),
        (2100, 10, None),
        (2600, 10, Some(0)),
    ];
    balanced(continuous(10, SECOND, 10, 10), &table);
}

#[test]
fn chronos_high_rate_of_single_tokens() {
    let mut oracle = oracle(continuous(10, 10 * MS, 10, 10));
    let batches = [(0, 12, 10), (5, 7, 5), (10, 15, 5), (12, 3, 2), (20, 25, 8), (30, 9, 9), (31, 3, 2), (40, 20, 9)];
    for (ms, asked, accepted) in batches {
        let answers = (0..asked).filter(|&id| oracle.try_acquire(ms * MS, id, 1) == Answer::Granted);
        assert_eq!(answers.count(), accepted, "at {ms} ms");
    }
}

#[test]
fn chronos_comparison_rows() {
    let mut short = oracle(continuous(10, SECOND, 10, 4));
    short.advance(75 * MS);
    assert_eq!(short.available(), 4);
    short.advance(100 * MS);
    assert_eq!(short.available(), 5, "less than a token of time is kept");

    let mut idle = oracle(continuous(5, SECOND, 5, 5));
    idle.advance(2_500 * MS);
    idle.try_acquire(2_500 * MS, 0, 5);
    idle.advance(2_699 * MS);
    assert_eq!(idle.available(), 0, "time is lost while full");

    let mut overfull = oracle(continuous(10, SECOND, 10, 8));
    overfull.advance(350 * MS);
    overfull.try_acquire(350 * MS, 0, 10);
    overfull.advance(449 * MS);
    assert_eq!(overfull.available(), 0, "the fraction above the burst is lost too");
}

#[test]
fn strict_mode_jumps_at_the_boundary_and_not_before() {
    let mut oracle = oracle(stepped(10, SECOND, 10, 10));
    assert_eq!(oracle.try_acquire(0, 0, 10), Answer::Granted);
    oracle.advance(SECOND - 1);
    assert_eq!(oracle.available(), 0);
    oracle.advance(SECOND);
    assert_eq!(oracle.available(), 10);
}

/// The law: a refund counts in the windows that contain it, including their ends, and in no other.
#[test]
fn refunds_are_subtracted_in_their_own_windows_only() {
    let granted = |list: &[Int]| -> Vec<_> { list.iter().map(|&at| Granted { id: 0, at, cost: 1 }).collect() };
    let is_broken = |grants: &[Int], refunds: &[(Int, Int)]| {
        let given: Vec<_> = refunds.iter().map(|&(at, tokens)| law::Given { at, tokens }).collect();
        law::broken(continuous(1, 100, 1, 1), &granted(grants), &given, |_| 0).is_some()
    };
    assert!(!is_broken(&[0, 5, 5, 5, 5, 5], &[(5, 5)]));
    assert!(is_broken(&[0, 5, 5, 5, 5, 5, 5], &[(5, 5)]));
    assert!(is_broken(&[5, 5, 5, 5, 5, 5], &[(5, 4)]));
    assert!(is_broken(&[0, 5, 5], &[(4, 1), (6, 1)]), "not at that instant");
    assert!(!is_broken(&[0, 5], &[(3, 1)]));
}

#[test]
fn manual_quotas_wait_for_the_hand() {
    let mut oracle = oracle(manual(5, 0));
    let by = Bound::Quota(0);
    assert_eq!(oracle.try_acquire(9, 0, 2), Answer::Denied { retry_after: None, remaining: 0, by });
    assert_eq!(oracle.consume(9, 1, 3), Answer::Waits);
    oracle.replenish(10, 7);
    assert_eq!((oracle.log()[0].id, oracle.log()[0].at, oracle.available()), (1, 10, 2));
}

#[test]
fn the_savings_of_a_cancelled_giant_are_lost() {
    let mut oracle = oracle(continuous(1, 10, 5, 5));
    assert_eq!(oracle.consume(0, 0, 50), Answer::Waits);
    assert_eq!(oracle.consume(0, 1, 5), Answer::Waits);
    assert_eq!(oracle.consume(0, 2, 1), Answer::Waits);
    oracle.cancel(449, 0);
    let log: Vec<_> = oracle.log().iter().map(|granted| (granted.id, granted.at)).collect();
    assert_eq!(log, [(1, 449)]);
    oracle.advance(459);
    assert_eq!(oracle.log().len(), 2, "and the fraction of its next token");
}

#[test]
fn a_settlement_above_the_grant_is_paid_by_later_claims() {
    let mut oracle = oracle(continuous(1, 10, 5, 5));
    assert_eq!(oracle.try_acquire(0, 0, 5), Answer::Granted);
    assert_eq!(oracle.consume(0, 1, 2), Answer::Waits);
    oracle.settle(0, 5, 8);
    assert_eq!(oracle.consume(0, 2, 1), Answer::Waits);
    oracle.advance(1_000);
    let instants: Vec<_> = oracle.log().iter().map(|granted| granted.at).collect();
    assert_eq!(instants, [0, 20, 60], "two tokens, then a debt of three and one token");
}

#[test]
fn an_unread_grant_is_refunded() {
    let mut oracle = Oracle::new(&[continuous(1, 10, 5, 5)], Some(5), usize::MAX);
    oracle.try_acquire(0, 0, 5);
    assert_eq!(oracle.consume(0, 1, 5), Answer::Waits);
    oracle.release(0, 5);
    oracle.cancel(55, 1);
    assert_eq!((oracle.available(), oracle.in_flight()), (5, Some(0)), "clamped to the burst");
}

#[test]
fn the_ceiling_holds_back_and_burns_nothing_below_the_burst() {
    let mut oracle = Oracle::new(&[continuous(1, 10, 5, 5)], Some(5), usize::MAX);
    oracle.try_acquire(0, 0, 5);
    for id in 1..=5 {
        assert_eq!(oracle.consume(0, id, 1), Answer::Waits);
    }
    oracle.release(500, 3);
    assert_eq!((oracle.log().len(), oracle.levels()), (4, vec![2]));
    oracle.settle(500, 1, 3);
    oracle.release(500, 3);
    assert_eq!(oracle.log().len(), 5, "tokens settled on top are in flight until they are released");
}

#[test]
fn a_pause_is_over_when_the_longest_is_and_the_bucket_is_full_by_then() {
    let mut oracle = oracle(continuous(1, 10, 5, 0));
    oracle.pause_for(0, 100);
    oracle.pause_for(0, 50);
    let by = Bound::Pause;
    assert_eq!(oracle.try_acquire(0, 0, 5), Answer::Denied { retry_after: Some(100), remaining: 0, by });
    assert_eq!(oracle.consume(0, 1, 3), Answer::Waits);
    assert_eq!(oracle.consume(0, 2, 3), Answer::Waits);
    oracle.advance(1_000);
    let instants: Vec<_> = oracle.log().iter().map(|granted| granted.at).collect();
    assert_eq!(instants, [100, 110]);
}

#[test]
fn a_new_quota_keeps_the_started_token_and_burns_the_excess() {
    let mut oracle = oracle(continuous(1, 10, 5, 2));
    oracle.set_quota(5, 0, continuous(1, 100, 5, 0));
    oracle.advance(55);
    assert_eq!(oracle.available(), 3, "the second half took half of the new period");
    oracle.set_quota(55, 0, continuous(1, 100, 1, 0));
    assert_eq!(oracle.available(), 1);
}
