//! Classes of one limiter that share a learned rate.

use crate::fixture::*;
use tollgate::adaptive::AdaptiveConsume;

/// Ten requests per second, learned, with nothing left of the burst. Two classes share it three to one.
fn shared() -> (Adaptive, [Adaptive<Class>; 2], ManualClock) {
    let quota = Quota::per_second(1).burst(1);
    let (limiter, clock) = built(Limiter::builder().quota(quota).classes());
    let api = Adaptive::between("1/s", "1000/s").start("10/s").drive(&limiter).unwrap();
    let classes = [("heavy", 3), ("light", 1)].map(|(name, weight)| api.class(name, Share::weight(weight)).unwrap());
    drop(limiter.try_acquire(1).unwrap());
    (api, classes, clock)
}

fn enter(class: &Adaptive<Class>) -> Spawn<AdaptiveConsume<Class>> {
    pending(class.consume(1))
}

#[test]
fn classes_share_the_learned_rate_by_weight() {
    let (api, [heavy, light], clock) = shared();
    let claims = [heavy, light].map(|class| (0..100).map(|_| enter(&class)).collect::<Vec<_>>());
    tick_after(&clock, api.limiter(), 4 * SECOND);
    let granted = claims.each_ref().map(|claims| woken(claims));
    assert_eq!(granted, [30, 10]);
}

#[test]
fn a_refusal_in_one_class_slows_all_and_is_one_event() {
    let (api, [heavy, light], clock) = shared();
    let [mut refused, mut late, waiting] = [enter(&heavy), enter(&light), enter(&light)];
    tick_after(&clock, api.limiter(), Duration::from_millis(200));
    let [Poll::Ready(Ok(refused)), Poll::Ready(Ok(late))] = [refused.poll(), late.poll()] else {
        panic!("not granted")
    };
    refused.throttled(None);
    let rate = api.tokens_per_second();
    assert!(rate < 10.0);
    late.throttled(None); // sent before the rate fell
    assert_eq!([heavy.tokens_per_second(), light.tokens_per_second()], [rate; 2]);
    let seen = api.snapshot();
    assert_eq!((seen.refused, seen.probes_refused + seen.falls), (2, 1));
    // The claim that waits is due later: with ten per second it would be granted now.
    tick_after(&clock, api.limiter(), Duration::from_millis(100));
    assert!(!waiting.is_woken());
    tick_after(&clock, api.limiter(), Duration::from_secs(2));
    assert!(waiting.is_woken());
}

#[test]
fn a_class_that_waits_makes_the_rate_climb_and_an_idle_one_does_not() {
    let (api, [heavy, light], clock) = shared();
    for _ in 0..50 {
        clock.advance(SECOND);
        let Poll::Ready(Ok(grant)) = spawn(light.consume(1)).poll() else { panic!("it is idle") };
        grant.succeeded();
    }
    assert_eq!(api.tokens_per_second(), 10.0);
    for _ in 0..50 {
        let mut claims = [(); 2].map(|()| spawn(heavy.consume(1)));
        let first = claims.each_mut().map(|claim| claim.poll());
        assert!(first[1].is_pending(), "the burst is one");
        tick_after(&clock, api.limiter(), SECOND);
        assert!(matches!(claims[1].poll(), Poll::Ready(Ok(_))));
    }
    assert!(api.tokens_per_second() > 11.0, "{}", api.tokens_per_second());
}

#[test]
fn classes_nest_and_need_a_limiter_with_classes() {
    let (api, [heavy, _], clock) = shared();
    let tenant = heavy.class("tenant", Share::weight(1)).unwrap();
    assert_eq!((tenant.target().name(), tenant.target().parent().map(Class::name)), ("tenant", Some("heavy")));
    let mut claim = enter(&tenant);
    tick_after(&clock, api.limiter(), SECOND);
    let Poll::Ready(Ok(mut grant)) = claim.poll() else { panic!("not granted") };
    grant.settle(3);
    assert_eq!((grant.cost(), grant.grant().cost()), (3, 3));
    let plain = Adaptive::between("1/s", "1000/s").build().unwrap();
    assert_eq!(plain.class("none", Share::weight(1)).unwrap_err(), ConfigError::NoClasses);
}

#[test]
fn ceilings_above_floors_bound_the_burst_and_not_the_rate() {
    let (api, _, clock) = shared();
    let _classes = [("first", 5), ("second", 3)].map(|(name, burst)| {
        let share = Share::weight(1).floor(Quota::per_second(1)).ceiling(Quota::per_second(200).burst(burst));
        api.class(name, share).unwrap()
    });
    // The default burst of a rate is what comes in 10 ms.
    let mut highest = 0.0;
    while api.tokens_per_second() < 900.0 {
        let claims = [(); 100].map(|()| spawn(api.consume(1)));
        for mut claim in claims {
            while claim.poll().is_pending() {
                tick_after(&clock, api.limiter(), Duration::from_millis(50));
            }
        }
        assert!(api.tokens_per_second() >= highest);
        highest = api.tokens_per_second();
    }
    let seen = api.limiter().snapshot().quotas[0].quota;
    assert_eq!((seen.amount(), seen.period()), (api.snapshot().rate.amount(), api.snapshot().rate.period()));
    assert_eq!(seen.capacity(), 3);
}
