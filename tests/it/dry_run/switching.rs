//! Dry run switched on and off while calls are made.

use crate::fixture::*;

use crate::oracle::conversions::{nanoseconds, quota, unsigned};
use crate::oracle::ops::{config, continuous};
use crate::oracle::{Int, Oracle};

/// Of one quota that stops at every token, the level tells all of the queue: so an estimate is the same at every
/// instant, whether the claims before it waited or passed.
fn compare((amount, period, burst): (Int, Int, Int), steps: &[(u8, u16)]) {
    let rule = continuous(amount, amount.max(period), burst, burst);
    let clock = ManualClock::new();
    let limiter = Limiter::builder().quota(quota(rule)).clock(clock.clone()).dry_run().build().expect("valid");
    let (mut oracle, mut now, mut waiting) = (Oracle::new(&[rule], None, 1_000), 0, Vec::new());
    let mut is_dry = true;
    for (id, &(kind, size)) in steps.iter().enumerate() {
        let size = Int::from(size);
        match kind % 8 {
            0..=2 => {
                let cost = 1 + size % (2 * burst);
                let estimate = oracle.estimate(now, cost);
                oracle.consume(now, id, cost);
                let mut claim = spawn(limiter.consume(unsigned(cost)));
                match claim.poll() {
                    Poll::Ready(Ok(grant)) if is_dry => {
                        assert_eq!(grant.would_have_waited().map(|wait| wait.as_nanos() as Int), estimate, "{id}");
                    }
                    Poll::Ready(Ok(_)) => assert_eq!(estimate, Some(0), "{id}"),
                    Poll::Pending if !is_dry => waiting.push(claim),
                    other => panic!("{id}: {other:?}"),
                }
            }
            3 => {
                let cost = 1 + size % burst;
                let answer = oracle.try_acquire(now, id, cost);
                let granted = limiter.try_acquire(unsigned(cost));
                let would = granted.as_ref().is_ok_and(|grant| grant.would_have_been_refused().is_none());
                assert_eq!(would, answer == crate::oracle::Answer::Granted, "{id}: {granted:?}, {answer:?}");
                assert!(!is_dry || granted.is_ok(), "{id}");
            }
            4 | 5 => {
                let span = size % (4 * amount.max(period));
                now += span;
                tick_after(&clock, &limiter, nanoseconds(span));
            }
            _ => {
                is_dry = !is_dry;
                limiter.set_dry_run(0, is_dry).expect("there is a quota 0");
            }
        }
        waiting.retain_mut(|claim| claim.poll().is_pending());
        assert!(!is_dry || waiting.is_empty(), "{id}: a waiter did not pass");
        assert_eq!(limiter.snapshot().dry_run.is_some(), is_dry, "{id}");
        for cost in [1, burst] {
            let own = limiter.estimate(unsigned(cost)).map(|wait| wait.as_nanos() as Int);
            assert_eq!(own, oracle.estimate(now, cost), "{id}, {is_dry}");
        }
        assert_eq!(Int::from(limiter.available()), oracle.available(), "{id}, {is_dry}");
        assert_eq!(Int::from(limiter.deficiency()), oracle.deficiency(), "{id}, {is_dry}");
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn no_switch_loses_the_level_or_the_queue(
        rule in (1_i128..6, 1_i128..60, 1_i128..12),
        steps in prop::collection::vec(any::<(u8, u16)>(), 1..80),
    ) {
        compare(rule, &steps);
    }
}

#[test]
fn a_claim_that_waited_before_the_dry_run_is_refunded_in_it_too() {
    let builder = Limiter::builder().quota(Quota::manual(10).initial(10)).max_in_flight(5);
    let limiter = builder.clock(ManualClock::new()).build().unwrap();
    let _held = limiter.try_acquire(5).unwrap();
    let waiting = pending(limiter.consume(5));
    limiter.set_dry_run(0, true).unwrap();
    drop(waiting);
    limiter.set_dry_run(0, false).unwrap();
    assert_eq!(limiter.snapshot().quotas[0].level, 5);
}

#[test]
fn a_call_that_would_have_been_refused_gives_nothing_back_to_the_quota_that_is_enforced_again() {
    for cap in [None, Some(20)] {
        let builder = Limiter::builder().quota(Quota::per_day(10)).clock(ManualClock::new()).dry_run();
        let limiter = cap.into_iter().fold(builder, Builder::max_in_flight).build().unwrap();
        let _held = limiter.try_acquire(4).unwrap();
        let mut refused = limiter.try_acquire(7).unwrap();
        limiter.set_dry_run(0, false).unwrap();
        refused.settle(1);
        assert_eq!((limiter.available(), limiter.snapshot().in_flight), (6, cap.map(|_| 5)));
    }
}

#[test]
fn a_sliding_quota_that_is_enforced_again_does_not_count_what_still_waits_for_the_cap() {
    let builder = Limiter::builder().quota(Quota::per_second(10).sliding()).max_in_flight(5);
    let limiter = builder.clock(ManualClock::new()).dry_run().build().unwrap();
    let held = limiter.try_acquire(4).unwrap();
    let waiting = pending(limiter.consume(3));
    limiter.set_dry_run(0, false).unwrap();
    drop(waiting);
    held.forget();
    assert_eq!(limiter.snapshot().quotas[0].level, 6);
}

#[test]
fn a_limiter_that_leaves_dry_run_has_its_fast_path_back() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(Quota::per_second(1_000).burst(1_000)).clock(clock.clone()).stride(10);
    let limiter = builder.build().unwrap();
    let published = |limiter: &Limiter| {
        drop(limiter.try_acquire(1).unwrap());
        let seen = limiter.snapshot();
        seen.published - seen.tail
    };
    assert_eq!(published(&limiter), 10);
    limiter.set_dry_run(0, true).unwrap();
    assert_eq!(published(&limiter), 0);
    limiter.set_dry_run(0, false).unwrap();
    assert_eq!(published(&limiter), 9, "ten were published, and one was taken without the lock");
}

