//! Keyed limiters: the sums over all keys, and no more single keys than were requested.

use crate::fixture::*;
use metrics::with_local_recorder;
use tollgate::metrics::Meter;

use super::{TestRecorder, scrape};
use crate::observed_events::{MILLI, by_hand};

/// A token each millisecond for each key, 3 at once.
fn keyed(change: impl FnOnce(KeyedBuilder<u64>) -> KeyedBuilder<u64>) -> (KeyedLimiter<u64>, ManualClock) {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::new(1, MILLI).burst(3)).clock(clock.clone());
    (change(builder).build().unwrap(), clock)
}

/// Whether a key is a packed level or a live entry, and whether either of them, the map or the queue refused.
#[test]
fn each_refusal_of_any_key_is_counted_once() {
    let (users, clock) = keyed(|builder| builder.max_keys(3).max_waiting(1));
    let meter = Meter::new("api", &users).unwrap();
    let _ = (users.try_acquire(&1, 3).unwrap(), users.try_acquire(&2, 2).unwrap(), users.try_acquire(&3, 1).unwrap());
    assert!(users.try_acquire(&1, 1).is_err());
    assert!(users.try_acquire(&1, 4).is_err());
    assert!(users.try_acquire(&4, 1).is_err());
    assert_ready_err!(spawn(users.consume(&4, 1)).poll());
    assert_ready_err!(spawn(users.consume(&1, 2).within(MILLI)).poll());
    assert!(users.blocking_consume(&1, 1 << 60).is_err());
    let expected = "quota 1, too_large 2, too_late 1, too_many_keys 2";
    assert_eq!(scrape(|| meter.publish()).refusals(), expected);

    let mut waiting = pending(users.consume(&1, 2));
    assert!(users.try_acquire(&1, 1).is_err());
    assert_ready_err!(spawn(users.consume(&1, 1)).poll());
    assert_ready_err!(spawn(users.consume(&1, 1).within(MILLI)).poll());
    assert!(users.blocking_consume(&1, 1).is_err());
    users.close();
    assert_ready_err!(waiting.poll());
    assert!(users.try_acquire(&1, 1).is_err());
    assert!(users.try_acquire(&2, 1).is_err());
    clock.advance(MILLI);
    let values = scrape(|| meter.publish());
    let expected = "closed 3, queue 1, queue_full 3, quota 1, too_large 2, too_late 1, too_many_keys 2";
    assert_eq!(values.refusals(), expected);
    // 1; 1 and 1; 2; 1; 1, 1 and 1.
    assert_eq!(values.counter("acquire_total{key=api,result=deny}"), 9);
    assert!(!values.0.keys().any(|series| series.contains("name=")), "no key is named unless that is asked for");
}

#[test]
fn waits_of_all_keys_are_in_one_histogram() {
    let (recorder, (users, clock)) = (TestRecorder::new(), keyed(|builder| builder));
    let meter = Meter::new("api", &users).unwrap();
    with_local_recorder(&recorder.inner, || {
        let _ = assert_ready_ok!(spawn(users.consume(&1, 3)).poll());
        let (mut first, mut second) = (pending(users.consume(&1, 2)), pending(users.clone().consume_owned(2, 4)));
        let left = pending(users.consume(&1, 1));
        let mut late = pending(users.consume(&2, 1).within(4 * MILLI));
        let values = scrape(|| meter.publish());
        assert_eq!((values.gauge("waiting{key=api}"), values.gauge("waiting_tokens{key=api}")), (4.0, 8.0));
        assert_eq!((values.gauge("keys{key=api}"), values.gauge("keys_waiting{key=api}")), (2.0, 2.0));
        tick_after(&clock, &users, 2 * MILLI);
        let _ = (assert_ready_ok!(first.poll()), assert_ready_ok!(second.poll()), assert_ready_ok!(late.poll()));
        drop(left);
    });
    let values = recorder.read();
    assert_eq!((values.waits("allow"), values.waits("left")), (vec![2_000_000; 3], vec![2_000_000]));
    assert_eq!(values.0.len(), 2, "two ways to end: {values:#?}");
    assert_eq!(scrape(|| meter.publish()).refusals(), "");
}

