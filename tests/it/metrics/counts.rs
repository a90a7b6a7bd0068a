//! Grants and refusals: counted exactly, by token and by call, whatever method they come from.

use crate::fixture::*;

use tollgate::metrics::Meter;

use super::scrape;
use crate::observed_events::{MILLI, built, by_hand};

#[test]
fn tokens_granted_are_read_off_the_rovers_and_tokens_denied_are_counted() {
    let (limiter, clock) = by_hand(10);
    let meter = Meter::new("api", &limiter).unwrap();
    let _ = limiter.try_acquire(3).unwrap();
    let _ = limiter.try_acquire(7).unwrap();
    assert!(limiter.try_acquire(2).is_err());
    clock.advance(2 * MILLI);
    limiter.try_acquire(2).unwrap().settle(1);
    assert!(limiter.try_acquire(5).is_err());
    assert!(limiter.try_acquire(11).is_err(), "more than the burst: never granted");

    let values = scrape(|| meter.publish());
    assert_eq!(values.counter("acquire_total{key=api,result=allow}"), 12);
    assert_eq!(values.counter("acquire_total{key=api,result=deny}"), 7);
    assert_eq!(values.counter("refunded_total{key=api}"), 1);
    assert_eq!(values.refusals(), "quota 2, too_large 1");
}

/// A series that appears only with its first refusal would have no rate for it.
#[test]
fn every_reason_is_there_from_the_first_scrape_on() {
    let (limiter, _clock) = by_hand(10);
    let values = scrape(|| Meter::new("api", &limiter).unwrap().publish());
    assert_eq!(values.counter("acquire_total{key=api,result=deny}"), 0);
    let reasons = values.0.keys().filter(|series| series.starts_with("rate_limit_refusals_total{key=api,reason="));
    assert_eq!(reasons.count(), 17);
    assert_eq!(values.refusals(), "");
    let of_none = |series: &String| series.contains("class") || series.contains("store");
    assert!(!values.0.keys().any(of_none), "the limiter has neither classes nor a store");
}

#[test]
fn each_refusal_is_counted_once_and_under_its_own_reason() {
    let builder = Limiter::builder().quota(Quota::new(1, MILLI).burst(10));
    let (limiter, clock) = built(builder.max_in_flight(12).max_waiting(1));
    let meter = Meter::new("api", &limiter).unwrap();
    let refusals = |expected: &str| {
        assert_eq!(scrape(|| meter.publish()).refusals(), expected);
    };
    let in_flight = limiter.try_acquire(10).unwrap();
    assert!(limiter.try_acquire(1).is_err());
    clock.advance(10 * MILLI);
    assert!(limiter.try_acquire(3).is_err());
    refusals("in_flight 1, quota 1");

    limiter.pause_for(5 * MILLI);
    assert!(limiter.try_acquire(1).is_err());
    clock.advance(5 * MILLI);
    assert!(limiter.try_acquire(13).is_err());
    assert_ready_err!(spawn(limiter.consume(13)).poll());
    refusals("in_flight 1, pause 1, quota 1, too_large 2");

    let waiting = pending(limiter.consume(3));
    assert!(limiter.try_acquire(1).is_err());
    assert_ready_err!(spawn(limiter.consume(1)).poll());
    assert_ready_err!(spawn(limiter.clone().consume_owned(1)).poll());
    refusals("in_flight 1, pause 1, queue 1, queue_full 2, quota 1, too_large 2");

    drop((waiting, in_flight));
    let _emptied = limiter.try_acquire(10).unwrap();
    assert_ready_err!(spawn(limiter.consume(2).within(MILLI)).poll());
    let mut with_deadline = pending(limiter.consume(1).within(3 * MILLI));
    limiter.pause_for(10 * MILLI);
    clock.advance(3 * MILLI);
    assert_ready_err!(with_deadline.poll());
    let mut closed = pending(limiter.consume(1));
    limiter.close();
    assert_ready_err!(closed.poll());
    assert!(limiter.try_acquire(1).is_err());
    assert!(limiter.blocking_consume(1).is_err());
    refusals("closed 3, in_flight 1, pause 1, queue 1, queue_full 2, quota 1, timed_out 1, too_large 2, too_late 1");
    // 1 and 3; 1; 1, 1, 1; 2 and 1. Costs that no wait would help are left out.
    assert_eq!(scrape(|| meter.publish()).counter("acquire_total{key=api,result=deny}"), 11);
}

#[test]
fn a_claim_refused_for_lack_of_a_runtime_is_counted() {
    let limiter = Limiter::new(Quota::per_hour(1)).unwrap();
    let meter = Meter::new("api", &limiter).unwrap();
    let _ = limiter.try_acquire(1).unwrap();
    assert_ready_err!(spawn(limiter.consume(1)).poll());
    assert_eq!(scrape(|| meter.publish()).refusals(), "no_runtime 1");
}

