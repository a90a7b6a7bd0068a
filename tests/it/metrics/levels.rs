//! The values that a scrape reads from the limiter.

use crate::fixture::*;
use tollgate::metrics::Meter;

use super::scrape;
use crate::observed_events::{MILLI, built, by_hand};

#[test]
fn tokens_and_debt_are_the_two_sides_of_the_level() {
    let (limiter, clock) = by_hand(10);
    let meter = Meter::new("api", &limiter).unwrap();
    let tokens = || {
        let values = scrape(|| meter.publish());
        (values.gauge("tokens{key=api}"), values.gauge("debt_tokens{key=api}"))
    };
    assert_eq!(tokens(), (10.0, 0.0));
    let mut grant = limiter.try_acquire(4).unwrap();
    assert_eq!(tokens(), (6.0, 0.0));
    grant.settle(13);
    assert_eq!(tokens(), (0.0, 3.0));
    clock.advance(2 * MILLI);
    assert_eq!(tokens(), (0.0, 1.0));
    clock.advance(5 * MILLI);
    assert_eq!(tokens(), (4.0, 0.0));
}

#[test]
fn of_several_quotas_the_emptiest_counts_and_each_is_shown() {
    let (limiter, _clock) = built(
        Limiter::builder()
            .quota(Quota::per_second(10).burst(50))
            .quota_named("minute", Quota::per_minute(30).burst(30)),
    );
    let meter = Meter::new("api", &limiter).unwrap();
    limiter.try_acquire(7).unwrap().settle(32);
    let values = scrape(|| meter.publish());
    assert_eq!(values.gauge("tokens{key=api}"), 0.0);
    assert_eq!(values.gauge("debt_tokens{key=api}"), 2.0);
    assert_eq!(values.gauge("quota_tokens{key=api,quota=0}"), 18.0);
    assert_eq!(values.gauge("quota_tokens{key=api,quota=minute}"), -2.0);
}

#[test]
fn a_limiter_with_only_a_cap_has_no_tokens_to_show() {
    let (limiter, _clock) = built(Limiter::builder().max_in_flight(12));
    let values = scrape(|| Meter::new("api", &limiter).unwrap().publish());
    assert_eq!(values.gauge("in_flight_tokens{key=api}"), 0.0);
    assert!(values.get("tokens{key=api}").is_none() && values.get("debt_tokens{key=api}").is_none());
}

#[test]
fn the_queue_and_the_tokens_in_flight() {
    let (limiter, clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).burst(10)).max_in_flight(12));
    let meter = Meter::new("api", &limiter).unwrap();
    let in_flight = limiter.try_acquire(10).unwrap();
    let (first, second) = (pending(limiter.consume(2)), pending(limiter.consume(5)));
    let values = scrape(|| meter.publish());
    assert_eq!((values.gauge("waiting{key=api}"), values.gauge("waiting_tokens{key=api}")), (2.0, 7.0));
    assert_eq!(values.gauge("in_flight_tokens{key=api}"), 10.0);
    assert_eq!(values.counter("acquire_total{key=api,result=allow}"), 10, "waiters are not counted");
    tick_after(&clock, &limiter, 2 * MILLI);
    drop((in_flight, second));
    let values = scrape(|| meter.publish());
    assert_eq!((values.gauge("waiting{key=api}"), values.gauge("waiting_tokens{key=api}")), (0.0, 0.0));
    assert_eq!(values.gauge("in_flight_tokens{key=api}"), 2.0);
    assert_eq!(values.counter("acquire_total{key=api,result=allow}"), 12);
    drop(first);
}

#[test]
fn pauses_and_lateness_are_in_seconds() {
    let (limiter, clock) = by_hand(1);
    let meter = Meter::new("api", &limiter).unwrap();
    let values = scrape(|| meter.publish());
    assert_eq!((values.gauge("paused_seconds{key=api}"), values.gauge("lateness_seconds{key=api}")), (0.0, 0.0));
    assert!(values.get("in_flight_tokens{key=api}").is_none(), "the limiter has no cap");
    assert!(values.get("quota_tokens{key=api,quota=0}").is_none(), "the limiter has one quota");
    let _waiting = pending(limiter.consume(2));
    clock.advance(5 * MILLI);
    limiter.pause_for(1_500 * MILLI);
    let values = scrape(|| meter.publish());
    assert_eq!((values.gauge("paused_seconds{key=api}"), values.gauge("lateness_seconds{key=api}")), (1.5, 0.004));
}
