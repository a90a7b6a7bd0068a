//! The rules, one by one.

use super::{Fixture, granted};
use crate::fixture::*;
use tollgate::adaptive::ChangeReason;

#[test]
fn an_idle_client_does_not_climb() {
    let fixture = Fixture::starting_at(10);
    for _ in 0..1_000 {
        fixture.pass(SECOND);
        let mut claim = tokio_test::task::spawn(fixture.adaptive.consume(1));
        granted(&mut claim).succeeded();
    }
    assert_eq!(fixture.rate(), 10.0);
    assert_eq!((fixture.adaptive.snapshot().accepted, fixture.adaptive.snapshot().last_change), (1_000, None));
}

#[test]
fn a_client_that_waits_climbs_whether_it_says_so_or_drops_the_grant() {
    let rate_after = |report: fn(tollgate::adaptive::AdaptiveGrant)| {
        let fixture = Fixture::starting_at(10);
        for _ in 0..50 {
            fixture.waited(1).into_iter().for_each(report);
        }
        fixture.rate()
    };
    let said = rate_after(|grant| grant.succeeded());
    assert!(said > 11.0, "{said}");
    assert_eq!(said, rate_after(drop));
    assert_eq!(rate_after(|grant| grant.ignored()), 10.0);
}

#[test]
fn a_waiter_that_gives_up_shows_that_the_limiter_is_the_bottleneck() {
    let fixture = Fixture::starting_at(10);
    for _ in 0..50 {
        super::drop_tokens(fixture.adaptive.limiter());
        drop(fixture.enter());
        fixture.pass(SECOND);
        granted(&mut tokio_test::task::spawn(fixture.adaptive.consume(1))).succeeded();
    }
    assert!(fixture.rate() > 11.0, "{}", fixture.rate());
}

#[test]
fn a_claim_that_is_refused_because_it_would_wait_shows_it_too() {
    let rate_after = |allowed: Duration, full_queue: bool| {
        let fixture = match full_queue {
            false => Fixture::starting_at(10),
            true => {
                let (clock, quota) = (tollgate::ManualClock::new(), Quota::per_second(10).burst(1));
                let limiter = Limiter::builder().quota(quota).max_waiting(0).clock(clock.clone()).build().unwrap();
                let adaptive = Adaptive::between("1/s", "1000/s").start("10/s").drive(&limiter).unwrap();
                Fixture { adaptive, clock }
            }
        };
        for _ in 0..50 {
            super::drop_tokens(fixture.adaptive.limiter());
            let mut refused = tokio_test::task::spawn(fixture.adaptive.consume(1).within(allowed));
            match refused.poll() {
                Poll::Ready(Err(ConsumeError::TooLate { .. })) => assert!(!full_queue),
                Poll::Ready(Err(ConsumeError::QueueFull { .. })) => assert!(full_queue),
                other => panic!("{other:?}"),
            }
            fixture.pass(SECOND);
            granted(&mut tokio_test::task::spawn(fixture.adaptive.consume(1))).succeeded();
        }
        fixture.rate()
    };
    assert!(rate_after(Duration::ZERO, false) > 11.0);
    assert!(rate_after(Duration::from_micros(500), false) > 11.0);
    assert!(rate_after(SECOND, true) > 11.0);
}

#[test]
fn the_rate_exceeds_no_accepted_rate_by_more_than_half() {
    let fixture = Fixture::starting_at(10);
    // Requests are sent at 10 per second, and answered all at once.
    fixture.waited(10_000).into_iter().for_each(|grant| grant.succeeded());
    assert_eq!(fixture.rate(), 15.0);
}