/// The stride of the fast path grows with the pace of the calls, and a dry run holds back none of them.
#[test]
fn a_busy_dry_run_that_ends_costs_no_tokens() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(100).burst(10);
    let limiter = Limiter::builder().quota(quota).clock(clock.clone()).dry_run().build().unwrap();
    for _ in 0..20 {
        clock.advance(Duration::from_nanos(100));
        limiter.try_acquire(1_000).unwrap().forget();
    }
    clock.advance(Duration::from_nanos(100));
    limiter.set_dry_run(0, false).unwrap();
    (0..10).for_each(|_| limiter.try_acquire(1).unwrap().forget());
    clock.advance(50 * MILLI);
    limiter.try_acquire(5).unwrap().forget();
}

#[test]
fn a_call_that_the_cap_refuses_takes_no_tokens_of_the_simulation() {
    let builder = Limiter::builder().quota(Quota::per_day(10)).max_in_flight(2).max_waiting(0).dry_run();
    let limiter = builder.clock(ManualClock::new()).build().unwrap();
    let _held = limiter.try_acquire(2).unwrap();
    assert!(limiter.try_acquire(2).is_err());
    assert!(spawn(limiter.consume(2)).poll().map(|result| result.is_err()).is_ready());
    assert_eq!(limiter.snapshot().quotas[0].level, 8);
}

#[test]
fn a_call_that_would_have_been_refused_gives_nothing_back_to_a_quota_enforced_while_another_is_in_dry_run() {
    for both in [false, true] {
        let builder = Limiter::builder().quota(Quota::per_day(5)).quota(Quota::per_day(20)).dry_run_quota(0);
        let builder = if both { builder.dry_run_quota(1) } else { builder };
        let limiter = builder.clock(ManualClock::new()).build().unwrap();
        let _granted = limiter.try_acquire(4).unwrap();
        let mut refused = limiter.try_acquire(7).unwrap();
        limiter.set_dry_run(0, false).unwrap();
        limiter.set_dry_run(1, true).unwrap();
        refused.settle(0);
        assert_eq!(limiter.snapshot().quotas[0].level, 1, "{both}");
    }
}

