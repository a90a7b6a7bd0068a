//! Claims, grants and attempts of an adaptive rate: what is reported, and what it costs.

use super::{Fixture, granted};
use crate::fixture::*;

#[test]
fn a_cancelled_claim_reports_nothing_and_loses_no_token() {
    let fixture = Fixture::starting_at(10);
    let granted_before = fixture.adaptive.limiter().snapshot().granted;
    let claims: Vec<_> = {
        super::drop_tokens(fixture.adaptive.limiter());
        (0..10).map(|_| fixture.enter()).collect()
    };
    fixture.pass(10 * SECOND); // granted, but never received
    drop(claims);
    let seen = fixture.adaptive.snapshot();
    assert_eq!((seen.accepted, seen.refused, fixture.rate()), (0, 0, 10.0));
    let limiter = fixture.adaptive.limiter().snapshot();
    assert_eq!(limiter.granted - limiter.refunded - granted_before, 1, "the token of drop_tokens");
}

#[test]
fn a_request_that_costs_nothing_says_nothing() {
    let fixture = Fixture::starting_at(10);
    (0..1_000).for_each(|_| fixture.adaptive.attempt(0, true).succeeded());
    assert_eq!(fixture.rate(), 10.0);
    fixture.adaptive.attempt(0, true).throttled(None);
    assert!(fixture.rate() < 10.0, "a refusal counts, whatever the cost of the request");
}

#[test]
fn costs_scale_the_rate_and_nothing_else() {
    let rate = |cost: u64| {
        let settings = Adaptive::between(Quota::per_second(cost), Quota::per_second(100_000 * cost));
        let fixture = Fixture::new(settings.start(Quota::per_second(10 * cost)));
        for turn in 0..300 {
            let attempt = fixture.adaptive.attempt(cost, true);
            if turn % 70 == 69 { attempt.throttled(None) } else { attempt.succeeded() }
        }
        fixture.rate() / cost as f64
    };
    let (one, many) = (rate(1), rate(1_500));
    assert!((one / many - 1.0).abs() < 1e-6, "{one} and {many}");
}

#[test]
fn a_grant_dropped_by_a_panic_reports_and_does_not_abort() {
    let fixture = Fixture::starting_at(10);
    let grants = fixture.waited(5);
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        let _grants = grants;
        panic!("the work fails");
    }));
    assert!(thrown.is_err());
    assert_eq!(fixture.adaptive.snapshot().accepted, 5);
}

#[test]
fn a_grant_settles_and_grows() {
    let fixture = Fixture::new(Adaptive::between("1/s", "1000/s, burst 100").start("100/s"));
    fixture.pass(10 * SECOND);
    let mut claim = tokio_test::task::spawn(fixture.adaptive.consume(10));
    let mut grant = granted(&mut claim);
    let before = fixture.adaptive.limiter().available();
    grant.grow(20);
    assert_eq!((grant.cost(), fixture.adaptive.limiter().available()), (30, before - 20));
    grant.settle(5);
    assert_eq!(grant.cost(), 5);
}

/// A caller that gets nothing for a refused request may settle it for nothing. It still says how large requests are.
#[test]
fn a_refused_request_that_is_settled_for_nothing_counts_with_what_it_asked_for() {
    let after = |settles: bool| {
        let settings = Adaptive::between("1500/s", "1500000/s").start("15000/s").increase_per_second(1e9);
        let fixture = Fixture::new(settings);
        let mut claim = tokio_test::task::spawn(fixture.adaptive.consume(1_500));
        fixture.pass(SECOND);
        let _ = claim.poll();
        fixture.pass(SECOND);
        let mut grant = granted(&mut claim);
        if settles {
            grant.settle(0);
        }
        grant.throttled(None);
        let mut rates = vec![fixture.rate()];
        for _ in 0..6 {
            fixture.adaptive.attempt(1_500, true).succeeded();
            rates.push(fixture.rate());
        }
        rates
    };
    let rates = after(false);
    assert_eq!(rates, after(true));
    assert!(
        rates[..5].iter().all(|rate| *rate == rates[0]) && rates[5] > rates[0],
        "it holds for four requests: {rates:?}"
    );
}

#[test]
fn a_storm_of_reports_from_many_threads_counts_each_once() {
    const THREADS: u64 = 8;
    const REPORTS: u64 = if cfg!(miri) { 20 } else { 2_000 };
    let adaptive = Adaptive::between("1/s", "100000/s").start("1000/s").build().unwrap();
    let waiting: Vec<_> = (0..50).map(|_| tokio_test::task::spawn(adaptive.consume(1))).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let adaptive = &adaptive;
            scope.spawn(move || {
                for report in 0..REPORTS {
                    let attempt = adaptive.attempt(1 + report % 3, true);
                    match (thread + report) % 4 {
                        0 => attempt.throttled(Duration::from_nanos(report)),
                        1 => attempt.ignored(),
                        _ => attempt.succeeded(),
                    }
                }
            });
        }
    });
    drop(waiting);
    let seen = adaptive.snapshot();
    let quarter = THREADS * REPORTS / 4;
    assert_eq!((seen.accepted, seen.refused), (2 * quarter, quarter));
    assert!(seen.falls + seen.probes_refused <= quarter);
    assert_eq!(adaptive.limiter().snapshot().quotas[0].quota, seen.rate);
}

#[test]
fn outcomes_are_reported_after_the_limiter_is_closed_and_all_handles_are_dropped() {
    let fixture = Fixture::starting_at(10);
    let mut grants = fixture.waited(3);
    let claim = fixture.adaptive.consume(1);
    fixture.adaptive.limiter().close();
    grants.pop().unwrap().throttled(Duration::MAX);
    let seen = fixture.adaptive.snapshot();
    assert_eq!((seen.refused, fixture.adaptive.limiter().snapshot().quotas[0].quota), (1, seen.rate));
    drop(fixture);
    let refusal = tokio_test::task::spawn(claim).poll().map(|answer| answer.unwrap_err());
    assert_eq!(refusal, std::task::Poll::Ready(tollgate::ConsumeError::Closed));
    grants.pop().unwrap().throttled(Duration::from_secs(1));
    grants.pop().unwrap().succeeded();
}