#[test]
fn the_growth_ends_at_the_fastest_rate_only() {
    let grown = |settings: tollgate::adaptive::AdaptiveBuilder, cost: u64| {
        let adaptive = settings.build().unwrap();
        let grow = || (0..10_000).for_each(|_| adaptive.attempt(cost, true).succeeded());
        grow();
        let first = adaptive.tokens_per_second() / tokens_per_second(adaptive.snapshot().fastest);
        adaptive.attempt(cost, true).throttled(None);
        grow();
        (first, adaptive.tokens_per_second() / tokens_per_second(adaptive.snapshot().fastest))
    };
    // Fast requests, slow ones, and costs above the slowest rate.
    for (slowest, fastest, cost) in [
        ("1/s", "10/s", 1),
        ("1/s", "100/s", 1),
        ("1/min", "60/min", 1),
        ("1/h", "1000/s", 1),
        ("1/d", "1/s", 1),
        ("1000/min", "1000000/min", 700),
    ] {
        let settings = Adaptive::between(slowest, fastest);
        assert_eq!(grown(settings, cost), (1.0, 1.0), "{slowest} to {fastest} with requests of {cost}");
    }
    // Increases far below and far above the rate.
    for increase in [0.1, 5.0, 20.0, 1e300, f64::MAX] {
        let settings = Adaptive::between("1/s", "10/s").increase_per_second(increase);
        assert_eq!(grown(settings, 1), (1.0, 1.0), "an increase of {increase}");
    }
}

fn tokens_per_second(quota: Quota) -> f64 {
    quota.amount() as f64 / quota.period().as_secs_f64()
}

#[test]
fn equal_bounds_keep_the_rate_whatever_the_server_says() {
    let fixture = Fixture::new(Adaptive::between("60/min", "1/s"));
    let before = fixture.adaptive.snapshot().rate;
    for turn in 0..200 {
        let attempt = fixture.adaptive.attempt(3, true);
        if turn % 7 == 0 { attempt.throttled(None) } else { attempt.succeeded() }
    }
    let seen = fixture.adaptive.snapshot();
    assert_eq!((seen.rate, fixture.rate(), seen.refused), (before, 1.0, 29));
    assert_eq!((seen.changes().map(|(_, times)| times), seen.last_change), ([0; 3], None), "nothing changed");
}

#[test]
fn refusals_at_the_slowest_rate_change_nothing() {
    let fixture = Fixture::new(Adaptive::between("5/s", "20/s").start("6/s"));
    for _ in 0..10 {
        fixture.adaptive.attempt(1, true).throttled(None);
    }
    let seen = fixture.adaptive.snapshot();
    assert_eq!((seen.falls, seen.refused, fixture.rate()), (1, 10, 5.0));
    let change = seen.last_change.unwrap();
    assert!(change.from != change.to, "{change:?}");
}

#[test]
fn a_rate_holds_after_a_refused_probe_only() {
    let fixture = Fixture::starting_at(10);
    assert!(!fixture.adaptive.snapshot().is_holding, "the next request that is accepted raises the rate");
    (0..4).for_each(|_| fixture.adaptive.attempt(1, true).succeeded());
    assert!(fixture.rate() > 10.0);
    fixture.adaptive.attempt(1, true).throttled(None);
    assert!(fixture.adaptive.snapshot().is_holding);
}

#[test]
fn a_clock_that_stands_or_steps_back_and_long_idle_times_teach_nothing() {
    let fixture = Fixture::starting_at(10);
    (0..50).for_each(|_| fixture.adaptive.attempt(1, true).succeeded());
    let learned = fixture.rate();
    assert!(learned > 11.0, "growth is counted in requests, so a clock that stands is no obstacle: {learned}");
    fixture.clock.step_back(Duration::from_secs(3_600));
    fixture.pass(Duration::ZERO);
    fixture.pass(400 * 86_400 * SECOND);
    assert_eq!(fixture.rate(), learned);
    fixture.adaptive.attempt(1, true).throttled(None);
    let fallen = fixture.rate();
    assert!((learned / 2.0..learned).contains(&fallen), "{learned} -> {fallen}");
    fixture.clock.step_back(10 * SECOND);
    fixture.adaptive.attempt(1, false).throttled(3 * SECOND);
    assert_eq!(fixture.adaptive.limiter().snapshot().paused_for, Some(13 * SECOND), "from where the clock was");
}

