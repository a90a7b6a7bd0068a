//! All quotas in dry run: each verdict is that of the oracle, which enforces them.

use crate::fixture::*;
use proptest::strategy::ValueTree;

use super::{Call, LONGEST, Made, Step, Trace, agree, leave, poll_all, trace, verdict_of};
use crate::oracle::conversions::{nanoseconds, quota, unsigned};
use crate::oracle::ops::{config, continuous};
use crate::oracle::{Id, Int, Oracle};

/// Runs the trace on the oracle and on a limiter, of which all quotas are in dry run, or the first. Returns how many calls
/// would have waited, when each call was made, and the wait that its grant told.
fn compare(trace: &Trace, are_all_dry: bool) -> (usize, Oracle, HashMap<Id, (Int, Int)>) {
    let clock = ManualClock::new();
    let builder = trace.builder(&clock);
    let builder = if are_all_dry { builder.dry_run() } else { builder.dry_run_quota(0) };
    let limiter = builder.build().expect("valid");
    let mut oracle = trace.oracle();
    let (mut now, mut waits, mut told) = (0, 0, HashMap::new());
    let mut grants: Vec<(Id, Grant<'_>)> = Vec::new();
    let mut waiting = Vec::new();
    for (id, step) in trace.steps.iter().enumerate() {
        match *step {
            Step::Pass(span) => {
                now += span;
                clock.advance(nanoseconds(span));
            }
            Step::Call(call) => {
                let verdict = call.ask(&mut oracle, now, id);
                if !matches!(verdict, super::Verdict::Wait(Some(0))) {
                    oracle.uncounted.push(id);
                }
                waits += usize::from(matches!(verdict, super::Verdict::Wait(Some(1..))));
                match call.make(&limiter) {
                    Made::Granted(grant) => {
                        assert!(agree(verdict_of(&grant), verdict), "{id} {call:?}: {grant:?}, {verdict:?}");
                        if let Some(wait) = grant.would_have_waited() {
                            told.insert(id, (now, wait.as_nanos() as Int));
                        }
                        grants.push((id, grant));
                    }
                    // Only a pause holds back a call, and `max_waiting` what it holds back.
                    made if are_all_dry && limiter.snapshot().paused_for.is_none() => panic!("{id}: {made:?}"),
                    Made::Refused(_) | Made::TimedOut => leave(&mut oracle, now, id, verdict),
                    Made::Waits(claim) => waiting.push((id, verdict, claim)),
                }
            }
            Step::Settle(place, actual) if !grants.is_empty() => {
                let place = place % grants.len();
                let (id, grant) = &mut grants[place];
                let cost = Int::from(grant.cost());
                if grant.would_have_been_refused().is_none() {
                    oracle.settle(now, *id, cost, actual);
                }
                grant.settle(unsigned(actual));
                assert_eq!(Int::from(grant.cost()), actual, "{id}");
            }
            Step::SetQuota(index, rule) => {
                oracle.set_quota(now, index, rule);
                limiter.set_quota(index, quota(rule)).expect("valid");
            }
            Step::Replenish(tokens) => {
                oracle.replenish(now, tokens);
                limiter.replenish(unsigned(tokens));
            }
            Step::Pause(span) => {
                oracle.pause_for(now, span);
                limiter.pause_for(nanoseconds(span));
            }
            Step::Resume => {
                oracle.resume(now);
                limiter.resume();
            }
            Step::Cancel(place) if !waiting.is_empty() => {
                let (id, verdict, claim) = waiting.remove(place % waiting.len());
                drop(claim);
                leave(&mut oracle, now, id, verdict);
            }
            Step::Settle(..) | Step::Cancel(_) => {}
        }
        limiter.tick();
        grants.extend(poll_all(&mut waiting, &mut oracle, now));
        if !are_all_dry {
            continue;
        }
        let seen = limiter.snapshot();
        oracle.advance(now);
        let levels: Vec<Int> = seen.quotas.iter().map(|quota| quota.level.into()).collect();
        let simulated = seen.dry_run.expect("in dry run");
        // The oracle charges a debt at the front of its queue with the next look.
        if oracle.debts() == 0 {
            assert_eq!(levels, oracle.levels(), "{id} {step:?}");
        }
        assert_eq!(simulated.waiting_tasks, oracle.waiting(), "{id} {step:?}");
        assert_eq!(Int::from(limiter.available()), oracle.available(), "{id} {step:?}");
        assert_eq!(Int::from(limiter.deficiency()), oracle.deficiency(), "{id} {step:?}");
    }
    oracle.advance(now + (1 << 65));
    (waits, oracle, told)
}

/// If nothing changes the queue, the verdict is the wait that the oracle's caller had in the end.
fn compare_with_waits(trace: &Trace) {
    let (_, oracle, mut told) = compare(trace, true);
    for granted in oracle.log() {
        let (arrived, wait) = told.remove(&granted.id).unwrap_or_else(|| panic!("{granted:?}: refused"));
        assert_eq!((granted.at - arrived).min(LONGEST), wait, "{granted:?}");
    }
    assert!(told.is_empty(), "never granted: {told:?}");
}

/// A history that failed: the slots of a window whose period changes are joined by multiples of a power of two.
#[test]
fn the_period_of_a_sliding_quota_changes_under_a_claim_that_would_wait() {
    let trace = Trace {
        rules: vec![continuous(97, 19_000_057, 1_067, 533), continuous(485, 2_000_006, 194, 194)],
        max_waiting: 1_000,
        rovers_at: 0,
        steps: vec![
            Step::Pass(4_500_013),
            Step::Call(Call::Consume(292)),
            Step::Call(Call::Consume(110)),
            Step::Pass(1_000_003),
            Step::Call(Call::Consume(1_058)),
            Step::SetQuota(0, continuous(679, 17_000_051, 1_261, 1_261)),
            Step::Call(Call::Consume(1)),
        ],
    };
    compare(&trace.with_windows(), true);
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn each_verdict_is_the_answer_of_the_oracle(trace in trace(true)) {
        compare(&trace, true);
    }

    #[test]
    fn with_sliding_quotas_too(trace in trace(true)) {
        compare(&trace.with_windows(), true);
    }

    #[test]
    fn beside_enforced_quotas_too(trace in trace(false)) {
        compare(&trace, false);
    }

    #[test]
    fn each_wait_is_to_the_nanosecond_what_enforcement_makes_the_caller_wait(trace in trace(false)) {
        compare_with_waits(&trace);
    }
}

/// The histories are of use only if calls would have waited in them.
#[test]
fn the_traces_have_waits() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let traces = (0..200).map(|_| trace(true).new_tree(&mut runner).expect("a trace").current());
    let waits: usize = traces.map(|trace| compare(&trace, true).0).sum();
    assert!(waits > 500, "{waits}");
}

/// A trace that `proptest` found hard: an unknown wait, and a wait behind it.
#[test]
fn a_wait_for_a_manual_quota_is_unknown() {
    let clock = ManualClock::new();
    let builder = tollgate::Limiter::builder().quota(tollgate::Quota::manual(5)).clock(clock.clone());
    let limiter = builder.dry_run().build().expect("valid");
    let Made::Granted(first) = Call::Consume(7).make(&limiter) else { panic!("it passes") };
    assert_eq!((first.would_have_waited(), first.would_have_been_refused()), (None, None));
    let seen = limiter.snapshot().dry_run.expect("in dry run");
    assert_eq!((seen.waiting_tasks, seen.waiting_tokens, seen.would_wait), (1, 7, 1));
    limiter.replenish(2);
    assert_eq!(limiter.snapshot().dry_run.expect("in dry run").waiting_tasks, 0);
}