/// Whether a packed level or a live entry refuses, and whether at once, as too late, or for good.
#[test]
fn refusals_are_counted_by_the_name_of_the_quota() {
    let (users, _clock) = keyed(|builder| builder.quota_named("day", Quota::per_day(2)));
    let meter = Meter::new("api", &users).unwrap();
    let of =
        |quota: &str| scrape(|| meter.publish()).counter(&format!("quota_refusals_total{{key=api,quota={quota}}}"));
    assert!(users.try_acquire(&1, 3).is_err(), "more than a day has");
    assert_eq!(of("day"), 1);
    let _ = users.try_acquire(&1, 2).unwrap();
    assert!(users.try_acquire(&1, 1).is_err());
    assert_ready_err!(spawn(users.consume(&1, 1).within(MILLI)).poll());
    assert_eq!(of("day"), 3);
    let _waiting = pending(users.consume(&1, 1));
    assert_ready_err!(spawn(users.consume(&1, 1).within(MILLI)).poll());
    assert_eq!(of("day"), 4, "the queue of the key refused");
}

#[test]
fn a_key_with_a_bad_quota_is_reported() {
    let users: KeyedLimiter<u64> = KeyedLimiter::builder().quota_by(|_: &u64| Quota::manual(1)).build().unwrap();
    let meter = Meter::new("api", &users).unwrap();
    assert!(users.try_acquire(&1, 3).is_err());
    assert_ready_err!(spawn(users.consume(&1, 1)).poll());
    assert_eq!(scrape(|| meter.publish()).counter("refusals_total{key=api,reason=bad_quota}"), 2);
}

/// An index may stand for a different quota of each key.
#[test]
fn quotas_of_keys_are_told_apart_by_name_and_at_most_eight_of_them() {
    let quota_by = |user: &u64| match user {
        0 => Quotas::from(Quota::per_day(1)),
        user => Quotas::default().quota_named(format!("metrics/keyed.rs: {user}"), Quota::per_day(1)),
    };
    let clock = ManualClock::new();
    let users: KeyedLimiter<u64> = KeyedLimiter::builder().quota_by(quota_by).clock(clock).build().unwrap();
    let meter = Meter::new("api", &users).unwrap();
    let refuse = |user: u64| assert!(users.try_acquire(&user, 2).is_err());
    refuse(0);
    assert!(
        !scrape(|| meter.publish()).0.keys().any(|series| series.contains("quota=")),
        "there is one quota, without a name"
    );
    (1..12).for_each(refuse);
    let values = scrape(|| meter.publish());
    let counted = |quota: &str| values.counter(&format!("quota_refusals_total{{key=api,quota={quota}}}"));
    assert_eq!(counted("0"), 1);
    assert_eq!([1, 7].map(|user| counted(&format!("metrics/keyed.rs: {user}"))), [1, 1]);
    assert_eq!(counted("(others)"), 4);
}

/// The tokens granted and refunded, as scraped.
fn turnover(meter: &Meter<KeyedLimiter<u64>>) -> (u64, u64) {
    let values = scrape(|| meter.publish());
    (values.counter("acquire_total{key=api,result=allow}"), values.counter("refunded_total{key=api}"))
}

/// At once and after a wait, for packed levels and live entries, and settlements. The counts of a live entry are kept
/// when it is removed.
#[test]
fn the_grants_of_all_keys_are_scraped() {
    let (users, clock) = keyed(|builder| builder);
    let meter = Meter::new("api", &users).unwrap();
    assert_eq!(turnover(&meter), (0, 0));
    // A new key, then a known one; refused, then at no cost.
    let _ = (users.try_acquire(&1, 1).unwrap(), users.try_acquire(&1, 1).unwrap());
    let _ = (users.try_acquire(&1, 2).unwrap_err(), users.try_acquire(&1, 0).unwrap());
    let _ =
        (assert_ready_ok!(spawn(users.consume(&2, 1)).poll()), assert_ready_ok!(spawn(users.consume(&2, 1)).poll()));
    assert_eq!(turnover(&meter), (4, 0));
    let mut grant = users.try_acquire(&3, 3).unwrap();
    grant.settle(&3, 1);
    assert_eq!(turnover(&meter), (7, 2));
    grant.settle(&3, 5);
    assert_eq!(turnover(&meter), (11, 2));
    // In the queue: one claim is served, one is dropped after its grant, and one before.
    let (mut served, unseen) = (pending(users.consume(&1, 3)), pending(users.consume(&1, 1)));
    let left = pending(users.consume(&1, 1));
    assert_eq!(turnover(&meter), (11, 2));
    tick_after(&clock, &users, 3 * MILLI);
    let mut served = assert_ready_ok!(served.poll());
    assert!(unseen.is_woken());
    drop((left, unseen));
    served.settle(&1, 2);
    assert_eq!(turnover(&meter), (15, 4));
    // All keys are removed, and the sum is kept.
    tick_after(&clock, &users, 100 * MILLI);
    assert_eq!((users.snapshot().keys, turnover(&meter)), (0, (15, 4)));
    let _ = users.try_acquire(&1, 3).unwrap();
    assert_eq!(turnover(&meter), (18, 4));
}