#[test]
fn refusals_at_the_slowest_rate_are_events_too() {
    // The hold ends with the refusal, although the rate cannot fall.
    let fixture = Fixture::new(Adaptive::between("10/s", "20/s"));
    (0..100).for_each(|_| fixture.adaptive.attempt(1, true).succeeded());
    assert_eq!(fixture.rate(), 20.0);
    let stale = fixture.adaptive.attempt(1, true);
    while fixture.rate() > 10.0 {
        fixture.adaptive.attempt(1, true).throttled(None);
    }
    stale.succeeded();
    assert_eq!(fixture.rate(), 10.0, "a request that was sent before the decrease does not raise the rate");
}

#[test]
fn refusals_of_requests_that_were_sent_together_are_one_event() {
    let fixture = Fixture::starting_at(1_000);
    let mut sent = fixture.waited(200);
    let last = sent.split_off(199);
    sent.into_iter().for_each(|grant| grant.throttled(None));
    let after = fixture.rate();
    assert!((500.0..1_000.0).contains(&after), "{after}");
    last.into_iter().for_each(|grant| grant.throttled(None));
    let seen = fixture.adaptive.snapshot();
    assert_eq!((fixture.rate(), seen.falls + seen.probes_refused, seen.refused), (after, 1, 200));
    // Successes of requests that were sent before the decrease do not count any more.
    let change = seen.last_change.unwrap();
    assert_eq!((change.to, change.reason), (seen.rate, ChangeReason::LimitFell));
}

#[test]
fn a_refusal_of_a_request_that_was_sent_after_the_decrease_is_another_event() {
    let fixture = Fixture::starting_at(100);
    fixture.waited(10).into_iter().for_each(|grant| grant.throttled(None));
    let first = fixture.rate();
    fixture.waited(10).into_iter().for_each(|grant| grant.throttled(None));
    assert!(fixture.rate() < first);
    assert_eq!(fixture.adaptive.snapshot().falls, 2);
}

/// Two clients that run at the same rate and met once would meet again and again.
#[test]
fn requests_that_are_refused_again_and_again_shift_the_next_ones_by_a_random_time() {
    let shifts = |seed: u64| {
        let fixture = Fixture::new(Adaptive::between("2/s", "100/s").start("2/s").seed(seed));
        let paused = || fixture.adaptive.limiter().snapshot().paused_for;
        for _ in 0..4 {
            fixture.waited(1).into_iter().for_each(|grant| grant.succeeded());
        }
        for _ in 0..3 {
            fixture.waited(1).into_iter().for_each(|grant| grant.throttled(None));
            assert_eq!(paused(), None, "a limit that fell can refuse three times");
        }
        let again = |retry_after: Option<Duration>| {
            fixture.waited(1).into_iter().for_each(|grant| grant.throttled(retry_after));
            let shift = paused().unwrap() - retry_after.unwrap_or_default();
            assert!(shift <= SECOND, "more than two intervals: {shift:?}");
            shift
        };
        let shifts = [again(None), again(None), again(Some(5 * SECOND))];
        for _ in 0..4 {
            fixture.waited(1).into_iter().for_each(|grant| grant.succeeded());
        }
        fixture.waited(1).into_iter().for_each(|grant| grant.throttled(None));
        assert_eq!(paused(), None, "accepted meanwhile");
        shifts
    };
    assert_eq!(shifts(1), shifts(1));
    let all: std::collections::HashSet<Duration> = (0..20).flat_map(shifts).collect();
    assert!(all.len() == 60 && all.iter().max() > Some(&(SECOND / 2)), "{all:?}");
}

#[test]
fn successes_of_requests_sent_before_the_decrease_do_not_raise_the_rate() {
    let fixture = Fixture::starting_at(100);
    let mut sent = fixture.waited(500);
    sent.pop().unwrap().throttled(None);
    let after = fixture.rate();
    sent.into_iter().for_each(|grant| grant.succeeded());
    assert_eq!(fixture.rate(), after);
}

