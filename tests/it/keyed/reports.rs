//! What a response may say about a key is what its own quotas would grant and when, however the key is stored.

use crate::fixture::*;

/// `alone` has no parent and has been called like `keyed`.
fn check([keyed, alone]: [&KeyedLimiter<u8>; 2], when: &str) {
    let (reported, quotas) = (keyed.reported_quotas(&1), keyed.quota_snapshots(&1));
    if let [only] = &reported[..] {
        let available = alone.available(&1);
        // Not even the key knows how long its claims will wait for the parent.
        let is_known = keyed.parent().is_none() || keyed.snapshot().waiting_tasks == 0;
        let more_in = alone.estimate(&1, available + 1).filter(|_| is_known);
        assert_eq!((only.available, only.more_in), (available, more_in), "{when}");
        let own = |quota: &tollgate::QuotaSnapshot| (quota.name.clone(), quota.quota, quota.level);
        assert_eq!(own(only), own(&quotas[0]), "{when}");
    } else {
        assert_eq!(reported, quotas, "{when}");
    }
}

/// Checks a key in each state that it can have.
fn check_states(limiters: [KeyedBuilder<u8>; 2], clock: &ManualClock, what: &str) {
    let limiters = limiters.map(|builder| builder.clock(clock.clone()).build().unwrap());
    let both = limiters.each_ref();
    check(both, &format!("{what}: new"));
    let mut grants = both.map(|keyed| keyed.try_acquire(&1, 3).unwrap());
    check(both, &format!("{what}: owing"));
    clock.advance(Duration::from_millis(150));
    check(both, &format!("{what}: later"));
    let claims = both.map(|keyed| pending(keyed.consume(&1, 3)));
    check(both, &format!("{what}: waiting"));
    drop(claims);
    grants.iter_mut().for_each(|grant| grant.settle(&1, 20));
    check(both, &format!("{what}: in debt"));
    drop(grants);
    both.iter().for_each(|keyed| keyed.pause_for(&1, Duration::from_secs(9)));
    check(both, &format!("{what}: paused"));
    both.iter().for_each(|keyed| keyed.set_quota_for(&1, Quota::per_second(7)).unwrap());
    check(both, &format!("{what}: with a quota of its own"));
    both.iter().for_each(|keyed| keyed.close());
    check(both, &format!("{what}: closed"));
}

#[test]
fn reported_quotas_are_what_the_own_quotas_grant_and_when() {
    let clock = ManualClock::new();
    let one = || KeyedLimiter::builder().quota_named("second", Quota::per_second(10).burst(4));
    let two = || one().quota(Quota::per_day(100));
    let capped = || one().max_in_flight(4);
    check_states([one(), one()], &clock, "one quota");
    check_states([two(), two()], &clock, "two quotas");
    check_states([capped(), capped()], &clock, "a cap");
    let parent = Limiter::builder().quota(Quota::per_second(6).burst(5)).clock(clock.clone()).build().unwrap();
    check_states([one().parent(&parent), one()], &clock, "a parent");
    parent.replenish(100);
    check_states([capped().parent(&parent), capped()], &clock, "a cap and a parent");
}

/// A quota that never limits would show in the header fields of each response.
#[test]
fn a_key_without_a_quota_reports_none() {
    let parent = Limiter::new(Quota::per_second(6)).unwrap();
    let builders = [KeyedLimiter::builder().max_in_flight(4), KeyedLimiter::builder().parent(&parent)];
    for keyed in builders.map(|builder| builder.build().unwrap()) {
        let _grant = keyed.try_acquire(&1_u8, 3).unwrap();
        assert_eq!([&1, &2].map(|key| keyed.reported_quotas(key)), [vec![], vec![]]);
        keyed.set_quota_for(&1, Quota::per_second(7)).unwrap();
        assert_eq!([&1, &2].map(|key| keyed.reported_quotas(key).len()), [1, 0]);
        keyed.set_quota(Quota::unlimited()).unwrap();
        assert_eq!(keyed.reported_quotas(&2).len(), 1);
    }
}

/// Other keys, and pauses of the parent, do not show in what is reported of a key.
#[test]
fn nothing_of_the_parent_is_reported() {
    let clock = ManualClock::new();
    let parent = Limiter::builder().quota(Quota::per_minute(12)).clock(clock.clone()).build().unwrap();
    let builder = KeyedLimiter::builder().quota(Quota::per_minute(10)).clock(clock.clone());
    let keyed = builder.parent(&parent).build().unwrap();
    keyed.try_acquire(&1, 4).unwrap().forget();
    let before = keyed.reported_quotas(&1);
    keyed.try_acquire(&2, 8).unwrap().forget();
    assert_eq!((keyed.available(&1), keyed.reported_quotas(&1)), (0, before.clone()));
    parent.pause_for(Duration::from_secs(60));
    assert_eq!(keyed.reported_quotas(&1), before);
}