/// Grants that a packed level cannot count: in flight, and under a parent.
#[test]
fn grants_in_flight_and_under_a_parent_are_scraped_too() {
    let (users, clock) = keyed(|builder| builder.max_in_flight(3).max_keys(2));
    let meter = Meter::new("api", &users).unwrap();
    let own = users.try_acquire(&1, 2).unwrap();
    let mut other = users.try_acquire(&2, 2).unwrap();
    assert_eq!(scrape(|| meter.publish()).gauge("in_flight_tokens{key=api}"), 4.0);
    assert!(users.try_acquire(&3, 1).is_err());
    other.settle(&2, 1);
    assert_eq!(turnover(&meter), (4, 1));
    drop((own, other));
    tick_after(&clock, &users, 100 * MILLI);
    assert_eq!((users.snapshot().keys, turnover(&meter)), (0, (4, 1)));

    let (all, clock) = by_hand(2);
    let builder = KeyedLimiter::builder().quota(Quota::new(1, MILLI).burst(3)).clock(clock.clone());
    let users: KeyedLimiter<u64> = builder.parent(&all).build().unwrap();
    let meter = Meter::new("api", &users).unwrap();
    let _ = users.try_acquire(&1, 2).unwrap();
    assert!(users.try_acquire(&1, 1).is_err(), "refused by the parent");
    assert_ready_err!(spawn(users.consume(&1, 9).within(MILLI)).poll());
    let mut waiting = pending(users.consume(&1, 1));
    assert_eq!(turnover(&meter), (2, 0));
    tick_after(&clock, &users, MILLI);
    let _ = assert_ready_ok!(waiting.poll());
    assert_eq!((turnover(&meter), all.snapshot().granted), ((3, 0), 3));
}

#[test]
fn the_most_refused_keys_are_named_and_absent_later() {
    let (users, _clock) = keyed(|builder| builder);
    let meter = Meter::new("api", &users).unwrap().naming(100, |user| format!("user {user}"));
    let _ = users.try_acquire(&7, 2).unwrap();
    (0..5).for_each(|_| assert!(users.try_acquire(&7, 2).is_err()));
    let values = scrape(|| meter.publish());
    assert_eq!(values.gauge("key_refusals{key=api,name=user 7}"), 5.0);
    assert_eq!(values.gauge("key_tokens{key=api,name=user 7}"), 1.0);
    assert_eq!(values.gauge("key_refusals{key=api,name=(others)}"), 0.0);
    for round in 0..50 {
        (100..120).for_each(|user| assert!(users.try_acquire(&(user + round % 2), 4).is_err()));
    }
    let values = scrape(|| meter.publish());
    assert_eq!(values.gauge("key_refusals{key=api,name=user 7}"), 0.0);
    assert!(values.get("key_tokens{key=api,name=user 7}").is_none());
}

/// A recorder keeps every series that it ever saw.
#[test]
fn churning_through_keys_makes_no_more_series_than_were_allowed() {
    let (users, _clock) = keyed(|builder| builder);
    let meter = Meter::new("api", &users).unwrap().naming(20, |user| user.to_string());
    let recorder = TestRecorder::new();
    let mut most = 0;
    with_local_recorder(&recorder.inner, || {
        for round in 0..200 {
            for user in round * 16..(round + 1) * 16 {
                (0..=round).for_each(|_| assert!(users.try_acquire(&user, 4).is_err()));
            }
            meter.clone().publish();
            let values = recorder.read();
            most = values.0.keys().filter(|series| series.starts_with("rate_limit_key_refusals")).count();
            let others = values.gauge("key_refusals{key=api,name=(others)}");
            assert_eq!(others > 0.0, round > 0, "in round {round}");
        }
    });
    assert_eq!(most, 21, "twenty and the others");
}