#[test]
fn a_waiter_that_the_beginning_of_a_dry_run_lets_pass_leaves_no_tokens() {
    let builder = Limiter::builder().quota(Quota::per_day(5)).clock(ManualClock::new());
    let limiter = builder.build().unwrap();
    let _granted = limiter.try_acquire(5).unwrap();
    let mut waiter = pending(limiter.consume(1));
    limiter.set_dry_run(0, true).unwrap();
    assert_eq!(assert_ready_ok!(waiter.poll()).remaining(), 0);
}

/// The quota that was enforced all the time gave its tokens, and has them back.
#[test]
fn a_call_that_would_have_been_refused_gives_back_to_the_quotas_that_were_enforced_before_and_after() {
    let builder = Limiter::builder().quota(Quota::per_day(5)).quota(Quota::per_day(20)).dry_run_quota(0);
    let limiter = builder.clock(ManualClock::new()).build().unwrap();
    let mut refused = [6, 7].map(|cost| limiter.try_acquire(cost).unwrap());
    for (end, grant) in refused.iter_mut().enumerate() {
        limiter.set_dry_run(0, false).unwrap();
        grant.settle(0);
        let levels: Vec<i64> = limiter.snapshot().quotas.iter().map(|quota| quota.level).collect();
        assert_eq!(levels, [[5, 13], [5, 20]][end], "end {end}");
        limiter.set_dry_run(0, true).unwrap();
    }
}

/// The cap holds it back, and it takes its tokens of the quotas that are enforced by then. Quota 1 stays in dry run. A sliding
/// quota knows no instant of a call that would have been refused, and gets nothing back.
#[test]
fn a_waiter_that_would_have_been_refused_counts_once_in_the_quota_that_is_enforced_again() {
    let quotas = Limiter::builder().quota(Quota::per_second(1).burst(20)).quota(Quota::per_day(20)).dry_run();
    for quotas in [quotas.clone(), quotas.quota(Quota::per_second(20).sliding()).dry_run_quota(2)] {
        let limiter = quotas.max_in_flight(10).clock(ManualClock::new()).build().unwrap();
        let held = limiter.try_acquire(10).unwrap();
        let mut waiting = pending(limiter.consume(10));
        let mut refused = pending(limiter.consume(9).within(SECOND));
        for which in (0..limiter.snapshot().quotas.len()).filter(|which| *which != 1) {
            limiter.set_dry_run(which, false).unwrap();
            assert_eq!(limiter.snapshot().quotas[which].level, 10, "{which}: `held` has the others");
        }
        assert!(waiting.poll().is_pending());
        drop((waiting, held));
        let mut refused = assert_ready_ok!(refused.poll());
        refused.settle(4);
        let levels: Vec<i64> = limiter.snapshot().quotas.iter().map(|quota| quota.level).collect();
        assert_eq!(levels, [[6, 10].as_slice(), &[6, 10, 1]][levels.len() - 2]);
    }
}

/// Another quota in dry run would have refused the calls. They passed, and this one was enforced.
#[test]
fn a_quota_that_goes_into_dry_run_has_the_level_of_what_passed_it() {
    for quota in [Quota::per_second(1).burst(20), Quota::per_second(20).sliding()] {
        let builder = Limiter::builder().quota(quota).quota(Quota::per_day(1)).dry_run_quota(1).max_in_flight(12);
        let limiter = builder.clock(ManualClock::new()).build().unwrap();
        let _passed = limiter.try_acquire(12).unwrap();
        let level = || limiter.snapshot().quotas[0].level;
        let waiting = pending(limiter.consume(5));
        let refused = pending(limiter.consume(2).within(SECOND));
        for _ in 0..2 {
            limiter.set_dry_run(0, true).unwrap();
            assert_eq!(limiter.deficiency(), 4, "one token of a day, and a claim of five waits for it");
            limiter.set_dry_run(0, false).unwrap();
            assert_eq!(level(), 8);
        }
        drop((waiting, refused));
        assert_eq!(level(), 8);
    }
}