#[test]
fn grants_that_a_late_timer_delivers_after_the_decrease_belong_before_it() {
    let fixture = Fixture::starting_at(10_000);
    super::drop_tokens(fixture.adaptive.limiter());
    let mut late: Vec<_> = (0..10).map(|_| fixture.enter()).collect();
    fixture.pass(Duration::from_millis(1)); // granted, but not polled yet
    let seen = fixture.waited(1);
    seen.into_iter().for_each(|grant| grant.throttled(None));
    let after = fixture.rate();
    late.iter_mut().for_each(|claim| granted(claim).throttled(None));
    assert_eq!((fixture.rate(), fixture.adaptive.snapshot().falls), (after, 1));
}

#[test]
fn a_refused_probe_returns_to_just_below_and_holds() {
    let fixture = Fixture::starting_at(10);
    while fixture.rate() < 20.0 {
        fixture.waited(1).into_iter().for_each(|grant| grant.succeeded());
    }
    let probe = fixture.rate();
    fixture.waited(1).into_iter().for_each(|grant| grant.throttled(None));
    let held = fixture.rate();
    assert!(held < probe && held > probe * 0.6, "{probe} -> {held}");
    let seen = fixture.adaptive.snapshot();
    assert!(seen.is_holding);
    assert_eq!((seen.last_change.unwrap().reason, seen.probes_refused), (ChangeReason::ProbeRefused, 1));
    // The rate is held for 140 requests, and for 8.5 s at most.
    assert!(held * 8.5 > 140.0);
    for _ in 0..139 {
        fixture.waited(1).into_iter().for_each(|grant| grant.succeeded());
    }
    assert_eq!(fixture.rate(), held);
    for _ in 0..(held * 2.0) as usize {
        fixture.waited(1).into_iter().for_each(|grant| grant.succeeded());
    }
    assert!(fixture.rate() > held);
}

#[test]
fn retry_after_pauses_for_no_longer_than_allowed_and_never_shortens_a_pause() {
    let fixture = Fixture::new(Adaptive::between("1/s", "100/s").start("10/s").longest_pause(60 * SECOND));
    let paused = || fixture.adaptive.limiter().snapshot().paused_for;
    let throttled = |retry_after: Option<Duration>| fixture.adaptive.attempt(1, true).throttled(retry_after);
    throttled(Some(Duration::ZERO));
    assert_eq!(paused(), None);
    throttled(Some(3 * SECOND));
    throttled(Some(SECOND));
    assert_eq!(paused(), Some(3 * SECOND));
    throttled(Some(Duration::MAX));
    assert_eq!(paused(), Some(60 * SECOND));
    throttled(None);
    assert_eq!(paused(), Some(60 * SECOND));
    let settings = Adaptive::between("1/s", "100/s").longest_pause(Duration::MAX);
    let fixture = Fixture::new(settings);
    fixture.adaptive.attempt(1, true).throttled(Duration::MAX);
    let century = 100 * 365 * 86_400 * SECOND;
    fixture.pass(century);
    assert!(fixture.adaptive.limiter().snapshot().paused_for > Some(century), "until the end of time");
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_are_rescheduled_at_once() {
    let adaptive = Adaptive::between("1/s", "1000/s").start("2/s").build().unwrap();
    adaptive.consume(1).await.unwrap().ignored();
    let began = tokio::time::Instant::now();
    let waiting = tokio::spawn(adaptive.consume(1));
    tokio::task::yield_now().await;
    adaptive.attempt(1, true).throttled(None); // halves the rate
    waiting.await.unwrap().unwrap().ignored();
    let rate = adaptive.tokens_per_second();
    let expected = Duration::from_secs_f64(1.0 / rate);
    assert!(rate < 2.0);
    assert!(began.elapsed().abs_diff(expected) <= Duration::from_millis(1), "{:?} at {rate}/s", began.elapsed());
}
