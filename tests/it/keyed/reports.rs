//! What a response may say about a key is what `available` and `estimate` say, however the key is stored.

use crate::fixture::pending;
use std::time::Duration;
use tollgate::{KeyedBuilder, KeyedLimiter, Limiter, ManualClock, Quota};

fn check(keyed: &KeyedLimiter<u8>, when: &str) {
    let (reported, quotas) = (keyed.reported_quotas(&1), keyed.quota_snapshots(&1));
    if let [only] = &reported[..] {
        let available = keyed.available(&1);
        assert_eq!((only.available, only.more_in), (available, keyed.estimate(&1, available + 1)), "{when}");
        let own = |quota: &tollgate::QuotaSnapshot| (quota.name.clone(), quota.quota, quota.level);
        assert_eq!(own(only), own(&quotas[0]), "{when}");
    } else {
        assert_eq!(reported, quotas, "{when}");
    }
}

/// Checks a key in each state that it can have.
fn check_states(builder: KeyedBuilder<u8>, clock: &ManualClock, what: &str) {
    let keyed = builder.clock(clock.clone()).build().unwrap();
    check(&keyed, &format!("{what}: new"));
    let mut grant = keyed.try_acquire(&1, 3).unwrap();
    check(&keyed, &format!("{what}: owing"));
    clock.advance(Duration::from_millis(150));
    check(&keyed, &format!("{what}: later"));
    let claim = pending(keyed.consume(&1, 3));
    check(&keyed, &format!("{what}: waiting"));
    drop(claim);
    grant.settle(20);
    check(&keyed, &format!("{what}: in debt"));
    drop(grant);
    keyed.pause_for(&1, Duration::from_secs(9));
    check(&keyed, &format!("{what}: paused"));
    keyed.set_quota_for(&1, Quota::per_second(7)).unwrap();
    check(&keyed, &format!("{what}: with a quota of its own"));
    keyed.close();
    check(&keyed, &format!("{what}: closed"));
}

#[test]
fn reported_quotas_are_what_can_be_taken_and_when() {
    let clock = ManualClock::new();
    let one = || KeyedLimiter::builder().quota_named("second", Quota::per_second(10).burst(4));
    let parent = Limiter::builder().quota(Quota::per_second(6).burst(5)).clock(clock.clone()).build().unwrap();
    check_states(one(), &clock, "one quota");
    check_states(one().quota(Quota::per_day(100)), &clock, "two quotas");
    check_states(one().max_in_flight(4), &clock, "a cap");
    check_states(one().parent(&parent), &clock, "a parent");
}