#[test]
fn the_counts_are_the_limiters_and_begin_with_its_first_meter() {
    let (limiter, _clock) = by_hand(1);
    let _ = limiter.try_acquire(1).unwrap();
    assert!(limiter.try_acquire(1).is_err(), "refusals are not counted yet");
    let meter = Meter::new("api", &limiter).unwrap();
    assert!(limiter.clone().try_acquire(1).is_err());
    let second = Meter::new("other", &limiter.clone()).unwrap_err();
    assert_eq!(second.key, "api");
    let clone = meter.clone();
    drop(meter);
    assert!(limiter.try_acquire(1).is_err());
    let values = scrape(|| clone.publish());
    assert_eq!((values.counter("acquire_total{key=api,result=allow}"), &*values.refusals()), (1, "quota 2"));
    // It continues to count when no meter is left, and a second set of counters cannot be started.
    drop(clone);
    assert!(Meter::new("api", &limiter).is_err());
}

#[test]
fn joint_claims_are_refused_by_the_limiter_that_refused() {
    let ((first, _), (second, _)) = (by_hand(5), by_hand(2));
    let meters = [Meter::new("first", &first).unwrap(), Meter::new("second", &second).unwrap()];
    assert!(try_join([(&first, 2), (&second, 3)]).is_err());
    let _ = try_join([(&first, 2), (&second, 2)]).unwrap();
    assert!(try_join([(&first, 2), (&second, 1)]).is_err());
    second.close();
    assert_ready_err!(spawn(join([(&first, 1), (&second, 1)])).poll());
    let values = scrape(|| meters.iter().for_each(Meter::publish));
    assert_eq!(values.counter("acquire_total{key=first,result=allow}"), 2);
    assert_eq!(values.counter("refusals_total{key=second,reason=too_large}"), 1);
    assert_eq!(values.counter("refusals_total{key=second,reason=quota}"), 1);
    assert_eq!(values.counter("refusals_total{key=second,reason=closed}"), 1);
    let of_first = |(series, value): (&String, &metrics_util::debugging::DebugValue)| {
        series.starts_with("rate_limit_refusals_total{key=first")
            && *value != metrics_util::debugging::DebugValue::Counter(0)
    };
    assert!(!values.0.iter().any(of_first), "{values:#?}");
}

/// Twice as many threads as there are words to count in.
#[test]
fn every_call_of_every_thread_is_counted() {
    const THREADS: u64 = 16;
    const CALLS: u64 = 2_000;
    let (limiter, _clock) = by_hand(5_000);
    let meter = Meter::new("api", &limiter).unwrap();
    let together = Barrier::new(THREADS as usize);
    let granted: u64 = thread::scope(|scope| {
        let work = || {
            together.wait();
            (0..CALLS).filter(|_| limiter.try_acquire(1).is_ok()).count() as u64
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let values = scrape(|| meter.publish());
    assert_eq!(granted, 5_000);
    assert_eq!(values.counter("acquire_total{key=api,result=allow}"), granted);
    assert_eq!(values.counter("acquire_total{key=api,result=deny}"), THREADS * CALLS - granted);
    assert_eq!(values.refusals(), format!("quota {}", THREADS * CALLS - granted));
}

/// A scrape in the middle sees no counter go down, and none that is ahead of the calls.
#[test]
fn scrapes_in_the_middle_see_counts_that_only_grow() {
    let (limiter, clock) = by_hand(1_000);
    let meter = Meter::new("api", &limiter).unwrap();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for _ in 0..200 {
                (0..50).for_each(|_| _ = limiter.try_acquire(1));
                clock.advance(10 * MILLI);
            }
        });
        let (mut allowed, mut denied) = (0, 0);
        while !asking.is_finished() {
            let values = scrape(|| meter.publish());
            let now = |result| values.counter(&format!("acquire_total{{key=api,result={result}}}"));
            assert!(now("allow") >= allowed && now("deny") >= denied);
            (allowed, denied) = (now("allow"), now("deny"));
            assert!(allowed + denied <= 10_000);
        }
    });
}

#[test]
fn refusals_by_a_quota_are_counted_under_its_name_or_its_number() {
    let day = Duration::from_secs(86_400);
    let mut builder = Limiter::builder().quota_named("second", Quota::manual(3)).quota(Quota::new(5, day));
    for _ in 0..8 {
        builder = builder.quota(Quota::new(100, day));
    }
    let limiter = builder.quota_named("tenth", Quota::new(6, day)).build().unwrap();
    let meter = Meter::new("api", &limiter).unwrap();
    let _ = limiter.try_acquire(3).unwrap();
    assert!(limiter.try_acquire(1).is_err(), "refused by the first quota");
    limiter.replenish(3);
    assert!(limiter.try_acquire(3).is_err(), "refused by the second quota");
    assert!(limiter.try_acquire(3).is_err(), "refused by the second quota");
    limiter.set_quota(1, Quota::new(90, day)).unwrap();
    limiter.pause_for(day);
    assert!(limiter.try_acquire(1).is_err(), "refused by no quota");
    let values = scrape(|| meter.publish());
    let refusals = |quota: &str| values.counter(&format!("quota_refusals_total{{key=api,quota={quota}}}"));
    assert_eq!(["second", "1", "2", "7", "(others)"].map(refusals), [1, 2, 0, 0, 0]);
    assert_eq!(values.counter("refusals_total{key=api,reason=quota}"), 3);
}
